"""Audits the aggregator of every mechanism with many seeds: is any claim exceeded, how close is it?

  python -m benchmarks.audits [--repeats=20] [--trials=8192] [--only=blt]
  python -m benchmarks.audits --runs [--repeats=200] [--only=quickstart]

For every case, over the seeds 0, 1, ..: how often a lower bound was above the claim, the median of
the bounds divided by the claim, and the median seconds of an audit. At confidence 95 % each of the
bounds on mu and epsilon may exceed the claim in one of twenty audits; because rates have whole
numbers of errors and two attackers share the error, it is less often. Exits with status 1 if it is
more often than a chance of one in a thousand allows. docs/reference/audits.md has the table.

With --runs it plants faults into audited training runs, one at a time, and says what the audit
found of each. For every setting it also tests the sums of --repeats correct runs, which differ in
their noise: the aggregator is that of the run, and one client sends the same update in all rounds.
Exits with status 1 if a fault is not found or a correct run is refuted.
docs/reference/audits.md has the table.
"""

import contextlib
import dataclasses
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
import tqdm
from scipy import stats

from benchmarks import measuring
from dpfl import Participation, _setting_texts, accounting, aggregators, mechanisms
from dpfl.accounting.measured.sums import SumTests
from dpfl.aggregators import build, clipping, exact_sum, query
from dpfl.aggregators.noise import correlated, draws
from dpfl.auditing import aggregator_audit, canaries, one_shot
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.simulation.training import TrainConfig, train
from tests import presets

_SCHEMA = Participation(64, 16)
_DELTA = 1e-6
# Coordinates of a run with rounding.
_ROTATED = 1024
_QUICKSTART = pathlib.Path(__file__).parents[1] / 'configs' / 'quickstart.flags'
# Canaries of the runs of which only the sums are tested.
_FEW_CANARIES = 40


def main() -> None:
    parser = measuring.parser(__doc__)
    parser.add_argument('--runs', action='store_true', help='faults in training runs')
    parser.add_argument('--repeats', type=int, help='audits of each case: 20, with --runs 200')
    parser.add_argument('--trials', type=int, default=8192, help='trials of each audit')
    parser.add_argument('--only', default='', help='only cases whose name begins with this text')
    args = parser.parse_args()
    if args.runs:
        sys.exit(_faults_in_runs(args.only, args.repeats or 200))
    args.repeats = args.repeats or 20
    cases = {name: make for name, make in CASES.items() if name.startswith(args.only)}
    measuring.print_head('case', 'exact', 'exceeded', 'reachable', 'mu_lower', 'seconds')
    total = 0
    with tqdm.tqdm(total=len(cases) * args.repeats, unit=' audits', disable=None) as bar:
        for name, make in cases.items():
            row, exceeded = measured(make(), args.repeats, args.trials, bar.update)
            measuring.print_row(name, *row)
            total += exceeded
    audits = len(cases) * args.repeats
    # Each of the two bounds, on mu and on epsilon, has the error.
    chance = stats.binom.sf(total - 1, audits, 2 * (1 - aggregator_audit.CONFIDENCE))
    print(f'exceeded: {total} of {audits}; so many or more by chance: at most {chance:.2g}')
    sys.exit(chance < 1e-3)


@dataclasses.dataclass(frozen=True)
class Case:
    """A plan, and how it is audited."""

    plan: accounting.PrivacyPlan
    how: dict[str, object] = dataclasses.field(default_factory=dict)


def measured(
    case: Case, repeats: int, trials: int, on_audit: Callable[[], object]
) -> tuple[list[str], int]:
    """The cells of a case, and how many audits exceeded the claim."""
    found, seconds = [], []
    for seed in range(repeats):
        config = AggregatorAuditConfig(trials=trials, seed=seed, **case.how)
        start = time.perf_counter()
        found.append(aggregator_audit.audit(case.plan, config, _DELTA))
        seconds.append(time.perf_counter() - start)
        on_audit()
    claim = case.plan.mu
    exceeded = sum(each.exceeds_claim for each in found)
    cells = [
        'yes' if case.plan.sensitivity_is_exact else 'no',
        f'{exceeded} of {repeats}',
        f'{found[0].mu_of_canaries / claim:.3f}',
        f'{statistics.median(each.mu_lower for each in found) / claim:.3f}',
        f'{statistics.median(seconds):.1f}',
    ]
    return cells, exceeded


def _plan(mechanism: mechanisms.Mechanism, **fields) -> accounting.PrivacyPlan:
    """A plan with mu = 1, but for what the fields change."""
    noise = {'participation': _SCHEMA, 'noise_multiplier': mechanism.sensitivity(_SCHEMA)}
    return measuring.plan(mechanism, aggregator_audit.COORDINATES, **(noise | fields))


def _blt() -> mechanisms.Mechanism:
    return mechanisms.optimize_blt(_SCHEMA, num_buffers=3)


def _restarted() -> mechanisms.Mechanism:
    return mechanisms.Restarted(_blt(), (20, 40), _SCHEMA.rounds)


def _rounded(scale: float) -> dict[str, object]:
    rounding = mechanisms.Discretization(scale, _ROTATED, 1.0)
    return dict(discretization=rounding, clients_per_round=_ROTATED)


_ROUNDS = _SCHEMA.rounds
CASES: dict[str, Callable[[], Case]] = {
    'gaussian': lambda: Case(_plan(mechanisms.Identity(_ROUNDS))),
    'tree, nodes': lambda: Case(_plan(mechanisms.BinaryTree(_ROUNDS))),
    'tree, prefix sums': lambda: Case(_plan(mechanisms.BinaryTree(_ROUNDS, 'prefix_sums'))),
    'honaker_tree, nodes': lambda: Case(_plan(mechanisms.HonakerTree(_ROUNDS))),
    'honaker_tree, prefix sums': lambda: Case(
        _plan(mechanisms.HonakerTree(_ROUNDS, 'prefix_sums'))
    ),
    'full_honaker_tree': lambda: Case(_plan(mechanisms.FullHonakerTree(_ROUNDS))),
    'banded': lambda: Case(_plan(mechanisms.optimize_banded(_SCHEMA, 16))),
    'banded_toeplitz': lambda: Case(_plan(mechanisms.optimize_banded_toeplitz(_SCHEMA, 16))),
    'banded_inverse': lambda: Case(_plan(mechanisms.BandedInverse.square_root(_ROUNDS, 4))),
    'blt': lambda: Case(_plan(_blt())),
    'blt, resumed': lambda: Case(_plan(_blt()), {'resume_after': 20}),
    'blt, replace_one': lambda: Case(_plan(_blt(), adjacency='replace_one')),
    'blt, restarted': lambda: Case(_plan(_restarted())),
    'blt, restarted, adaptive clip': lambda: Case(
        _plan(_restarted(), adaptive_clip=accounting.AdaptiveClip(count_stddev=20.0))
    ),
    'blt, hardened': lambda: Case(_plan(_blt(), noise='hardened')),
    'blt, rounding, scale 1e6': lambda: Case(_plan(_blt(), **_rounded(1e6))),
    'blt, rounding, scale 300': lambda: Case(_plan(_blt(), **_rounded(300.0))),
}


def _with_plan(change: dict[str, Callable[[Any], Any]]) -> Any:
    """Another plan for the query that adds the noise."""
    make = query.CorrelatedNoiseQuery.__init__

    def changed(self, plan, *args, **kwargs):
        fields = {name: new(getattr(plan, name)) for name, new in change.items()}
        make(self, dataclasses.replace(plan, **fields), *args, **kwargs)

    return mock.patch.object(query.CorrelatedNoiseQuery, '__init__', changed)


def _with_noise(share: float) -> Any:
    return _with_plan({'noise_multiplier': lambda multiplier: share * multiplier})


def _with_clip(clip: Callable[[Any, Any], Any]) -> Any:
    """Another clip, whose result nothing bounds."""

    def clipped(_, params, record):
        return tf.nest.map_structure(lambda leaf: tf.cast(leaf, tf.float64), clip(record, params))

    return mock.patch.object(exact_sum.ExactSumQuery, 'preprocess_record', clipped)


def _each_tensor_alone(record: Any, norm: Any) -> Any:
    return tf.nest.map_structure(lambda leaf: clipping.clip_flat(leaf, norm), record)


def _on_the_first_tensor() -> Any:
    next_noise = correlated.next_noise

    def changed(*args, **context):
        noise, state = next_noise(*args, **context)
        first, *others = tf.nest.flatten(noise)
        leaves = [first, *map(tf.zeros_like, others)]
        return tf.nest.pack_sequence_as(noise, leaves), state

    return mock.patch.object(correlated, 'next_noise', changed)


def _on_half_of_the_coordinates() -> Any:
    """Every second coordinate has no noise, the others have twice the variance."""
    draw = draws.normal
    return mock.patch.object(
        draws, 'normal', lambda key, size: draw(key, size) * (np.arange(size) % 2 * 2**0.5)
    )


def _same_key() -> Any:
    """The rounds of a pair, 0 and 1, 2 and 3, .., have the same key."""
    of_round = draws.of_round
    return mock.patch.object(
        draws, 'of_round', lambda root, t, context: of_round(root, t // 2, np.zeros(1))
    )


def _other_denominator() -> Any:
    make = build._Mean
    return mock.patch.object(
        build, '_Mean', lambda inner, denominator: make(inner, 2 * denominator)
    )


# How to plant a fault into a run, at one place, and the fault whose power an audit states.
FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    'half the noise': (lambda: _with_noise(0.5), 'half the noise'),
    'a third of the noise': (lambda: _with_noise(1 / 3), 'half the noise'),
    'no noise': (lambda: _with_noise(0.0), 'no noise'),
    'noise on the first tensor only': (_on_the_first_tensor, 'noise on the first tensor only'),
    'noise of another law: half of the coordinates': (
        _on_half_of_the_coordinates,
        'half the noise',
    ),
    'the same noise in two rounds': (_same_key, 'the same noise in two rounds'),
    'no clipping': (lambda: _with_clip(lambda record, norm: record), 'no clipping'),
    'clip norm times 10': (
        lambda: _with_clip(lambda record, norm: clipping.clip_flat(record, 10 * norm)),
        'clip norm times 10',
    ),
    'each tensor clipped alone': (
        lambda: _with_clip(_each_tensor_alone),
        'each tensor clipped alone',
    ),
    'independent noise': (
        lambda: _with_plan({'mechanism': lambda own: mechanisms.Identity(own.rounds)}),
        'half the noise',
    ),
    'twice the denominator': (_other_denominator, 'half the noise'),
}
# Changes of the quickstart.
SETTINGS = {
    'quickstart': {},
    'epsilon 8': {'target_epsilon': '8'},
    '3 participations': {'min_separation': '10', 'max_participations': '3'},
}


def setting(name: str) -> TrainConfig:
    """The configuration of an audited run."""
    texts = presets.flags(_QUICKSTART)
    fast = {'eval_every': texts['rounds'], 'eval_clients': '4', 'audit': 'true'}
    return _setting_texts.with_texts(TrainConfig(), {**texts, **fast, **SETTINGS[name]})


@contextlib.contextmanager
def audited(config: TrainConfig, fault: str = '') -> Iterator[Any]:
    """The result of a run with a fault; without one for an empty name."""
    plant = FAULTS[fault][0]() if fault else contextlib.nullcontext()
    with plant, tempfile.TemporaryDirectory() as folder:
        yield train(config, pathlib.Path(folder) / 'run', progress=False)


def _faults_in_runs(only: str, repeats: int) -> int:
    """Prints the table of faults in runs; returns the exit status."""
    measuring.print_head(
        'setting', 'fault', 'verdict', 'power', 'tests that failed', 'mu_lower / mu', 'canaries'
    )
    names = [name for name in SETTINGS if name.startswith(only)]
    is_bad = False
    with tqdm.tqdm(total=len(names) * (len(FAULTS) + 1), unit=' runs', disable=None) as bar:
        for name in names:
            for fault in ('', *FAULTS):
                with audited(setting(name), fault) as result:
                    found = result.report.measured
                    if not fault:
                        plan, weights = result.report.plan, result.weights
                failed = ', '.join(each.test for each in found.sums.failures) or 'none'
                power = f'{found.sums.power[FAULTS[fault][1]]:.3f}' if fault else ''
                ratio = f'{found.releases.mu_lower:.3f} / {found.mu_claimed:.3f}'
                row = [name, fault or 'none', found.verdict, power, failed, ratio]
                measuring.print_row(*row, found.canary_verdict)
                is_bad |= (found.verdict == 'refuted') != bool(fault)
                bar.update()
            tests = tested_sums(plan, [np.shape(each) for each in weights], range(repeats))
            refuted = sum(bool(each.failures) for each in tests)
            print(f'{name}: {refuted} of {repeats} correct runs refuted', flush=True)
            is_bad |= refuted > 0
    return int(is_bad)


def tested_sums(
    plan: accounting.PrivacyPlan, shapes: Sequence[Sequence[int]], seeds: Iterable[int]
) -> Iterator[SumTests]:
    """The tests of the sums of runs that an audit makes, without training.

    Args:
      plan: of the runs.
      shapes: of the tensors of an update. One client sends ones in all rounds.
      seeds: of the noise of each run.
    """
    weights = [np.zeros(shape) for shape in shapes]
    design = canaries.design(plan, _FEW_CANARIES, 0, sum(each.size for each in weights))
    audit = one_shot.OneShotAudit(design, trained=lambda each: each)
    specs, updates = [[make(shape) for shape in shapes] for make in (tf.TensorSpec, tf.ones)]

    def build(seed: int) -> Any:
        return aggregators.build_query(plan, seed, record_specs=specs, canaries=design.added())

    run_query = build(0)

    @tf.function
    def step(state):
        params = run_query.derive_sample_params(state)
        total = run_query.initial_sample_state(updates)
        total = run_query.accumulate_record(params, total, updates)
        return run_query.get_noised_result(total, state)[1]

    for seed in seeds:
        state = build(seed).initial_global_state()
        for _ in range(plan.participation.rounds):
            state = step(state)
        yield one_shot.check_sums(audit.round_sums(weights, state, plan), plan)


if __name__ == '__main__':
    main()
