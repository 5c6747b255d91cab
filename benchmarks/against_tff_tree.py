"""Rounds of dpfl's aggregators against those of TFF's tree aggregation, in TFF's context and here.

  python -m benchmarks.against_tff_tree
  python -m benchmarks.against_tff_tree --sizes=1M --tensors=100 --contexts=tff --rounds=31

For each size of a model, number of tensors and context, a process of `build_aggregator` and one of
`tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation` take turns, round by round, with the
updates of two clients. The plan has 500 rounds. `ratio` is the median of the quotients of such
pairs of rounds. `start` is the quotient of the seconds until the first round is done: to create
the process, its first state, and the round. `CPU` is the quotient of the processor time of all
rounds after the first, TFF's worker included.

A tree's state has as many buffers as the binary form of the number of rounds has ones: 2.1 on
average over the rounds that are measured by default, 2 to 16.

  honaker          HonakerTree(500), the efficient tree that TFF's is
  tree             BinaryTree(500)
  blt              BLT with 2 buffers
  gaussian         independent noise
"""

import argparse
import itertools
import os
import statistics
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import measuring
from benchmarks.peers import family
from dpfl import aggregators, mechanisms
from dpfl.runtime import contexts
from tests.runtime import tff_context

_ROUNDS, _CLIENTS = 500, 2
_SIZES = {'0.1M': 100_000, '1M': 1_000_000, '10M': 10_000_000}
_CONTEXTS = {'tff': tff_context.native_runtime, 'local': contexts.local_runtime}
_MECHANISMS = {
    'honaker': lambda: mechanisms.HonakerTree(_ROUNDS),
    'tree': lambda: mechanisms.BinaryTree(_ROUNDS),
    'blt': lambda: mechanisms.Blt(_ROUNDS, [0.99, 0.7], [0.05, 0.2]),
    'gaussian': lambda: mechanisms.Identity(_ROUNDS),
}


class _Process:
    """An aggregation process, and the seconds of its rounds."""

    def __init__(self, factory, shapes, values):
        started = time.perf_counter()
        process = factory.create(tff.to_type([(np.float32, shape) for shape in shapes]))
        self._next, self._values = process.next, values
        self._state = process.initialize()
        self._round()
        self.start = time.perf_counter() - started
        self.rounds: list[family.Use] = []

    def _round(self):
        self._state = self._next(self._state, self._values).state

    def run(self):
        with family.Use() as use:
            self._round()
        self.rounds.append(use)


def _factory(name):
    return aggregators.build_aggregator(measuring.plan(_MECHANISMS[name](), _CLIENTS))


def _shapes(coordinates: int, tensors: int) -> list[tuple[int, ...]]:
    return [(len(part),) for part in np.array_split(np.empty(coordinates), tensors)]


def _compare(name: str, coordinates: int, tensors: int, rounds: int) -> str:
    shapes = _shapes(coordinates, tensors)
    rng = np.random.default_rng(0)
    values = [
        [rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(_CLIENTS)
    ]
    stock = tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation(
        1.0, _CLIENTS, 1.0, [tf.TensorSpec(shape) for shape in shapes]
    )
    _Process(tff.aggregators.SumFactory(), shapes, values)  # Starts what all processes use.
    one, other = (_Process(factory, shapes, values) for factory in (_factory(name), stock))
    for number in range(rounds):
        for process in (one, other) if number % 2 else (other, one):
            process.run()
    pairs = zip(one.rounds, other.rounds, strict=True)
    ratio = statistics.median(ours.seconds / theirs.seconds for ours, theirs in pairs)
    seconds, stock_seconds = (
        statistics.median(use.seconds for use in process.rounds) for process in (one, other)
    )
    used, stock_used = (sum(use.cpu_seconds for use in process.rounds) for process in (one, other))
    cpu = used / stock_used
    start = one.start / other.start
    return (
        f'{seconds:>10.3f}{stock_seconds:>12.3f}{ratio:>8.2f}{cpu:>8.2f}'
        f'{one.start:>9.2f}{other.start:>9.2f}{start:>8.2f}'
    )


def main() -> None:
    args = _arguments()
    print(f'{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}, {args.rounds} pairs of rounds')
    print(
        f'{"":<28}{"s/round":>10}{"TFF tree":>12}{"ratio":>8}{"CPU":>8}'
        f'{"start s":>9}{"TFF tree":>9}{"ratio":>8}'
    )
    for size, tensors, context in itertools.product(args.sizes, args.tensors, args.contexts):
        for name in args.contenders:
            with _CONTEXTS[context]():
                row = _compare(name, _SIZES[size], int(tensors), args.rounds)
            print(f'{context:<6}{size:>6}{tensors:>5} {name:<10}{row}', flush=True)


def _arguments() -> argparse.Namespace:
    parser = measuring.parser(__doc__)
    for name, allowed in (('sizes', _SIZES), ('contexts', _CONTEXTS), ('contenders', _MECHANISMS)):
        parser.add_argument(
            f'--{name}',
            type=lambda text: text.split(','),
            default=list(allowed),
            help=f'among {", ".join(allowed)}, separated by commas',
        )
    parser.add_argument('--tensors', type=lambda text: text.split(','), default=['1', '100'])
    parser.add_argument('--rounds', type=int, default=15, help='measured pairs of rounds')
    return parser.parse_args()


if __name__ == '__main__':
    main()
