"""One list of optimisers, one list of properties: a new optimiser enters the registry."""

import functools
import itertools

import numpy as np
import pytest

from dpfl import Participation, _cache, errors, mechanisms
from dpfl.mechanisms import registry
from tests import oracles
from tests.sizes import exhaustive, standard

_STACKOVERFLOW = Participation(2052, 342, 6)
_SMALL = Participation(12, 4, 3)
_SCHEMAS = (
    Participation(10, 3),
    Participation(9, 9),
    Participation(8, 1, 3),
    Participation(11, 2, 4),
    Participation(2, 1),
    Participation(1),
)
# Members of these families are members of the first one, too.
_CONTAINED = {
    'free_banded': ('banded', 'banded_toeplitz'),
    'scaled_blt': ('blt',),
    'block_blt': ('scaled_blt',),
}
_WORKLOADS = {
    'prefix_sums': None,
    'momentum': mechanisms.workload.momentum(14, 0.8),
    'schedule': mechanisms.workload.learning_rate_schedule(np.linspace(1, 0.1, 14), beta=0.5),
}

every_optimizer = pytest.mark.parametrize('name', registry.OPTIMIZED)


@functools.cache
def _optimized(name, schema, size, loss, workload='prefix_sums'):
    optimizer = registry.ENTRIES[name].optimizer
    return optimizer.optimize(schema, size, loss=loss, workload=_WORKLOADS[workload])


def _loss(mechanism, schema, loss, workload='prefix_sums'):
    return getattr(mechanism, f'{loss}_loss')(schema, _WORKLOADS[workload])


def _size(name, schema):
    bands = min(3, schema.min_separation, schema.rounds)
    return bands if registry.ENTRIES[name].optimizer.size == 'bands' else 1


@pytest.mark.parametrize('schemas', [(_SMALL,), standard(_SCHEMAS)])
@pytest.mark.parametrize(
    'name, loss',
    [
        # Blocks are searched for seconds, with either loss in the same way.
        standard(*case) if case == ('block_blt', 'rms') else case
        for case in itertools.product(registry.OPTIMIZED, ('max', 'rms'))
    ],
)
def test_results_are_proven_and_no_worse_than_simpler_ones(name, loss, schemas):
    entry = registry.ENTRIES[name]
    for schema in schemas:
        size = _size(name, schema)
        found = _optimized(name, schema, size, loss)
        assert type(found) is entry.kind and found.rounds == schema.rounds
        assert found.num_buffers() <= entry.optimizer.num_buffers(size)
        bound = found.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(found.strategy_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-12)
        assert not bound.is_exact or bound.squared == pytest.approx(truth, rel=1e-10)
        reached = _loss(found, schema, loss)
        # Independent noise is the limit of vanishing scales.
        assert reached <= _loss(mechanisms.Identity(schema.rounds), schema, loss) * (1 + 1e-5)
        room = 1e-3 if (name, loss) == ('free_banded', 'max') else 1e-6
        for other in _CONTAINED.get(name, ()):
            simpler = _optimized(other, schema, size, loss)
            assert reached <= _loss(simpler, schema, loss) * (1 + room), other


@pytest.mark.parametrize(
    'name',
    [standard(name) if name == 'block_blt' else name for name in registry.OPTIMIZED],
)
@pytest.mark.parametrize(
    'loss, workload',
    [
        ('max', 'momentum'),
        standard('rms', 'schedule'),
    ],
)
def test_a_workload_is_what_is_optimised(name, loss, workload):
    size = _size(name, _SMALL)
    found = _optimized(name, _SMALL, size, loss, workload)
    of_sums = _optimized(name, _SMALL, size, loss)
    reached = _loss(found, _SMALL, loss, workload)
    # Column scales are searched for prefix sums alone.
    if not isinstance(found, mechanisms.ColumnScaled):
        assert reached < _loss(of_sums, _SMALL, loss, workload)
    for other in _CONTAINED.get(name, ()):
        simpler = _optimized(other, _SMALL, size, loss, workload)
        assert reached <= _loss(simpler, _SMALL, loss, workload) * (1 + 1e-3), other


@pytest.mark.parametrize('name', ['banded_toeplitz', 'banded_inverse', 'blt'])
def test_the_first_rounds_of_a_schedule_may_have_learning_rate_0(name):
    optimizer, size = registry.ENTRIES[name].optimizer, _size(name, _SMALL)
    rates = np.append([0.0, 0.0], np.linspace(0.1, 1, 10))
    workload = mechanisms.workload.learning_rate_schedule(rates)
    found = optimizer.optimize(_SMALL, size, loss='max', workload=workload)
    of_sums = _optimized(name, _SMALL, size, 'max')
    assert found.max_loss(_SMALL, workload) < of_sums.max_loss(_SMALL, workload)


@every_optimizer
@pytest.mark.standard
def test_results_are_kept_and_read_back_and_the_search_is_deterministic(
    name, monkeypatch, tmp_path, capsys
):
    optimizer, size = registry.ENTRIES[name].optimizer, _size(name, _SMALL)
    first = _optimized(name, _SMALL, size, optimizer.losses[0])
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    again = optimizer.optimize(_SMALL, size, progress=True)
    assert again.digest() == first.digest()
    printed = capsys.readouterr()
    assert ' loss ' in printed.err and not printed.out
    assert any(tmp_path.iterdir())
    written = []
    monkeypatch.setattr(_cache, '_replace', lambda path, _: written.append(path))
    assert optimizer.optimize(_SMALL, size) == first
    assert not written


@every_optimizer
def test_bad_arguments_are_named(name):
    optimizer = registry.ENTRIES[name].optimizer
    size = 'bands' if optimizer.size == 'bands' else 'num_buffers'
    for arguments, message in (
        (dict(size=0), f'{size}=0: must be an integer >= 1'),
        (dict(size=2.5), f'{size}=2.5: must be an integer >= 1'),
        (dict(loss='mean'), 'loss=mean: must be one of '),
        (dict(workload=np.ones(5)), 'workload: has shape .*, must have at least 12 rounds'),
        (dict(workload=np.ones((12, 12))), 'workload: must be lower-triangular'),
        (dict(workload=np.zeros(12)), 'workload: .*0'),
        (dict(workload=np.full((12, 12), np.nan)), 'workload'),
    ):
        with pytest.raises(errors.ArgumentError, match=message):
            optimizer.optimize(_SMALL, **{'size': 2, **arguments})


# Losses that were published, or found by another method, and those of long runs.
# A simplex search over the parameters, with the sensitivity by brute force, finds no less. The
# bound of a banded inverse may cost 1 % where signs of C matter.
_SMALL_KNOWN = [
    ('blt', (9, 3, 3), 2, 'max', 3.68951099),
    ('blt', (9, 3, 3), 2, 'rms', 3.03170822),
    ('banded_toeplitz', (9, 3, 3), 3, 'max', 3.62822746),
    ('banded_toeplitz', (9, 3, 3), 3, 'rms', 2.93177996),
    ('banded_inverse', (9, 3, 3), 3, 'max', 3.71413014),
    ('banded_inverse', (9, 3, 3), 3, 'rms', 2.99335208 * 1.01),
]
_KNOWN = [
    ('blt', (2052, 342, 6), 2, 'max', 10.81),
    ('blt', (2052, 342, 6), 3, 'max', 10.7514),
    ('blt', (2052, 342, 6), 4, 'max', 10.7341),
    ('blt', (2000, 100, 10), 4, 'max', 17.4035),
    # 23.2036 with inverse decays of at least 0.
    ('blt', (500, 20, 25), 2, 'rms', 23.2028),
    ('blt', (200_000, 20_000, 10), 4, 'max', 20.2961),
    ('banded_toeplitz', (2052, 342, 6), 342, 'rms', 8.8042),
    ('banded_toeplitz', (2052, 342, 6), 342, 'max', 10.4047),
    ('banded_toeplitz', (10_000, 400, 25), 400, 'rms', 26.541),
    # Two participations that may be adjacent: a single band would be far from optimal.
    ('banded_toeplitz', (300, 1, 2), 60, 'rms', 7.0),
    ('banded_inverse', (2052, 342, 6), 2, 'max', 16.5827),
    ('banded_inverse', (2052, 342, 6), 8, 'max', 11.9908),
    ('banded_inverse', (2052, 342, 6), 32, 'max', 10.9180),
    ('banded_inverse', (2052, 342, 6), 16, 'rms', 9.5328),
    ('banded_inverse', (100, 10, 3), 16, 'max', 5.918),
    # SciPy's L-BFGS-B over the entries of C stops at 7.025131553.
    ('banded', (257, 43, 6), 43, 'rms', 7.025133),
    ('banded', (2000, 15, None), 15, 'rms', 101.1),
    ('free_banded', (142, 10, 15), 5, 'rms', 15.021),
    ('scaled_blt', (2052, 342, 6), 4, 'max', 9.93),
    ('scaled_blt', (2052, 342, 6), 4, 'rms', 9.0),
]
_SLOW_KNOWN = [
    ('block_blt', (2052, 342, 6), 2, 'max', 9.54),
    ('block_blt', (2052, 342, 6), 4, 'rms', 8.85),
]


@pytest.mark.parametrize(
    'name, schema, size, loss, most',
    [
        *_SMALL_KNOWN,
        *(standard(*row) for row in _KNOWN),
        *(exhaustive(*row) for row in _SLOW_KNOWN),
    ],
)
def test_known_losses_are_reached(name, schema, size, loss, most):
    schema = Participation(*schema)
    reached = _loss(_optimized(name, schema, size, loss), schema, loss)
    assert reached <= most * (1 + 1e-5)
    if schema == _STACKOVERFLOW:
        # No mechanism is below these (docs/research/mechanisms.md).
        assert reached >= {'max': 8.94, 'rms': 8.38}[loss]
