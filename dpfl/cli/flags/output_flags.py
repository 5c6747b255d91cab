"""Flags of the input and output of binaries: files, reports, directories of runs. No TensorFlow."""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl._settings import Settings, setting
from dpfl.accounting.selection import Selection
from dpfl.cli.command import command_line
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import NOT_SHOWN, ArgumentError

FORMATS = ('text', 'json')
_FORMS = ('.csv', '.json')


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatConfig(Settings):
    """How a result is printed."""

    format: str = setting(
        'text', 'Format of the result, which is printed at the end.', choices=FORMATS
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirectoryConfig(Settings):
    """The directory of a run, and what happens to an earlier run in it."""

    output_dir: str | None = setting(None, 'Directory of the run.')
    overwrite: bool = setting(False, 'Replace an earlier run in that directory.')
    resume: bool = setting(
        False,
        'Continue the run in that directory. Flags that are not given have the values of the run. '
        'The result is the same as without an interruption. If there is no run yet, start one.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryRunConfig(Settings):
    """Whether a run is only estimated."""

    dry_run: bool = setting(
        False,
        'Print the size of the run, its noise and its guarantee, and whether that noise leaves '
        'anything to learn. Nothing is trained or written; --output_dir need not be given.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDirConfig(Settings):
    """A finished run to read."""

    run_dir: str | None = setting(None, 'Directory of a finished run.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotConfig(Settings):
    """The file of a plot."""

    plot: str | None = setting(None, 'File to draw the plot in.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """The file of the numbers of a plot."""

    data: str | None = setting(
        None, 'File to write the rows of the table and the plot to: .csv or .json.'
    )

    def check(self) -> None:
        """The name of the file says its form."""
        if self.data is not None and pathlib.Path(self.data).suffix not in _FORMS:
            raise ArgumentError('data', self.data, f'must end in {" or ".join(_FORMS)}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputConfig(Settings):
    """The file of a result."""

    output: str | None = setting(None, 'File to write the result to.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedConfig(Settings):
    """The seed of everything random."""

    seed: int = setting(0, 'Seed of everything random.', minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig(Settings):
    """Which of many results are made."""

    only: str = setting('', 'Only results whose name begins with this text.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(Settings):
    """The loss of a mechanism."""

    loss: str = setting(
        'max',
        'Loss to plot: largest or root mean square noise of the prefix sums.',
        choices=('max', 'rms'),
    )


def show(form: SettingsFlags[FormatConfig], values: Any, text: str, **how: Any) -> None:
    """Prints a result in the format that the flags ask for.

    Args:
      form: the flag of the format.
      values: what is printed as JSON.
      text: what is printed as text.
      **how: arguments of `json.dumps`.
    """
    print(json.dumps(values, **how) if form.read().format == 'json' else text)


def write_rows(path: str | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows to the file of `DataConfig`, a column for each key; does nothing without a file.

    Raises:
      ArgumentError: If the file cannot be written.
    """
    if path is None:
        return
    text = io.StringIO(newline='')
    if pathlib.Path(path).suffix == '.json':
        text.write(json.dumps(rows, indent=1, allow_nan=False) + '\n')
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(text, names, lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)
    try:
        pathlib.Path(path).write_text(text.getvalue(), newline='')
    except OSError as error:
        raise ArgumentError('data', path, str(error.strerror)) from None


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
class VerifiedRunConfig(RunDirConfig):
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


def directory(config: RunDirectoryConfig) -> pathlib.Path:
    """The directory of --output_dir.

    Raises:
      UsageError: If it is not given, if the flags contradict each other, or if its name cannot be
        written as a line of flags.txt.
    """
    if config.resume and config.overwrite:
        raise command_line.UsageError('--resume: cannot be combined with --overwrite')
    name = config.output_dir
    if not name:
        raise command_line.UsageError('--output_dir: must be given')
    if not name.isprintable() or name != name.strip():
        raise command_line.UsageError(
            f'--output_dir={name!a}: must have printable characters only, and no space at either '
            'end'
        )
    return pathlib.Path(name)
