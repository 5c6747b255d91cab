"""One list of plans, one list of properties: what a round releases, in an eager loop and in TFF."""

import collections
import dataclasses
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from tests import oracles, redrawn
from tests.aggregators import rounds
from tests.sizes import standard

_ROUNDS, _CLIENTS, _CAP = 4, 4, 10.0
_NESTED = tff.to_type(
    collections.OrderedDict(
        b=tff.TensorType(np.float32, [2, 3]),
        a=[tff.TensorType(np.float32), tff.TensorType(np.float32, [4])],
    )
)


@dataclasses.dataclass(frozen=True)
class _Variant:
    """A kind of plan, and how its aggregator is built.

    Attributes:
      estimator: kind, and weight or None, of the plan's estimator.
      weighted: whether records have numbers of examples.
      scale: of a discretization, if the sums are integers.
      schedule: whether the clip norm changes after the first and third round.
    """

    estimator: tuple[str, float | None] = ('fixed', 3.0)
    weighted: bool = False
    adaptive: bool = False
    per_layer: bool = False
    scale: float | None = None
    secure_sum: bool = False
    schedule: bool = False
    mechanism: mechanisms.Mechanism = mechanisms.Restarted(mechanisms.BinaryTree(2), (2,), _ROUNDS)

    def plan(self, specs, **changes):
        size = sum(int(np.prod(spec.shape)) for spec in tf.nest.flatten(specs))
        return rounds.plan(
            self.mechanism,
            _CLIENTS,
            adaptive_clip=accounting.AdaptiveClip(count_stddev=2.0) if self.adaptive else None,
            discretization=Discretization(self.scale, size, 0.5) if self.scale else None,
            estimator=accounting.Estimator(*self.estimator, _CAP if self.weighted else None),
            clip_schedule=((1, 2.0), (3, 0.25)) if self.schedule else (),
            **changes,
        )

    @property
    def clip(self):
        return aggregators.PerLayer() if self.per_layer else aggregators.clip_flat

    def record_specs(self, specs):
        if self.weighted:
            return aggregators.WeightedRecord(specs, tf.TensorSpec([]))
        return specs

    def query(self, specs, seed=3, **changes):
        return aggregators.build_query(
            self.plan(specs, **changes),
            seed,
            record_specs=self.record_specs(specs),
            clip=self.clip,
        )

    def run(self, query, state, cohorts, specs):
        """As `rounds.run`, with the clip norm of each round before the state."""
        rows, norms = [], []
        for cohort in cohorts:
            norms.append(rounds.clip_norm(state))
            records = [
                aggregators.WeightedRecord(update, np.float32(n)) if self.weighted else update
                for update, n in cohort
            ]
            row, state = rounds.run(query, state, [records], self.record_specs(specs))
            rows.append(row[0])
        return np.array(rows), np.array(norms), state

    def expected(self, cohort, clip_norm, size):
        """The mean without noise, by the formula, in float64."""
        weights = [min(max(n, 0) / _CAP, 1) if self.weighted else 1.0 for _, n in cohort]
        total = np.zeros(size)
        for weight, (update, _) in zip(weights, cohort, strict=True):
            leaves = [np.ravel(leaf).astype(np.float64) for leaf in tf.nest.flatten(update)]
            if not rounds.norm(update) < 1e19:  # Counts as zero.
                continue
            groups = leaves if self.per_layer else [np.concatenate(leaves)]
            bound = clip_norm / np.sqrt(len(groups))
            clipped = [
                group * min(1, bound / max(np.linalg.norm(group), 1e-99)) for group in groups
            ]
            total = total + weight * np.concatenate(clipped)
        kind, weight = self.estimator
        return total / max(weight or _CLIENTS, sum(weights) if kind == 'clipped' else 0)

    def tolerance(self, size):
        """Largest error of rounding to integers, for each of the clients, or of float32."""
        padded = 1 << (size - 1).bit_length()
        return 2e-5 + (_CLIENTS * np.sqrt(padded) / self.scale / 3 if self.scale else 0.0)


# With each kind of state between rounds.
_BANDED = mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, 3)
_BANDED_INVERSE = mechanisms.BandedInverse.square_root(_ROUNDS, 3)
_VARIANTS = {
    'plain': _Variant(estimator=('fixed', None), mechanism=rounds.blt(_ROUNDS)),
    'independent': _Variant(mechanism=mechanisms.Identity(_ROUNDS)),
    'schedule': _Variant(schedule=True, mechanism=mechanisms.Identity(_ROUNDS)),
    'per layer': _Variant(per_layer=True, mechanism=mechanisms.HonakerTree(_ROUNDS)),
    'adaptive': _Variant(adaptive=True),
    'adaptive per layer': _Variant(adaptive=True, per_layer=True),
    'adaptive clipped denominator': _Variant(adaptive=True, estimator=('clipped', 3.0)),
    'weighted': _Variant(weighted=True, mechanism=_BANDED),
    'weighted clipped denominator': _Variant(
        weighted=True, estimator=('clipped', 1.5), mechanism=_BANDED_INVERSE
    ),
    'discretized': _Variant(scale=1e3),
    'discretized schedule': _Variant(
        scale=1e3, schedule=True, mechanism=mechanisms.Identity(_ROUNDS)
    ),
    'secure': _Variant(scale=1e3, secure_sum=True),
    'secure with 64 bits': _Variant(scale=1e10, secure_sum=True),
    'secure weighted adaptive per layer': _Variant(
        scale=1e3, secure_sum=True, weighted=True, adaptive=True, per_layer=True
    ),
}
# The query of 'secure' is that of 'discretized'.
_QUERIES = [name for name in _VARIANTS if name != 'secure']


def _names(names, *quick):
    """Parameters of a test, which is quick for some of them."""
    marked = [each if each in quick else standard(each) for each in names]
    return pytest.mark.parametrize('name', marked)


def _updates(specs, count, seed=0):
    """Updates and numbers of examples: of a client within the norm, and of others beyond it."""
    rng = np.random.default_rng(seed)
    # A weight below 1 shows whether it is put on the update before or after the clip.
    clients = [(0.01, 3.0), (1.0, 40.0), (30.0, 4.0), (0.2, 0.0)][:count]
    return [
        (
            tf.nest.map_structure(
                lambda spec, scale=scale: np.asarray(
                    scale * rng.normal(size=spec.shape), spec.dtype.as_numpy_dtype
                ),
                specs,
            ),
            examples,
        )
        for scale, examples in clients
    ]


_SPECS = tff.types.type_to_tf_tensor_specs(_NESTED)


def _cohorts():
    """A full cohort, none, one client, and clients whose updates have no finite norm."""
    broken = _updates(_SPECS, 4, seed=4)
    for (update, _), bad in zip(broken[1:], (np.nan, -np.inf, 1e30), strict=True):
        update['a'][1][2] = bad
    return [_updates(_SPECS, 4, seed=1), [], _updates(_SPECS, 1, seed=3), broken]


@functools.cache
def _released(name):
    """Released rows of all rounds, and the clip norms and state that belong to them."""
    variant = _VARIANTS[name]
    query = variant.query(_SPECS)
    return variant.run(query, query.initial_global_state(), _cohorts(), _SPECS)


@pytest.mark.parametrize('name', _QUERIES)
def test_a_release_is_the_formula_and_the_noise_of_the_matrix(name):
    variant = _VARIANTS[name]
    rows, norms, state = _released(name)
    if not variant.adaptive:
        np.testing.assert_allclose(norms, [0.5, 2.0, 2.0, 0.25] if variant.schedule else 0.5)
    plan = variant.plan(_SPECS)
    mean = np.array([variant.expected(*each, 11) for each in zip(_cohorts(), norms, strict=True)])
    noise = oracles.streamed_by_solving(plan.mechanism, redrawn.vectors(state, _SPECS))
    # What one client moves: plan.denominator already counts that a denominator may move.
    noise *= plan.update_noise_multiplier * norms[:, None] / plan.denominator
    tolerance = variant.tolerance(11) * np.maximum(1, norms[:, None] / 0.5)
    assert (np.abs(rows - mean - noise) <= tolerance).all()
    # Each coordinate has noise of its own.
    assert len(np.unique(noise)) == noise.size and np.abs(noise).min() > 0


# The quick ones have a state of each kind.
@_names(_QUERIES, 'plain', 'adaptive', 'secure weighted adaptive per layer')
def test_stopping_and_continuing_changes_no_bit(name):
    """Nor does it need the seed: the keys are in the state."""
    variant, cohorts = _VARIANTS[name], _cohorts()
    query, again = variant.query(_SPECS), variant.query(_SPECS, seed=None)
    first, _, state = variant.run(query, query.initial_global_state(), cohorts[:2], _SPECS)
    saved = tf.nest.map_structure(np.asarray, state)
    second, _, _ = variant.run(again, saved, cohorts[2:], _SPECS)
    np.testing.assert_array_equal(np.concatenate([first, second]), _released(name)[0])


@pytest.mark.tff
@pytest.mark.usefixtures('local_runtime')
@_names(_VARIANTS, 'plain', 'discretized', 'weighted clipped denominator')
def test_tff_releases_what_an_eager_loop_releases(name):
    variant = _VARIANTS[name]
    process, next_round = _in_tff(variant)
    state, rows = process.initialize(), []
    for cohort in _cohorts():
        result, state, measurements = next_round(state, cohort)
        rows.append(rounds.flat(result))
    # Sums of integers do not depend on the order of clients; sums of floats only by rounding.
    np.testing.assert_allclose(rows, _released(name)[0], rtol=1e-5, atol=1e-6)
    _check_measurements(variant, measurements)
    if variant.scale:
        with pytest.raises(Exception, match='larger than the planned one'):
            next_round(process.initialize(), [*_updates(_SPECS, 4), *_updates(_SPECS, 1)])
    with pytest.raises(Exception, match='The privacy plan has 4 rounds, and all are done'):
        next_round(state, _updates(_SPECS, 1))


def _in_tff(variant):
    """A process, and a function of state and cohort that runs a round of it."""
    weights = [tff.TensorType(np.float32)] if variant.weighted else []
    build = (
        aggregators.build_weighted_aggregator if variant.weighted else aggregators.build_aggregator
    )
    factory = build(variant.plan(_SPECS), 3, clip=variant.clip, secure_sum=variant.secure_sum)
    process = factory.create(_NESTED, *weights)
    run = process.next
    if variant.secure_sum:
        tff.test.assert_not_contains_unsecure_aggregation(run)
        # What the context of `tff.backends.test` does before it executes.
        run = tff.backends.test.replace_secure_intrinsics_with_bodies(run)

    def next_round(state, cohort):
        columns = [[update for update, _ in cohort], [np.float32(n) for _, n in cohort]]
        output = run(state, *columns[: 1 + variant.weighted])
        if variant.secure_sum:  # The replaced operators lose the container.
            return output['result'], output['state'], output['measurements']
        return output.result, output.state, output.measurements

    return process, next_round


def _check_measurements(variant, measurements):
    """Only numbers that have noise, or follow from the plan, are measured."""
    metrics, plan = measurements['dp_query_metrics'], variant.plan(_SPECS)
    assert not tf.nest.flatten(measurements['dp'])  # Of the sum.
    names = {'tree_agg_dpftrl_clip'}
    if variant.adaptive:
        names = {'current_clip', 'estimate_clip', 'clip_counts'}
    elif not variant.schedule:
        assert metrics['tree_agg_dpftrl_clip'] == plan.clip_norm
        assert metrics['noise_stddev'] == pytest.approx(plan.stddev)
    assert set(metrics) == names | {'round', 'noise_stddev'}
    assert metrics['round'] == _ROUNDS


@pytest.mark.tff
@pytest.mark.usefixtures('local_runtime')
@pytest.mark.parametrize(
    'noise, mechanism',
    [
        ('default', _BANDED_INVERSE),
        ('hardened', rounds.blt(_ROUNDS)),
    ],
)
def test_tff_releases_what_an_eager_loop_releases_with_the_noise_of_a_ring(noise, mechanism):
    plan = rounds.plan(mechanism, _CLIENTS, noise=noise)
    arguments = dict(seed=7, supplied_noise=True)
    query = aggregators.build_query(plan, record_specs=_SPECS, **arguments)
    process = aggregators.build_aggregator(plan, **arguments).create(_NESTED)
    cohorts = [[update for update, _ in cohort] for cohort in _cohorts()]
    state, rows = process.initialize(), []
    with aggregators.build_noise_ring(plan) as ring:
        expected, _ = rounds.run(query, None, cohorts, _SPECS, ring)
        for cohort in cohorts:
            output = process.next(ring.supply(state, cohort), cohort)
            state = output.state
            rows.append(rounds.flat(output.result))
    np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)


def _of(*shapes, dtype=tf.float32):
    return [tf.TensorSpec(shape, dtype) for shape in shapes]


_STRUCTURES = {
    'one tensor': _of([7]),
    'scalars': _of([], []),
    'an empty tensor': _of([0], [3, 2]),
    'hundreds of tensors': _of(*([i % 3] for i in range(299)), []),
    'float64': _of([5], [2], dtype=tf.float64),
    'float16': _of([5], [2], dtype=tf.float16),
    'bfloat16': _of([5], [2], dtype=tf.bfloat16),
    'mixed': [*_of([5], dtype=tf.float16), *_of([2], dtype=tf.float64), *_of([])],
}


@pytest.mark.parametrize(
    'structure, name',
    [
        case if case == ('mixed', 'plain') else standard(*case)
        for case in itertools.product(_STRUCTURES, _QUERIES)
    ],
)
def test_results_have_the_structure_and_types_of_updates(structure, name):
    specs, variant = _STRUCTURES[structure], _VARIANTS[name]
    query, cohort = variant.query(specs, noise_multiplier=0.0), _updates(specs, 4)
    rows, norms, state = variant.run(query, query.initial_global_state(), [cohort], specs)
    epsilon = {'float16': 2**-10, 'mixed': 2**-10, 'bfloat16': 2**-7}.get(structure, 2e-5)
    if variant.scale and structure == 'scalars':
        epsilon = 2e-3  # One of two coordinates can be above the bound of a coordinate.
    size = rows.shape[1]
    expected = variant.expected(cohort, norms[0], size)
    np.testing.assert_allclose(
        rows[0].astype(np.float64), expected, rtol=epsilon, atol=variant.tolerance(size)
    )
    result, _, _ = query.get_noised_result(
        query.initial_sample_state(variant.record_specs(specs)), state
    )
    assert [(leaf.dtype, leaf.shape) for leaf in result] == [
        (spec.dtype, spec.shape) for spec in specs
    ]


def test_half_precision_results_end_at_their_limits():
    spec = tf.TensorSpec([50], tf.float16)
    query = aggregators.build_query(rounds.plan(noise_multiplier=1e6), record_specs=spec)
    rows, _ = rounds.run(query, None, [[np.zeros(50, np.float16)]], spec)
    assert np.isfinite(rows).all() and np.abs(rows).max() == np.finfo(np.float16).max
