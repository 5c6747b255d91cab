"""Growth of the memory of a long run, over all of its processes, from round 20 to the end.

  python benchmarks/memory.py                                  # two runs of 500 rounds
  python benchmarks/memory.py --rounds=2000 --sampling=poisson

Each run is `dpfl train` at the size of job S of benchmarks/simulation.py (with
twice the units): 50 clients in a round (on average with Poisson sampling), with at most 2 batches
of 16 x 20 tokens. Checkpoints, metrics, events and evaluations are written as in any run. Memory is
read every 50 ms; a figure for a round is the median resident memory of the process and its children
during the ten rounds from that one on. `growth` is the figure for the ten rounds before the very
last one, in which the report is made, minus the figure for round 20.
"""

import argparse
import dataclasses
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.peers import family

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_FIRST, _WINDOW, _MOST = 20, 10, 50e6
_SECONDS = 0.05

_COMMON = (
    '--task=synthetic_text',
    '--vocabulary_size=996',
    '--sentence_length=20',
    '--model=small',
    '--population=10000',
    '--clients_per_round=50',
    '--client_batch_size=16',
    '--client_max_batches=2',
    '--eval_every=10',
    '--delta=1e-6',
)
_SAMPLING = {
    'min_separation': (
        '--mechanism=blt',
        '--strategy=blt_b100',
        '--min_separation=100',
        '--noise_multiplier=1',
    ),
    'poisson': (
        '--mechanism=gaussian',
        '--sampling=poisson',
        '--min_separation=1',
        '--noise_multiplier=1',
    ),
}
_TINY = ('--vocabulary_size=40', '--sentence_length=5', '--model=micro', '--clients_per_round=4')


class NotRunError(Exception):
    """A run failed; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory of a run: pairs of a round and the bytes of all processes during it."""

    samples: list[tuple[int, int]]

    def at(self, first: int) -> float:
        """Median over the `_WINDOW` rounds from `first` on."""
        until = [(number, size) for number, size in self.samples if number < first + _WINDOW]
        # If these rounds were over before memory was read, the last figure before them.
        return statistics.median(
            [size for number, size in until if number >= first] or [until[-1][1]]
        )


def main() -> None:
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Ends the run.
    print(f'{"":<15}{"round":>7}{"MB":>9}')
    for name in args.sampling:
        try:
            memory = _run(name, args)
        except NotRunError as error:
            print(f'not run: {name}: {error}', flush=True)
            continue
        last = args.rounds - _WINDOW
        for first in sorted({_FIRST, *range(args.rounds // 5, last, args.rounds // 5), last}):
            print(f'{name:<15}{first:>7}{memory.at(first) / 1e6:>9.0f}')
        growth = memory.at(last) - memory.at(_FIRST)
        verdict = 'met' if growth < _MOST else 'missed'
        target = f'target less than {_MOST / 1e6:.0f} MB: {verdict}'
        print(f'{name}: growth {growth / 1e6:.0f} MB; {target}', flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--rounds', type=int, default=500, help='of each run')
    parser.add_argument(
        '--sampling', default=','.join(_SAMPLING), help='one run of each, separated by commas'
    )
    parser.add_argument('--tiny', action='store_true', help='at a size of no interest')
    args = parser.parse_args()
    args.sampling = args.sampling.split(',')
    if not set(args.sampling) <= set(_SAMPLING):
        parser.error(f'--sampling={",".join(args.sampling)}: must be among {", ".join(_SAMPLING)}')
    if args.rounds < _FIRST + 2 * _WINDOW:
        parser.error(f'--rounds={args.rounds}: must be at least {_FIRST + 2 * _WINDOW}')
    return args


def _run(name: str, args) -> Memory:
    """Trains, and watches the memory.

    Raises:
      NotRunError: if the run fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        run, log = pathlib.Path(folder, 'run'), pathlib.Path(folder, 'log')
        flags = [
            *_COMMON,
            *_SAMPLING[name],
            f'--rounds={args.rounds}',
            f'--output_dir={run}',
            *(_TINY if args.tiny else ()),
        ]
        with log.open('w') as file:
            process = subprocess.Popen(
                [sys.executable, '-m', 'experiments.train', *flags],
                cwd=_ROOT,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        samples = []
        try:
            while process.poll() is None:
                number = _round(run / 'ledger.jsonl')
                samples.append((number, family.resident_bytes(process.pid)))
                time.sleep(_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode:
            raise NotRunError((log.read_text().strip().splitlines() or ['no output'])[-1])
        return Memory(samples)


def _round(ledger: pathlib.Path) -> int:
    """The round in training, which is the last one in the ledger; 0 before the first."""
    return ledger.read_bytes().count(b'"event": "began"') if ledger.exists() else 0


if __name__ == '__main__':
    main()
