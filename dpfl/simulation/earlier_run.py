"""Whether a directory holds an earlier run. Does not import TensorFlow."""

import os
import pathlib

from dpfl import errors
from dpfl.accounting.measured.measured import AUDIT
from dpfl.accounting.records import archive

HTML_REPORT = 'privacy_report.html'
AUDIT_PAGE = 'audit.html'
# All that a run writes, in the order of removal. The ledger is removed last: while it exists, no
# other run begins.
NAMES = (
    archive.CHECKPOINTS,
    'tensorboard',
    'plots',
    'saved_model',
    'generator',
    archive.SUMS,
    'metrics.csv',
    archive.REPORT,
    archive.SIGNATURE,
    archive.PAGE,
    HTML_REPORT,
    archive.LOG,
    archive.PLAN,
    archive.STRATEGY,
    archive.MODEL,
    archive.TEST,
    AUDIT,
    AUDIT_PAGE,
    'gan_report.md',
    archive.BEFORE,
    'data.json',
    'profile.json',
    archive.FLAGS,
    archive.CONFIG,
    archive.CHOICE,
    archive.LEDGER,
)


def found(path: str | os.PathLike[str]) -> list[str]:
    """Names of the files and folders of an earlier run in a directory, in the order of removal."""
    return [name for name in NAMES if (pathlib.Path(path) / name).exists()]


def refuse(path: str | os.PathLike[str]) -> None:
    """Checks that a new run may begin in a directory.

    Raises:
      ArgumentError: if the directory holds an earlier run; it names `directory`.
    """
    names = found(path)
    if names:
        raise errors.ArgumentError(
            'directory',
            os.fspath(path),
            f'must not hold an earlier run ({names[0]} exists), unless resume (to continue it) or '
            'overwrite (to delete it) is set',
        )
