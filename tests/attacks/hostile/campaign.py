"""Runs the cases of a target in this process: files of one kind with random mutations."""

import collections
import dataclasses
import pathlib
import re
import resource
import shutil
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.attacks.hostile import mutations
from tests.attacks.hostile.refusals import TooSlowError, within_seconds

_MOST_GROWTH = 1 << 20  # Of the memory of the process during a case, in KiB.


class WrongResultError(Exception):
    """A file was accepted, but the result is wrong."""


def require(holds: bool, message: str) -> None:
    """Raises WrongResultError unless something holds."""
    if not holds:
        raise WrongResultError(message)


def _as_they_are(parts: dict[str, bytes]) -> dict[str, bytes]:
    return parts


def _nothing_to_check(value: Any, rng: np.random.Generator) -> None:
    pass


@dataclasses.dataclass
class Target:
    """A kind of file: right examples, how it is read, and how that may end.

    Attributes:
      examples: each the files, or parts of a file, by name. In a case one of them is mutated, in a
        way that the end of its name says.
      read: a folder with the files -> what dpfl makes of them; it raises one of `refusals`, in one
        line, if they cannot be used.
      refusals: exceptions.
      check: raises WrongResultError if the result is wrong; the generator is for its choices.
      seal: parts -> files with right digests, so that readers get past these.
    """

    examples: Sequence[dict[str, bytes]]
    read: Callable[[pathlib.Path], Any]
    refusals: tuple[type[Exception], ...] = (ValueError,)
    check: Callable[[Any, np.random.Generator], None] = _nothing_to_check
    seal: Callable[[dict[str, bytes]], dict[str, bytes]] = _as_they_are

    def write(self, rng: np.random.Generator, folder: pathlib.Path) -> None:
        """Writes the files of a case to an empty folder."""
        parts = dict(self.examples[rng.integers(len(self.examples))])
        name = list(parts)[rng.integers(len(parts))]
        parts[name] = mutations.of_file(rng, name, parts[name])
        for name, data in self.seal(parts).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def run(target: Target, folder: pathlib.Path, cases: int, seed: int = 15) -> collections.Counter:
    """How many cases ended how: 'taken', 'refused', or a finding with the number of its case.

    Args:
      target: case i depends on its definition, the seed and i alone.
      folder: a folder for it alone.
      cases: how many.
      seed: any number.
    """
    outcomes: collections.Counter = collections.Counter()
    for number in range(cases):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # Of the mathematics.
            outcome = _outcome(target, folder / 'case', np.random.default_rng([seed, number]))
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > peak + _MOST_GROWTH:
            outcome = 'more than 1 GiB of memory'
        is_good = outcome in ('taken', 'refused')
        outcomes[outcome if is_good else f'{outcome} (case {number})'] += 1
    return outcomes


def _outcome(target: Target, folder: pathlib.Path, rng) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target.write(rng, folder)
    try:
        with within_seconds(20):
            value = target.read(folder)
            target.check(value, rng)
        return 'taken'
    except TooSlowError:
        return 'more than 20 seconds'
    except target.refusals as error:
        message = str(error)
        is_one_line = message.isprintable() and message
        return 'refused' if is_one_line else f'not in one printable line: {_where(error)}'
    except WrongResultError as error:
        return f'wrong result: {error!s:.160}'
    except Exception as error:
        return f'{type(error).__name__} at {_where(error)}: {" ".join(str(error).split()):.80}'


def _where(error: Exception) -> str:
    """The innermost line of dpfl in the traceback of an error."""
    lines = [
        f'{pathlib.Path(frame.filename).name}:{frame.lineno}'
        for frame in traceback.extract_tb(error.__traceback__)
        if re.search('/dpfl/', frame.filename)
    ]
    return lines[-1] if lines else 'the campaign itself'
