"""Plays faults of training runs, resumes the runs, and compares the results bit for bit.

  python scripts/fault_test.py

First, every system call of a short run that changes a file fails: once; from then on, as on a full
disk; and from then on, as on a disk that became read-only (`faults_at_writes.py`). Then a run with
draws before it ends at every such call, killed or by a power failure, and what each end leaves on
the disk is continued (`crashes_at_writes.py`). Then the training binary meets all other faults,
except those of Ray: closed streams, signals, directories that disappear, other processes, lack of
memory, clocks that jump (`fault_list.py`).
Prints a row for each fault: what happened, the exit status, the lines on standard error, and
whether the resumed run has the same bits as an undisturbed run. Exits with status 1 if any fault
leads to more than one line of error, or to the loss of anything that was saved.

Needs Linux 5.5 or newer on x86-64, but no privileges. If it may mount file systems, it also uses
real ones that are full or read-only.
"""

import collections
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

from absl import flags

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

from dpfl.cli.command import command_line  # noqa: E402
from dpfl.reporting import plain_text
from scripts import crashes_at_writes, fault_list, fault_runs, faults_at_writes  # noqa: E402

_EVERY = flags.DEFINE_integer(
    'every',
    1,
    'Play the faults of files at every N-th system call; 0: not at all.',
    lower_bound=0,
)
_CRASHES = flags.DEFINE_integer(
    'crashes',
    1,
    'Continue every N-th directory that an end at a system call leaves; 0: none.',
    lower_bound=0,
)
_RUNS = flags.DEFINE_bool('runs', True, 'Play the faults of the training binary.')
_ONLY = flags.DEFINE_list(
    'only', [''], 'Only play those faults of the binary whose names contain one of these words.'
)
_NOISE = flags.DEFINE_list(
    'noise', ['seeded', 'unseeded'], 'Kinds of noise for the runs with faults of files.'
)


def main() -> None:
    # A background job of a shell ignores SIGINT, and so would all processes that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    num_worse = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if _EVERY.value:
            for kind in _NOISE.value:
                noise_seed = 5 if kind == 'seeded' else None
                places, played = faults_at_writes.play(folder / kind, noise_seed, _EVERY.value)
                print(f'Noise {kind}: {places} system calls on files, {len(played)} faults played')
                num_worse += _count_worse(played)
        if _CRASHES.value:
            played = crashes_at_writes.play(folder / 'crashes', _CRASHES.value)
            print(f'Ends at system calls: {len(played)} directories continued')
            num_worse += _count_worse(played)
        if _RUNS.value:
            (folder / 'runs').mkdir()
            os.environ['TMPDIR'] = tempfile.tempdir = str(folder / 'runs')
            for outcome in fault_list.play(folder / 'runs', _ONLY.value):
                print(f'{outcome.fault}, {outcome.place}: {outcome.said}', flush=True)
                num_worse += _count_worse([outcome], has_table=False)
    print(f'{time.monotonic() - started:.0f} seconds, {num_worse} worse than one line')
    if num_worse:
        sys.exit(1)


def _count_worse(played: Sequence[fault_runs.Outcome], has_table: bool = True) -> int:
    """Prints a row for each fault, and the outcomes that are worse; their number."""
    by_fault = collections.defaultdict(list)
    for outcome in played:
        by_fault[outcome.fault].append(outcome)
    rows = [
        {
            'fault': name,
            'played': len(outcomes),
            'ended in a line': sum(bool(outcome.said) for outcome in outcomes),
            'worse': sum(bool(outcome.worse) for outcome in outcomes),
        }
        for name, outcomes in by_fault.items()
    ]
    if has_table:
        print(plain_text.columns(rows), flush=True)
    worse = [outcome for outcome in played if outcome.worse]
    for outcome in worse:
        print(f'WORSE: {outcome.fault}, {outcome.place}: {outcome.worse} ({outcome.said})')
    return len(worse)


if __name__ == '__main__':
    command_line.run(main)
