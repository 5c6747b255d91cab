"""Plays what can go wrong with a run but for its workers, resumes it, and compares bit for bit.

  python scripts/fault_test.py

First, every system call of a short run that changes a file fails: once, as on a full disk from then
on, and as on one that became read-only (`faults_at_writes.py`). Then the training binary meets the
rest, as its users would: streams that are closed, signals, directories that go away, processes
beside it, memory, clocks (`faults_of_runs.py`). Prints a row for each: what happened, the exit
status, the lines on standard error, and whether the run, resumed, has the bits of a run that was
not disturbed. Exits 1 if anything is worse than one line and nothing lost that was saved.

It needs Linux 5.5 or newer on x86-64, and no rights; where it may mount, full and read-only file
systems are real ones as well.
"""

import collections
import os
import pathlib
import signal
import sys
import tempfile
import time

from absl import flags

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

from experiments.command import command_line  # noqa: E402
from scripts import faults_at_writes, faults_of_runs  # noqa: E402

_EVERY = flags.DEFINE_integer(
    'every',
    1,
    'Play the faults of files at every so many system calls; 0: not at all.',
    lower_bound=0,
)
_RUNS = flags.DEFINE_bool('runs', True, 'Play the faults of the training binary.')
_ONLY = flags.DEFINE_list('only', [''], 'Of those, play the ones whose names contain one of these.')
_NOISE = flags.DEFINE_list(
    'noise', ['seeded', 'unseeded'], 'Kinds of noise of the runs whose files fail.'
)


def main() -> None:
    # What runs in the background of a shell ignores SIGINT, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    num_worse = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if _EVERY.value:
            for kind in _NOISE.value:
                (folder / kind).mkdir()
                num_worse += _files(folder / kind, 5 if kind == 'seeded' else None)
        if _RUNS.value:
            (folder / 'runs').mkdir()
            num_worse += _runs(folder / 'runs')
    print(f'{time.monotonic() - started:.0f} seconds, {num_worse} worse than one line')
    if num_worse:
        sys.exit(1)


def _files(folder: pathlib.Path, noise_seed: int | None) -> int:
    places, outcomes = faults_at_writes.play(folder, noise_seed, _EVERY.value)
    by_fault = collections.defaultdict(list)
    for outcome in outcomes:
        by_fault[outcome.fault].append(outcome)
    print(f'Noise {folder.name}: {places} system calls on files, {len(outcomes)} faults played')
    print(
        command_line.columns(
            [
                {
                    'fault': name,
                    'played': len(played),
                    'ended in a line': sum(bool(outcome.said) for outcome in played),
                    'went on': sum(not outcome.said for outcome in played),
                    'worse': sum(bool(outcome.worse) for outcome in played),
                }
                for name, played in by_fault.items()
            ]
        ),
        flush=True,
    )
    worse = [outcome for outcome in outcomes if outcome.worse]
    for outcome in worse:
        print(f'WORSE: {outcome.fault}, {outcome.place}: {outcome.worse} ({outcome.said})')
    return len(worse)


def _runs(folder: pathlib.Path) -> int:
    num_worse = 0
    os.environ['TMPDIR'] = tempfile.tempdir = str(folder)
    for outcome in faults_of_runs.play(folder, _ONLY.value):
        num_worse += bool(outcome.worse)
        lines = f'{len(outcome.lines)} line{"s" * (len(outcome.lines) != 1)}'
        print(
            f'{outcome.fault}: {outcome.happened}; status {outcome.status}; {lines}: '
            f'{" / ".join(outcome.lines) or "-"}; {outcome.resumed}'
            + f'; WORSE: {outcome.worse}'
            * bool(outcome.worse),
            flush=True,
        )
    return num_worse


if __name__ == '__main__':
    command_line.run(main)
