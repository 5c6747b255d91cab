"""Flags of a report's statements besides the guarantee of one client and one run."""

import dataclasses

from dpfl import accounting
from dpfl._settings import Settings, setting
from dpfl.accounting.selection import Selection
from dpfl.cli.command import command_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuaranteeConfig(Settings):
    """Groups of clients, membership tests, and the selection of a run."""

    group_size: int | None = setting(
        None,
        'Number of clients, such as those of one person, that all numbers are for. The default is '
        'one, or that of the run in --run_dir.',
        minimum=1,
    )
    tradeoff: bool = setting(
        False,
        'Also report what a membership test can reach: the largest true positive rate for each '
        'false positive rate, the largest difference of both, and the least probability of error.',
    )
    selected_from: str | None = setting(
        None,
        'The run is the best of several, and only that one is released: distribution and mean of '
        'their number, such as poisson:10 ([Papernot22]). The number is drawn from it beforehand. '
        'Distributions are poisson, geometric, logarithmic, or the shape of a negative binomial '
        'one, such as 0.5:10. The report adds what the best run guarantees.',
    )

    def check(self) -> None:
        """`selected_from` names a selection."""
        if self.selected_from is not None:
            Selection.from_text(self.selected_from)


def with_more(
    report: accounting.PrivacyReport, config: GuaranteeConfig, is_composed: bool
) -> accounting.PrivacyReport:
    """The report with the parts that the flags ask for.

    Args:
      report: for the group size of the flags.
      config: the flags.
      is_composed: whether the guarantee of several runs is reported, which no selection is part of.

    Raises:
      UsageError: If the guarantee of a selection is not known.
    """
    if config.tradeoff:
        report = report.with_tradeoff()
    if config.selected_from is None:
        return report
    if is_composed:
        raise command_line.UsageError('--selected_from: cannot be combined with --compose_with')
    with command_line.refusing_bad_values():
        return report.selected_from(Selection.from_text(config.selected_from))
