"""How costs grow with rounds, clients, population, parameters and participations.

  python -m benchmarks.growth                 # ten minutes on two cores
  python -m benchmarks.growth --only=report

Each row takes a cost at several sizes: CPU seconds of this process, or bytes. The exponent is the
slope of a line through the logarithms, over the upper half of the sizes. CPU seconds are the least
of some repetitions, since other work on the machine only adds to them. The command fails if an
exponent is 0.2 above what it must be at most.
"""

import dataclasses
import functools
import itertools
import math
import os
import pathlib
import sys
import tempfile
import time
import timeit
import tracemalloc
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import measuring
from benchmarks.peers import environments
from dpfl import Participation, ParticipationLog, accounting, aggregators, mechanisms
from dpfl.accounting.records import journal
from dpfl.mechanisms.optimize import banded
from dpfl.mechanisms.sensitivities import pattern_sensitivity, tree_sensitivity
from dpfl.runtime import contexts
from dpfl.simulation import population as devices
from dpfl.simulation import run_journal, training
from dpfl.simulation import sampling as samplers
from dpfl.tasks.text.client_texts import ClientTexts

_TOLERANCE = 0.2
_BLT = [0.999, 0.99, 0.9, 0.5], [0.1, 0.1, 0.1, 0.1]


@dataclasses.dataclass(frozen=True)
class Row:
    """A cost and how it may grow.

    Attributes:
      name: what is done.
      size: what grows, with its unit.
      sizes: increasing.
      unit: of the cost.
      most: largest exponent that is allowed.
      cost: of a size.
    """

    name: str
    size: str
    sizes: tuple[int, ...]
    unit: str
    most: float
    cost: Callable[[int], float]

    def measure(self) -> tuple[list[float], float]:
        """The costs and the exponent over the upper half of the sizes.

        Other work on the machine only adds to a cost. So what seems to grow too fast is measured
        once more, and the lower costs count.
        """
        upper = len(self.sizes) // 2
        costs = [math.inf] * len(self.sizes)
        for _ in range(2):
            costs = [
                min(cost, self.cost(size)) for cost, size in zip(costs, self.sizes, strict=True)
            ]
            slope, _ = np.polyfit(np.log(self.sizes[upper:]), np.log(costs[upper:]), 1)
            if slope <= self.most + _TOLERANCE:
                break
        return costs, float(slope)


def _cpu(work: Callable[[], object], repeats: int = 1) -> float:
    """Least CPU seconds of some repetitions."""
    return min(timeit.repeat(work, timer=time.process_time, repeat=repeats, number=1))


def _least(work: Callable[[], object]) -> float:
    return _cpu(work, 3)


def _turns(work: Callable[[range], object], first: int, rounds: int, repeats: int = 3) -> float:
    """Least CPU milliseconds of a round, over some stretches of `rounds` rounds from `first` on."""
    starts = iter(range(first, first + repeats * rounds, rounds))

    def stretch():
        start = next(starts)
        work(range(start, start + rounds))

    return 1e3 * _cpu(stretch, repeats) / rounds


def _peak(work: Callable[[], object]) -> float:
    """Largest number of bytes that NumPy and Python held at once."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def _running(make: Callable[[int], mechanisms.Mechanism], separation: int):
    """Milliseconds of a round: the sensitivities of all first rounds."""

    def cost(rounds: int) -> float:
        mechanism = make(rounds)
        tree_sensitivity._subtrees.cache_clear()
        tree_sensitivity._patterns.cache_clear()

        def work():
            for done in range(1, rounds + 1):
                mechanism.sensitivity(Participation(done, separation))

        return 1e3 * _cpu(work) / rounds

    return cost


def _banded(rounds: int, bands: int = 100) -> mechanisms.Banded:
    toeplitz = mechanisms.BandedToeplitz.fichtenberger(rounds, bands).coefficients
    inside = np.arange(bands) <= np.arange(rounds)[:, None]
    return mechanisms.Banded(np.where(inside, toeplitz, 0.0))


def _of_log(cost, mechanism: mechanisms.Mechanism, cohort: Callable[[], np.ndarray]) -> float:
    """Cost of the sensitivity of a log."""
    log = ParticipationLog(cohort() for _ in range(mechanism.rounds))
    log.by_client()
    return cost(lambda: pattern_sensitivity.of_log(mechanism, log))


def _report(make: Callable[[int], mechanisms.Mechanism], cost=_least):
    """Sensitivity of a log of ten clients a round; every client is in ten rounds on average."""

    def measure(rounds: int) -> float:
        rng = np.random.default_rng(1)
        return _of_log(cost, make(rounds), lambda: rng.integers(0, rounds, 10))

    return measure


def _many(make: Callable[[int], mechanisms.Mechanism]):
    """Sensitivity of a log of 5,000 clients over 2,000 rounds, by participations of each."""

    def measure(participations: int) -> float:
        rng, size = np.random.default_rng(1), 5_000 * participations // 2_000
        return _of_log(_least, make(2_000), lambda: rng.permutation(5_000)[:size])

    return measure


def _sampler(kind: str):
    """Milliseconds of a cohort of 1,000 clients on average, after the first."""

    def measure(population: int) -> float:
        groups = population // 1_000
        sampler: samplers.Sampler
        if kind == 'order':
            schema = Participation(501, groups)
            sampler = samplers.MinSeparationSampler(schema, population, 1_000)
        else:
            sampling = {
                'bins': lambda: accounting.BallsInBins(population=population, groups=groups),
                'uniform': lambda: accounting.WithoutReplacement(population=population),
                'poisson': lambda: accounting.Poisson(population=population),
                'cyclic': lambda: accounting.CyclicPoisson(population=population, groups=10),
            }[kind]()
            sampler = samplers.RandomSampler(sampling, 501, 1_000)
        sampler.cohort(0)
        cost = _turns(lambda rounds: [sampler.cohort(t) for t in rounds], 1, 100, 5)
        return max(cost, 0.01)  # Below ten microseconds the clock and the caches decide.

    return measure


def _timer(population: int) -> float:
    """Milliseconds of a round of devices with timers, after the first."""
    rounds = devices.Population(population=population, clients_per_round=1_000).rounds()
    next(rounds)
    return _turns(lambda numbers: [next(rounds) for _ in numbers], 1, 30, 7)


def _round(done: int) -> float:
    """CPU milliseconds of a round of a BLT's aggregator, after so many rounds."""
    plan = measuring.plan(_blt(2_000), 2)
    updates = [np.ones(10_000, np.float32)] * 2
    with contexts.local_runtime():
        process = aggregators.build_aggregator(plan).create(tff.to_type((np.float32, [10_000])))
        state = process.initialize()

        def work(rounds):
            nonlocal state
            for _ in rounds:
                state = process.next(state, updates).state

        work(range(done))
        return _turns(work, done, 20, 5)


def _copies(mechanism: str, parameters: int = 10_000_000, clients: int = 2) -> float:
    """Copies of the model at the peak of a round, in a process of its own."""
    command = [sys.executable, '-m', 'benchmarks.round_memory', f'--mechanism={mechanism}']
    command += [f'--parameters={parameters}', f'--clients={clients}']
    return float(environments.call(command, timeout=600.0))


def _texts(records: int) -> float:
    """Bytes of memory at the peak, while texts are sorted by client."""
    return _peak(lambda: ClientTexts(itertools.repeat(('somebody', 'some text'), records)))


def _supplied(mechanism: mechanisms.Mechanism, parameters: int, resumed: bool):
    """CPU milliseconds of the row of the last round, in order or by a new ring."""
    plan = measuring.plan(mechanism, 10)
    query = aggregators.build_query(
        plan, 10, record_specs=tf.TensorSpec([parameters]), supplied_noise=True
    )
    state, zero = query.initial_global_state(), tf.zeros([parameters])
    with aggregators.build_noise_ring(plan, show_progress=False) as ring:
        costs = []
        for _ in range(mechanism.rounds):
            start = time.process_time()
            supplied = ring.supply(state, ())
            costs.append(time.process_time() - start)
            before, (_, state, _) = state, query.get_noised_result(zero, supplied)
    if not resumed:
        return 1e3 * min(costs[-15:])

    def resume():
        with aggregators.build_noise_ring(plan, show_progress=False) as ring:
            ring.supply(before, ())

    return 1e3 * _cpu(resume, 7)


def _line(lines: int, clients: int = 2) -> float:
    """Milliseconds of what is written before and after a round, after so many lines."""
    digest, cohort = '0' * 64, np.arange(clients) + 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        found = run_journal.RunJournal(pathlib.Path(folder))
        found.append(_PLANNED)
        found.append(journal.Built(record={'rounds': lines}, configuration={}, data={}))

        def work(rounds):
            for t in rounds:
                digests = {'model': digest, 'data': digest, 'noise': journal.digest([t])}
                drawn = journal.cohort_digest(cohort)
                found.begin(journal.Began(round=t, cohort=drawn, **digests), cohort)
                digests = {'model': digest, 'state': digest}
                found.release(journal.Released(round=t, metrics={'loss': 0.5}, **digests), 0.5)

        work(range(lines // 2))
        return _turns(work, lines // 2, 50, 9)


def _checkpoint(rounds: int) -> float:
    """Bytes of the last checkpoint of a small run."""
    values = {
        'task': 'synthetic_text',
        'vocabulary_size': 40,
        'sentence_length': 5,
        'model': 'micro',
        'population': 2000,
        'clients_per_round': 20,
        'client_max_batches': 1,
        'delta': 1e-6,
        'mechanism': 'blt',
        'strategy': 'blt_b100',
        'min_separation': 20,
        'noise_multiplier': 1.0,
        'rounds': rounds,
    }
    config = training.TrainConfig().with_values(values)
    with tempfile.TemporaryDirectory() as folder:
        run = training.train(config, pathlib.Path(folder, 'run'), progress=False).directory
        return float(max((run / 'checkpoints').glob('*.checkpoint')).stat().st_size)


def _optimized(rounds: int) -> float:
    """Bytes of the search for 32 bands, in its first steps."""
    steps, banded._MAX_ITERATIONS = banded._MAX_ITERATIONS, 2
    try:
        return _peak(lambda: mechanisms.optimize_banded(Participation(rounds, 32), 32))
    finally:
        banded._MAX_ITERATIONS = steps


def _blt(rounds: int) -> mechanisms.Blt:
    return mechanisms.Blt(rounds, *_BLT)


_PLANNED = journal.Planned(settings={}, files={}, date='2026-11-26', version='0.1.0', keys='0' * 64)
_ROUNDS = 'rounds'
_FEW = (1_000, 2_000, 4_000, 8_000)
# Beyond what the caches hold: where a size leaves one of them, times grow faster than the work.
_LONG = (100_000, 200_000, 400_000, 800_000)
_ROWS = (
    Row('running: tree, separation 10', _ROUNDS, _FEW, 'ms a round', 0.0,
        _running(mechanisms.BinaryTree, 10)),
    Row('running: 100 bands', _ROUNDS, _FEW, 'ms a round', 0.0, _running(_banded, 100)),
    Row('running: BLT', _ROUNDS, _FEW, 'ms a round', 1.0, _running(_blt, 100)),
    *(
        Row(f'report: {name}', _ROUNDS, _LONG, 's', 1.0, _report(make))
        for name, make in (
            ('BLT', _blt),
            ('tree', mechanisms.BinaryTree),
            ('100 bands', lambda n: mechanisms.BandedToeplitz.fichtenberger(n, 100)),
        )
    ),
    Row('report: tree', _ROUNDS, _LONG, 'bytes', 1.0, _report(mechanisms.BinaryTree, _peak)),
    Row('report: BLT', 'participations', (50, 100, 200, 400), 's', 1.0, _many(_blt)),
    Row('report: tree', 'participations', (50, 100, 200, 400), 's', 1.0,
        _many(mechanisms.BinaryTree)),
    *(
        Row(f'cohort: {kind}', 'population', (100_000, 300_000, 1_000_000, 3_000_000),
            'ms', 0.0, _sampler(kind))
        for kind in ('order', 'uniform', 'poisson', 'cyclic', 'bins')
    ),
    Row('cohort: timer', 'population', (100_000, 200_000, 400_000, 800_000), 'ms', 0.0, _timer),
    Row('a round: BLT of 4', 'rounds done', (150, 450, 1_350), 'ms', 0.0, _round),
    Row('peak of a round: Gaussian', 'parameters', (10_000_000, 15_000_000, 20_000_000),
        'copies', 0.0, functools.partial(_copies, 'gaussian')),
    Row('peak of a round: BLT of 4', 'parameters', (10_000_000, 15_000_000, 20_000_000),
        'copies', 0.0, functools.partial(_copies, 'blt')),
    Row('peak of a round: Gaussian', 'clients', (2, 10, 50), 'copies', 0.0,
        lambda clients: _copies('gaussian', clients=clients)),
    Row('checkpoint', _ROUNDS, (20, 40, 80), 'bytes', 0.1, _checkpoint),
    Row('ring: resumed, inverse of 10 bands', _ROUNDS, (25, 50, 100, 200), 'ms', 0.0,
        lambda n: _supplied(mechanisms.BandedInverse.square_root(n, 10), 100_000, True)),
    Row('ring: resumed, 10 bands', _ROUNDS, (25, 50, 100, 200), 'ms', 1.0,
        lambda n: _supplied(mechanisms.BandedToeplitz.fichtenberger(n, 10), 100_000, True)),
    Row('ring: a round, 10 bands', 'parameters', (1_000, 10_000, 100_000, 1_000_000), 'ms', 1.0,
        lambda d: _supplied(mechanisms.BandedToeplitz.fichtenberger(30, 10), d, False)),
    Row('ring: a round, 30,000 parameters', 'bands', (10, 20, 40, 80), 'ms', 0.0,
        lambda b: _supplied(mechanisms.BandedToeplitz.fichtenberger(b + 20, b), 30_000, False)),
    Row('journal: a round', 'lines', (1_000, 3_000, 9_000, 27_000), 'ms', 0.0, _line),
    Row('journal: a round', 'clients', (1_000, 6_500, 50_000, 400_000), 'ms', 1.0,
        lambda clients: _line(1_000, clients)),
    Row('optimize_banded, 32 bands', _ROUNDS, (4_000, 8_000, 16_000, 32_000), 'bytes', 1.0,
        _optimized),
    Row('optimize_banded_toeplitz, a sixth of the rounds', _ROUNDS,
        (8_000, 16_000, 32_000, 64_000), 's', 1.0,
        lambda n: _cpu(
            lambda: mechanisms.optimize_banded_toeplitz(Participation(n, n // 6, 6), n // 6))),
    Row('texts by client', 'records', (10_000, 20_000, 40_000), 'bytes', 1.0, _texts),
    Row('sensitivity: BLT', _ROUNDS, (1_000_000, 2_000_000, 4_000_000), 's', 1.0,
        lambda n: _cpu(lambda: _blt(n).sensitivity(Participation(n, 100)), 3)),
    Row('optimize_blt', _ROUNDS, (1_000, 10_000, 100_000), 's', 0.0,
        lambda n: _cpu(lambda: mechanisms.optimize_blt(Participation(n, n // 6, 6), 4))),
)  # fmt: skip


def main() -> None:
    parser = measuring.parser(__doc__)
    parser.add_argument('--only', default='', help='rows whose name contains this text')
    flags = parser.parse_args()
    rows = [row for row in _ROWS if flags.only in row.name]
    if not rows:
        parser.error(f'--only={flags.only}: no row has such a name')
    measuring.print_head('cost', 'by', 'sizes', 'figures', 'exponent', 'at most')
    failed = []
    os.environ['DPFL_CACHE_DIR'] = ''  # Optimisers compute.
    for row in rows:
        costs, exponent = row.measure()
        sizes = f'{row.sizes[0]:,} to {row.sizes[-1]:,}'
        figures = ', '.join(f'{value:.3g}' for value in costs)
        cells = (row.name, row.size, sizes, f'{figures} {row.unit}', f'{exponent:.2f}')
        measuring.print_row(*cells, f'{row.most:g}')
        if exponent > row.most + _TOLERANCE:
            failed.append(row.name)
    if failed:
        sys.exit(f'grow faster than they must: {", ".join(failed)}')


if __name__ == '__main__':
    main()
