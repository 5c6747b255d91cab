"""Runs the cases of one target in this process, and records their outcomes."""

import collections
import dataclasses
import multiprocessing
import pathlib
import re
import traceback
import warnings
from collections.abc import Callable
from concurrent import futures

import numpy as np

from tests.attacks.hostile import guard
from tests.attacks.hostile.target import Target, WrongResultError


@dataclasses.dataclass
class Outcomes:
    """The outcomes of cases.

    Attributes:
      counts: number of cases by outcome: 'taken', 'refused', or the kind of a finding.
      findings: numbers of cases by what was found, at most ten each.
    """

    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    findings: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def add(self, case: int, outcome: str) -> None:
        """Records the outcome of a case."""
        kind = outcome if outcome in ('taken', 'refused') else 'found'
        self.counts[kind] += 1
        if kind == 'found':
            cases = self.findings.setdefault(outcome, [])
            if len(cases) < 10:
                cases.append(case)


def run_alone(make: Callable[[pathlib.Path], Target], folder: pathlib.Path, cases: range):
    """The outcomes of cases in a process of its own, whose memory is limited, and which may die."""
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn')) as pool:
        return pool.submit(_run_limited, make, folder, cases).result()


def _run_limited(make, folder, cases) -> Outcomes:
    target = make(folder)
    guard.limit_memory()
    return run(target, 0, cases)


def run(target: Target, seed: int, cases: range) -> Outcomes:
    """Runs cases of a target; case i depends on the seed, the target's name and i alone."""
    warnings.simplefilter(
        'ignore'
    )  # Warnings of the mathematics; this campaign does not judge what is printed.
    outcomes = Outcomes()
    peak = guard.peak_memory()
    for case in cases:
        rng = np.random.default_rng([seed, *target.name.encode(), case])
        outcomes.add(case, one(target, rng))
        if guard.peak_memory() > peak + guard.MOST_GROWTH:
            peak = guard.peak_memory()
            outcomes.add(case, 'more than 1 GiB of memory')
    return outcomes


def one(target: Target, rng) -> str:
    """Runs one case; returns 'taken', 'refused', or a finding."""
    path = target.mutate(rng)
    try:
        with guard.time_limit(target.seconds):
            try:
                value = target.read(path)
            except target.refusals as error:
                return _refused(error)
            target.check(value)
            return 'taken'
    except guard.TooSlowError:
        return f'more than {target.seconds:g} seconds'
    except WrongResultError as error:
        return f'wrong result: {re.sub("[0-9.e+-]{6,}", "#", str(error)):.160}'
    except Exception as error:
        return _unexpected(error)


def _refused(error: Exception) -> str:
    try:
        message = str(error)
    except Exception as inner:
        return f'a message that cannot be shown: {type(inner).__name__}'
    if not message or len(message.splitlines()) > 1 or not message.isprintable():
        return f'refused, but not in one printable line: {_where(error)}'
    return 'refused'


def _unexpected(error: Exception) -> str:
    return f'{type(error).__name__} at {_where(error)}: {" ".join(str(error).split())[:80]}'


def _where(error: Exception) -> str:
    """The innermost line of dpfl in the traceback of an error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if '/dpfl/' in f.filename]
    if not frames:
        return 'the campaign itself'
    return f'{pathlib.Path(frames[-1].filename).name}:{frames[-1].lineno}'
