"""The files of a run: who may read them, and how verification judges them. No TensorFlow."""

import fnmatch
import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from dpfl import errors
from dpfl.accounting.measured.measured import AUDIT
from dpfl.accounting.records import archive

HTML_REPORT = 'privacy_report.html'
AUDIT_PAGE = 'audit.html'
GAN_REPORT = 'gan_report.md'
DATA = 'data.json'
PROFILE = 'profile.json'
# How verification judges a file: it computes it again, compares it with other files, compares its
# digest with SHA256SUMS and nothing else, or does not look at it.
AGAIN, COMPARED, DIGEST, NOT_AT_ALL = 'computed again', 'compared', 'digest alone', 'not judged'


class RunFile(NamedTuple):
    """A file of a run, or several.

    Attributes:
      pattern: its name in the directory of the run; `*` stands for any text.
      judged: how verification judges it.
      is_private: whether the guarantee does not cover it: it holds exact counts, times that depend
        on single clients, or digests with which guesses about these can be checked. Only its owner
        may read it. docs/reference/threat_model.md gives the reasons.
      is_of_end: whether only a run whose rounds are all done has it.
    """

    pattern: str
    judged: str
    is_private: bool = False
    is_of_end: bool = False


# In the order of removal. The ledger is removed last: while it exists, no other run begins.
FILES = (
    RunFile('checkpoints/*', NOT_AT_ALL, is_private=True),
    RunFile('tensorboard/*', DIGEST, is_private=True),
    RunFile('plots/training.png', DIGEST, is_private=True),
    RunFile('plots/generated_*.png', DIGEST),
    RunFile('saved_model/*', DIGEST, is_of_end=True),
    RunFile('generator/*', DIGEST, is_of_end=True),
    RunFile(archive.SUMS, COMPARED, is_private=True),
    RunFile(archive.METRICS, COMPARED, is_private=True),
    RunFile(archive.REPORT, AGAIN, is_of_end=True),
    RunFile(archive.SIGNATURE, NOT_AT_ALL, is_of_end=True),
    RunFile(archive.PAGE, AGAIN, is_of_end=True),
    RunFile(HTML_REPORT, AGAIN, is_of_end=True),
    RunFile(archive.LOG, COMPARED, is_private=True, is_of_end=True),
    RunFile(archive.PLAN, COMPARED),
    RunFile(archive.STRATEGY, COMPARED),
    RunFile(archive.MODEL, DIGEST, is_of_end=True),
    RunFile(archive.TEST, DIGEST, is_private=True, is_of_end=True),
    RunFile(AUDIT, COMPARED, is_of_end=True),
    RunFile(AUDIT_PAGE, AGAIN, is_of_end=True),
    RunFile(GAN_REPORT, AGAIN, is_of_end=True),
    RunFile(archive.BEFORE, COMPARED),
    RunFile(DATA, DIGEST, is_private=True),
    RunFile(PROFILE, DIGEST, is_private=True),
    RunFile(archive.FLAGS, COMPARED, is_private=True),
    RunFile(archive.CONFIG, COMPARED, is_private=True),
    RunFile(archive.CHOICE, DIGEST),
    RunFile(archive.LEDGER, COMPARED, is_private=True),
)


def top(file: RunFile) -> str:
    """The name of a file, or of its folder, in the directory of the run."""
    return file.pattern.partition('/')[0]


# Without repetitions.
NAMES = tuple(dict.fromkeys(map(top, FILES)))


def is_private(name: str) -> bool:
    """Whether only the owner may read the file of this name."""
    return any(file.is_private for file in FILES if fnmatch.fnmatchcase(name, file.pattern))


def not_judged(names: Iterable[str]) -> str:
    """Which files verification does not judge, in words.

    Args:
      names: of the files that the directory has.
    """
    by_digest = []
    for name in names:
        of_table = [file for file in FILES if fnmatch.fnmatchcase(name, file.pattern)]
        if all(file.judged == DIGEST for file in of_table):
            by_digest.append(f'{name.partition("/")[0]}/' if '/' in name else name)
    never = [file.pattern.removesuffix('*') for file in FILES if file.judged == NOT_AT_ALL]
    alone = ', '.join(map(errors.shown, dict.fromkeys(sorted(by_digest))))
    return f'not judged: {", ".join(never)}; judged by digest alone: {alone or "nothing"}'


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
