"""Every variant with broken updates, unusual cohorts and unusual tensors."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts

_NORM, _CLIENTS, _CAP = 0.5, 4, 10.0
_SCALE = 1000.0


@dataclasses.dataclass(frozen=True)
class _Variant:
    """How an aggregator is built; `secure_sum` with a discretization."""

    adaptive: bool = False
    discretized: bool = False
    secure_sum: bool = False
    kind: str = 'fixed'
    weighted: bool = False
    per_layer: bool = False
    mechanism: str = 'restarted'

    def plan(self, specs, noise_multiplier=0.0):
        size = sum(int(np.prod(spec.shape)) for spec in tf.nest.flatten(specs))
        mechanism = mechanisms.Identity(4)
        if self.mechanism == 'restarted':
            mechanism = mechanisms.Restarted(mechanisms.BinaryTree(2), (2,), 4)
        return accounting.PrivacyPlan(
            mechanism=mechanism,
            participation=Participation(4),
            clip_norm=_NORM,
            noise_multiplier=noise_multiplier,
            clients_per_round=_CLIENTS,
            adaptive_clip=accounting.AdaptiveClip(count_stddev=2.0) if self.adaptive else None,
            discretization=Discretization(_SCALE, size, _NORM) if self.discretized else None,
            estimator=accounting.Estimator(self.kind, 3.0, _CAP if self.weighted else None),
        )

    @property
    def clip(self):
        return aggregators.PerLayer() if self.per_layer else aggregators.clip_flat

    def process(self, specs, noise_multiplier=0.0):
        """Aggregation process and its `next`, of updates or of (updates, numbers of examples)."""
        value_type = tff.to_type(
            [tff.TensorType(spec.dtype.as_numpy_dtype, spec.shape) for spec in specs]
        )
        build = aggregators.build_aggregator
        types = [value_type]
        if self.weighted:
            build = aggregators.build_weighted_aggregator
            types.append(tff.TensorType(np.float32))
        process = build(
            self.plan(specs, noise_multiplier), 3, clip=self.clip, secure_sum=self.secure_sum
        ).create(*types)
        run = process.next
        if self.secure_sum:
            run = tff.backends.test.replace_secure_intrinsics_with_bodies(run)

        def run_round(state, cohort):
            columns = [[update for update, _ in cohort]]
            if self.weighted:
                columns.append([np.float32(examples) for _, examples in cohort])
            output = run(state, *columns)
            if self.secure_sum:
                return output['result'], output['state']
            return output.result, output.state

        return process.initialize, run_round

    def expected(self, cohort):
        """The mean without noise, leaf by leaf in float64."""
        weights = [min(max(n, 0) / _CAP, 1) if self.weighted else 1.0 for _, n in cohort]
        total = None
        for weight, (update, _) in zip(weights, cohort, strict=True):
            leaves = [np.asarray(leaf, np.float64) for leaf in tf.nest.flatten(update)]
            groups = [[leaf] for leaf in leaves] if self.per_layer else [leaves]
            bound = _NORM / np.sqrt(len(groups))
            clipped = []
            for group in groups:
                norm = np.sqrt(sum((leaf**2).sum() for leaf in group))
                clipped += [weight * leaf * min(1, bound / max(norm, 1e-99)) for leaf in group]
            total = clipped if total is None else list(map(np.add, total, clipped))
        denominator = max(3.0, sum(weights)) if self.kind == 'clipped' else 3.0
        return np.concatenate([np.ravel(leaf / denominator) for leaf in total])


_VARIANTS = {
    'plain': _Variant(),
    'independent': _Variant(mechanism='identity'),
    'per layer': _Variant(per_layer=True),
    'adaptive': _Variant(adaptive=True),
    'adaptive per layer': _Variant(adaptive=True, per_layer=True),
    'weighted': _Variant(weighted=True),
    'weighted clipped denominator': _Variant(weighted=True, kind='clipped'),
    'discretized': _Variant(discretized=True),
    'secure': _Variant(discretized=True, secure_sum=True),
    'secure weighted adaptive per layer': _Variant(
        discretized=True, secure_sum=True, weighted=True, adaptive=True, per_layer=True
    ),
}
every_variant = pytest.mark.parametrize('variant', _VARIANTS.values(), ids=_VARIANTS)
# The rules for updates that are not finite are in query_test.py, without TFF.
pytestmark = [pytest.mark.tff, pytest.mark.standard]


@pytest.fixture(scope='module', autouse=True)
def _runtime():
    with contexts.local_runtime():
        yield


def _specs(*shapes, dtype=tf.float32):
    return [tf.TensorSpec(shape, dtype) for shape in shapes]


def _updates(specs, count, seed=0):
    rng = np.random.default_rng(seed)
    clients = [(0.01, 3.0), (1.0, 10.0), (30.0, 40.0), (0.2, 0.0)][:count]
    return [
        (
            [
                np.asarray(scale * rng.normal(size=spec.shape), spec.dtype.as_numpy_dtype)
                for spec in specs
            ],
            examples,
        )
        for scale, examples in clients
    ]


def _flat(result):
    return np.concatenate([np.ravel(leaf) for leaf in tf.nest.flatten(result)])


def _tolerance(variant, size):
    """Largest error: of rounding to integers, for each of the clients, or of float32."""
    padded = 1 << (size - 1).bit_length()
    return _CLIENTS * np.sqrt(padded) / _SCALE / 3 if variant.discretized else 2e-5


@every_variant
def test_broken_updates_count_as_zero_and_cohorts_of_any_size_work(variant):
    specs = _specs([4], [], [2, 3])
    initialize, run = variant.process(specs)
    state = initialize()
    good, other, *_ = _updates(specs, 4)
    zero = ([np.zeros_like(leaf) for leaf in good[0]], 10.0)
    expected, _ = run(state, [good, other, zero])
    for bad in (np.nan, np.inf, -np.inf, 1e30):
        broken = ([leaf.copy() for leaf in other[0]], 10.0)
        broken[0][2][1, 1] = bad
        result, _ = run(state, [good, other, broken])
        np.testing.assert_array_equal(_flat(result), _flat(expected))
    # No clients, fewer than the report goal, and the goal.
    for size in (0, 1, 4):
        cohort = _updates(specs, size)
        result, following = run(state, cohort)
        reference = variant.expected(cohort) if size else np.zeros(11)
        np.testing.assert_allclose(_flat(result), reference, atol=_tolerance(variant, 11))
    result, _ = run(following, [])
    np.testing.assert_array_equal(_flat(result), np.zeros(11))


@pytest.mark.parametrize('examples', [np.nan, -5.0, np.inf])
def test_a_weight_of_any_number_is_within_0_and_1(examples):
    variant, specs = _VARIANTS['weighted clipped denominator'], _specs([4])
    initialize, run = variant.process(specs)
    update = np.array([3.0, 0, 0, 0], np.float32)
    result, _ = run(initialize(), [([update], examples)])
    weight = 1.0 if examples == np.inf else 0.0
    np.testing.assert_allclose(result[0], [_NORM * weight / 3, 0, 0, 0], rtol=1e-4)


_STRUCTURES = {
    'one tensor': _specs([7]),
    'scalars': _specs([], []),
    'an empty tensor': _specs([0], [3, 2]),
    'hundreds of tensors': _specs(*([i % 3] for i in range(299)), []),
    'float64': _specs([5], [2], dtype=tf.float64),
    'float16': _specs([5], [2], dtype=tf.float16),
    'bfloat16': _specs([5], [2], dtype=tf.bfloat16),
    'mixed': [*_specs([5], dtype=tf.float16), *_specs([2], dtype=tf.float64), *_specs([])],
}


@every_variant
@pytest.mark.parametrize('name', _STRUCTURES)
def test_any_structure_and_type(variant, name):
    specs = _STRUCTURES[name]
    record_specs = specs
    if variant.weighted:
        record_specs = aggregators.WeightedRecord(specs, tf.TensorSpec([]))
    query = aggregators.build_query(
        variant.plan(specs), 3, record_specs=record_specs, clip=variant.clip
    )
    cohort = _updates(specs, 4)
    state = query.initial_global_state()
    params, sample = query.derive_sample_params(state), query.initial_sample_state(record_specs)
    for update, examples in cohort:
        record = [tf.constant(leaf) for leaf in update]
        if variant.weighted:
            record = aggregators.WeightedRecord(record, tf.constant(examples))
        sample = query.accumulate_record(params, sample, record)
    result, _, _ = query.get_noised_result(sample, state)
    assert [(leaf.dtype, leaf.shape) for leaf in result] == [
        (spec.dtype, spec.shape) for spec in specs
    ]
    released = np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in result])
    tolerance = _tolerance(variant, len(released))
    epsilon = {'float16': 2**-10, 'mixed': 2**-10, 'bfloat16': 2**-7}.get(name, 2e-5)
    np.testing.assert_allclose(released, variant.expected(cohort), rtol=epsilon, atol=tolerance)


def test_a_single_number_cannot_be_rotated():
    with pytest.raises(ValueError, match='dimension=1: must be an integer >= 2'):
        _VARIANTS['discretized'].plan(_specs([]))
