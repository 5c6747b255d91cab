"""Flags of reports: what they state, the files that they are in, and runs that are verified."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.accounting.selection import Selection
from dpfl.cli.flags import output_flags
from dpfl.errors import NOT_SHOWN, ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuaranteeConfig(Settings):
    """Groups of clients, membership tests, the selection of a run, and other runs."""

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
    compose_with: tuple[str, ...] = setting(
        (),
        'Reports of other runs on the same clients, files privacy_report.json or directories of '
        'runs, comma-separated. The report then also gives the guarantee of all runs together. '
        'Each run may depend on the results of earlier ones.',
    )

    def check(self) -> None:
        """`selected_from` names a selection; none is known for several runs together."""
        if self.selected_from is None:
            return
        Selection.from_text(self.selected_from)
        if self.compose_with:
            raise ArgumentError('selected_from', NOT_SHOWN, 'cannot be combined with compose_with')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFilesConfig(Settings):
    """Reports in files. The flags of a plan do not apply to a comparison or a verification."""

    compare: tuple[str, ...] = setting(
        (),
        'Two reports to compare, files privacy_report.json or directories of runs: '
        '`--compare first second` or `--compare=first,second`. Says which run is more private, '
        'and why.',
    )
    sign: str | None = setting(
        None,
        'File of an Ed25519 private key (PEM). Signs the report of --run_dir, once it is verified, '
        'or else that of --output. The signature is in a file beside it, whose name ends in .sig.',
    )
    verify: str | None = setting(
        None,
        'Report whose signature to verify, a file or the directory of a run; it is also computed '
        'again, and refused if it states anything that does not follow. Needs --public_key.',
        needs='public_key',
    )
    public_key: str | None = setting(
        None,
        'File of the Ed25519 public key (PEM) of whoever signed the report; for --verify.',
        needs='verify',
    )
    output: str | None = setting(
        None, 'File to write the report to, instead of printing it; in the format of --format.'
    )

    def check(self) -> None:
        """A comparison has two reports."""
        if len(self.compare) not in (0, 2):
            raise ArgumentError('compare', ','.join(self.compare), 'must be two reports')


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedRunConfig(output_flags.RunDirConfig):
    """A finished run to verify, and what is done with its directory."""

    after: str | None = setting(
        None,
        'With --run_dir: an earlier report of the same run, a file or a directory. Also checks '
        'that the journal of the run continues the one of that report. If the run was rolled back '
        'and went another way, or is a copy that did, it does not.',
        needs='run_dir',
    )
    write_pages: bool = setting(
        False,
        'With --run_dir: first write all tables and pages of the run again, as they follow from '
        'its journal.',
        needs='run_dir',
    )
    forget_keys: bool = setting(
        False,
        'With --run_dir: delete keys and checkpoints of the run, if it has ended and is verified. '
        'It stays verified, and can no longer be continued.',
        needs='run_dir',
    )
    open: bool = setting(
        False,
        'With --run_dir: show the page of the report in a browser, if the run is verified.',
        needs='run_dir',
    )
