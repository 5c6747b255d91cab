"""Growth of the memory of a long run, over all of its processes, from round 20 to the end.

  python benchmarks/memory.py --rounds=2000

The run is `dpfl train` at the size of job S of benchmarks/simulation.py (with twice the units): 50
clients in a round, with at most 2 batches of 16 x 20 tokens. Checkpoints, metrics, events and
evaluations are written as in any run. Memory is read every 50 ms; a figure for a round is the
median resident memory of the process and its children during the ten rounds from that one on.
`growth` is the figure for the ten rounds before the very last one, in which the report is made,
minus the figure for round 20.
"""

import pathlib
import signal
import statistics
import sys
import tempfile
import time

from benchmarks import measuring
from benchmarks.peers import family
from tests import binaries, runs

_FIRST, _WINDOW, _MOST = 20, 10, 50e6
_SECONDS = 0.05

_FLAGS = (
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
    '--mechanism=blt',
    '--strategy=blt_b100',
    '--min_separation=100',
    '--noise_multiplier=1',
)
_TINY = (
    '--vocabulary_size=40',
    '--sentence_length=5',
    '--model=micro',
    '--clients_per_round=4',
    '--min_separation=20',
)


def main() -> None:
    parser = measuring.parser(__doc__)
    parser.add_argument('--rounds', type=int, default=500, help='of the run')
    parser.add_argument('--tiny', action='store_true', help='at a size of no interest')
    args = parser.parse_args()
    if args.rounds < _FIRST + 2 * _WINDOW:
        parser.error(f'--rounds={args.rounds}: must be at least {_FIRST + 2 * _WINDOW}')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Ends the run.
    samples = _samples([*_FLAGS, f'--rounds={args.rounds}', *(_TINY if args.tiny else ())])
    print(f'{"round":>7}{"MB":>9}')
    last = args.rounds - _WINDOW
    for first in sorted({_FIRST, *range(args.rounds // 5, last, args.rounds // 5), last}):
        print(f'{first:>7}{_at(first, samples) / 1e6:>9.0f}')
    growth = _at(last, samples) - _at(_FIRST, samples)
    verdict = 'met' if growth < _MOST else 'missed'
    print(f'growth {growth / 1e6:.0f} MB; target less than {_MOST / 1e6:.0f} MB: {verdict}')


def _at(first: int, samples: list[tuple[int, int]]) -> float:
    """Median of the bytes over the `_WINDOW` rounds from `first` on."""
    until = [(number, size) for number, size in samples if number < first + _WINDOW]
    # If these rounds were over before memory was read, the last figure before them.
    return statistics.median([size for number, size in until if number >= first] or [until[-1][1]])


def _samples(flags: list[str]) -> list[tuple[int, int]]:
    """Trains; pairs of a round and the bytes of all processes during it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, 'run')
        run = binaries.Process(path, binaries.command('train', *flags, f'--output_dir={path}'))
        samples = []
        try:
            while run.process.poll() is None:
                size = family.resident_bytes(run.process.pid)
                samples.append((runs.begun_rounds(path), size))
                time.sleep(_SECONDS)
        finally:
            run.process.kill()
            status, lines = run.end()
        if status:
            sys.exit((lines or ['no output'])[-1])
        return samples


if __name__ == '__main__':
    main()
