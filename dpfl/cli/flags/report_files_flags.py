"""Flags of reports as files, and of runs whose report is verified."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.cli.flags import output_flags
from dpfl.errors import ArgumentError


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
