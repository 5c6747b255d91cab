"""The files of a run: what they are, and who may read them. No TensorFlow.

Records are written as things happen and cannot be computed again. Results are made once, and the
journal has their digests. Tables and pages are functions of records. Nothing is judged by the
others, such as times and pictures.
"""

import fnmatch
import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from dpfl import errors
from dpfl.accounting.measured.measured import AUDIT
from dpfl.accounting.records import archive, cohorts, sums

HTML_REPORT = 'privacy_report.html'
AUDIT_PAGE = 'audit.html'
GAN_REPORT = 'gan_report.md'
PROFILE = 'profile.json'
RECORD, RESULT, TABLE, OTHER = 'record', 'result', 'table', 'other'


class RunFile(NamedTuple):
    """A file of a run, or several.

    Attributes:
      pattern: its name in the directory of the run; `*` stands for any text.
      kind: one of the four above.
      is_private: whether the guarantee does not cover it: it holds exact counts, times that depend
        on single clients, or digests with which guesses about these can be checked. Only its owner
        may read it. docs/reference/threat_model.md gives the reasons.
      is_of_end: whether only a run whose rounds are all done has it.
    """

    pattern: str
    kind: str
    is_private: bool = False
    is_of_end: bool = False


# In the order of removal. The journal is removed last: while it exists, no other run begins.
FILES = (
    RunFile('checkpoints/*', RECORD, is_private=True),
    RunFile('tensorboard/*', OTHER, is_private=True),
    RunFile('plots/training.png', OTHER, is_private=True),
    RunFile('plots/generated_*.png', RESULT),
    RunFile('saved_model/*', RESULT, is_of_end=True),
    RunFile('generator/*', RESULT, is_of_end=True),
    RunFile(archive.SUMS, TABLE, is_private=True),
    RunFile(archive.METRICS, TABLE, is_private=True),
    RunFile(archive.REPORT, TABLE, is_of_end=True),
    RunFile(archive.SIGNATURE, OTHER, is_of_end=True),
    RunFile(archive.PAGE, TABLE, is_of_end=True),
    RunFile(HTML_REPORT, TABLE, is_of_end=True),
    RunFile(archive.LOG, TABLE, is_private=True, is_of_end=True),
    RunFile(archive.PLAN, TABLE),
    RunFile(archive.STRATEGY, RECORD),
    RunFile(archive.MODEL, RESULT, is_of_end=True),
    RunFile(archive.TEST, TABLE, is_private=True, is_of_end=True),
    RunFile(AUDIT, RESULT, is_of_end=True),
    RunFile(AUDIT_PAGE, TABLE, is_of_end=True),
    RunFile(GAN_REPORT, TABLE, is_of_end=True),
    RunFile(archive.BEFORE, TABLE),
    RunFile(archive.DATA, TABLE, is_private=True),
    RunFile(PROFILE, OTHER, is_private=True),
    RunFile(archive.FLAGS, TABLE, is_private=True),
    RunFile(archive.CONFIG, TABLE, is_private=True),
    RunFile(archive.CHOICE, OTHER),
    RunFile(cohorts.NAME, RECORD, is_private=True),
    RunFile(archive.LEDGER, RECORD, is_private=True),
)


def top(file: RunFile) -> str:
    """The name of a file, or of its folder, in the directory of the run."""
    return file.pattern.partition('/')[0]


# Without repetitions.
NAMES = tuple(dict.fromkeys(map(top, FILES)))


def is_private(name: str) -> bool:
    """Whether only the owner may read the file of this name."""
    return any(file.is_private for file in _of_table(name))


def results(path: pathlib.Path) -> dict[str, str]:
    """Digests of the results in the directory of a run but the audit's, by name."""
    files, _ = sums.walk(path, archive.CHECKPOINTS)
    return {
        name: sums.sha256(file)
        for name, file in files.items()
        if name != AUDIT and any(each.kind == RESULT for each in _of_table(name))
    }


def tables(path: pathlib.Path) -> list[str]:
    """Names of the tables and pages in the directory of a run."""
    return [each.pattern for each in FILES if each.kind == TABLE and (path / each.pattern).exists()]


def not_judged(names: Iterable[str]) -> str:
    """Which files verification does not judge, in words.

    Args:
      names: of the files that the directory has.
    """
    alone = dict.fromkeys(
        f'{name.partition("/")[0]}/' if '/' in name else name
        for name in sorted(names)
        if all(file.kind == OTHER for file in _of_table(name))
    )
    shown = ', '.join(map(errors.shown, alone))
    return f'not judged: checkpoints/, {archive.SIGNATURE}; by digest alone: {shown or "nothing"}'


def _of_table(name: str) -> list[RunFile]:
    return [file for file in FILES if fnmatch.fnmatchcase(name, file.pattern)]


def found(path: str | os.PathLike[str]) -> list[str]:
    """Names of the files and folders of an earlier run in a directory, in the order of removal."""
    return [name for name in NAMES if os.path.lexists(os.path.join(path, name))]


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
