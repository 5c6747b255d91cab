"""What no query or aggregator is built for: arguments and plans that contradict each other."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import accounting, aggregators, mechanisms
from dpfl.aggregators import audited_query, clipping
from dpfl.aggregators.noise import hardened_query
from dpfl.mechanisms.discretization import Discretization
from tests.aggregators import rounds

_SPEC = tf.TensorSpec([5])
_INDEPENDENT = mechanisms.Identity(4)
_DISCRETE = Discretization(scale=20.0, dimension=5, clip_norm=0.5)
_WEIGHTED = accounting.Estimator(example_cap=3.0)
_CANARIES = audited_query.Canaries(seed=9, cohorts=(np.array([0]),) * 4, weights=np.ones([1, 4]))


class _Careless(aggregators.PerLayer):
    def __call__(self, update, clip_norm):
        return update


def _query(specs=_SPEC, **arguments):
    """A function that builds a query; arguments of a plan go into its plan."""
    of_query = {'seed', 'clip', 'supplied_noise', 'canaries'} & set(arguments)
    options = {name: arguments.pop(name) for name in of_query}
    mechanism = arguments.pop('mechanism', _INDEPENDENT)
    return lambda: aggregators.build_query(
        rounds.plan(mechanism, **arguments), record_specs=specs, **options
    )


def _hardened(specs=_SPEC, **arguments):
    return _query(specs, **{'noise': 'hardened', 'supplied_noise': True, **arguments})


def _canaries(specs=_SPEC, **arguments):
    return _query(specs, canaries=_CANARIES, **arguments)


def _aggregator(weighted=False, estimator=None, discretization=None, **options):
    estimator = estimator or accounting.Estimator()
    plan = rounds.plan(estimator=estimator, discretization=discretization)
    build = aggregators.build_weighted_aggregator if weighted else aggregators.build_aggregator
    return lambda: build(plan, **options)


_NAN = float('nan')
_NORM = 'norm=.*: must be a finite number >= 1e-10'
_NOT_PLAIN = 'must be that of plain sums'
_REFUSED = {
    'seeds': [
        *((_query(seed=seed), f'seed={seed}: must be an integer >= 0') for seed in (-1, 0.5, True)),
        (_aggregator(seed=-1), 'seed=-1: must be an integer >= 0'),
    ],
    'specs': [
        (_query(None, supplied_noise=True), 'record_specs=None: must be given with supplied_noise'),
        *(
            (_query(specs), 'record_specs=.*: must be tf.TensorSpec of known shapes, at least one')
            for specs in (np.zeros(2), [], [tf.TensorSpec([None])], tf.TensorSpec(None))
        ),
        (_query(clients=4.5), 'clients_per_round=4.5: must be an integer'),
        (_query(clients=10**8 + 1), 'clients_per_round=100000001: must be at most 100000000'),
        (
            _query(tf.TensorSpec([10**8]), clients=10**8),
            'record_specs: has 100000000 coordinates, must have',
        ),
    ],
    'past noise that grows': [
        (
            _query(mechanism=mechanisms.BandedToeplitz(14, [1.0, 2.0])),
            r'mechanism=banded_toeplitz: has past noise of up to .*e\+04 times that of a round',
        ),
    ],
    # Squares of entries near 1e-25 underflow: an update would pass unclipped, far above the bound.
    'norms that float32 cannot measure': [
        *((_query(clip_norm=norm), f'clip_{_NORM}') for norm in (1e-25, 1e-11, 1e16)),
        *((_query(clip_schedule=((1, norm),)), f'schedule {_NORM}') for norm in (1e-11, 1e16)),
    ],
    'clips': [
        (
            _aggregator(clip=lambda update, norm: update),
            'clip=<lambda>: must be clip_flat or a Per',
        ),
        (_query(clip=_Careless()), 'clip=_Careless: must be clip_flat or a PerLayer'),
        (lambda: clipping.PerLayer((1.0, -1.0)), 'must be numbers >= 0, and not all below 1e-100'),
        (lambda: clipping.PerLayer((0.0, 0.0)), 'must be numbers >= 0, and not all below 1e-100'),
        # The square of 1e-200 is 0, so its share of the norm would not be a number.
        (lambda: clipping.PerLayer((1e-200,)), 'must be numbers >= 0, and not all below 1e-100'),
        (lambda: clipping.PerLayer(()), 'must be numbers >= 0, and not all below 1e-100'),
        (lambda: clipping.PerLayer((_NAN, 1.0)), 'must be a list of finite numbers'),
        (
            lambda: clipping.PerLayer((1.0, 1.0))([tf.ones([])] * 3, tf.constant(1.0)),
            'must be 3 numbers, one per tensor',
        ),
    ],
    'estimators': [
        (_query(estimator=_WEIGHTED), 'must be of WeightedRecord with example_cap=3.0'),
        (
            _query(aggregators.WeightedRecord(_SPEC, tf.TensorSpec([]))),
            'must be of plain updates with example_cap=None',
        ),
        (
            _aggregator(estimator=_WEIGHTED),
            'must be None here; build_weighted_aggregator takes',
        ),
        (_aggregator(weighted=True), 'give the plan an Estimator'),
        # Noise is drawn for one coordinate of the update, and the product would have three.
        (
            lambda: _aggregator(weighted=True, estimator=_WEIGHTED)().create(
                tff.TensorType(np.float32), tff.TensorType(np.float32, [3])
            ),
            'must be rank 0 but is rank 1',
        ),
        (lambda: accounting.Estimator('median'), 'kind=median: must be one of fixed, clipped'),
        (lambda: accounting.Estimator(weight=0.0), 'weight=0.0: must be a finite number > 0'),
        (lambda: accounting.Estimator(weight=_NAN), 'weight=nan: '),
        (lambda: accounting.Estimator(example_cap=-1), 'example_cap=-1: must be a finite number'),
    ],
    'inner factories': [
        (
            _aggregator(record_aggregation_factory=tff.aggregators.MeanFactory()),
            'must be a tff.aggregators.Unweighted',
        ),
    ],
    'secure sums': [
        (_aggregator(secure_sum=True), 'secure_sum=True: must be False without'),
        (
            _aggregator(
                discretization=_DISCRETE,
                secure_sum=True,
                record_aggregation_factory=tff.aggregators.SumFactory(),
            ),
            'secure_sum=True: must be False with a record_aggre',
        ),
    ],
    'discretizations': [
        (_query(None, discretization=_DISCRETE), 'record_specs=None: must be given'),
        (
            _query(tf.TensorSpec([6]), discretization=_DISCRETE),
            'dimension=5: must be 6, the number of coordinates',
        ),
        (
            _query(tf.TensorSpec([4]), clients=4, discretization=Discretization(1e18, 4, 0.5)),
            r'scale=1e\+18: must be smaller: sums',
        ),
        (
            _query(discretization=_DISCRETE, estimator=accounting.Estimator('clipped')),
            'estimator=clipped: must be fixed with a discretization',
        ),
    ],
    'hardened noise': [
        (_hardened(supplied_noise=False), 'supplied_noise=False: must be True with noise=hardened'),
        (_hardened(None), 'record_specs=None: must be given with noise=hardened'),
        (_hardened(noise_multiplier=0.0), 'noise_multiplier=0.0: must be > 0 with'),
        (
            _hardened(mechanism=rounds.blt(), noise_multiplier=0.01),
            'noise=hardened: must be default with mech',
        ),
        *(
            (
                _hardened(
                    mechanism=mechanisms.ColumnScaled(mechanisms.Blt(4, [], []), [1.0, scale], 4)
                ),
                'noise of single rounds is .* integers, must be within',
            )
            for scale in (1e-4, 1e20)
        ),
        (_hardened(seed=-1), 'seed=-1: must be an integer >= 0'),
        (_hardened(tf.TensorSpec([2**14, 2**15])), 'record_specs: has 536870912'),
        (lambda: hardened_query.HardenedQuery(rounds.plan(), _SPEC), 'must be hardened'),
    ],
    'canaries': [
        (_canaries(None), 'record_specs'),
        (_canaries(clip=aggregators.PerLayer()), f'clip: {_NOT_PLAIN}'),
        (_canaries(estimator=accounting.Estimator('clipped')), f'estimator: {_NOT_PLAIN}'),
        (_canaries(noise='hardened'), f'noise: {_NOT_PLAIN}'),
    ],
}


@pytest.mark.parametrize('kind', _REFUSED)
def test_contradictions_are_named_in_one_line(kind):
    for make, message in _REFUSED[kind]:
        with pytest.raises((ValueError, TypeError), match=message) as error:
            make()
        assert '\n' not in str(error.value), message
