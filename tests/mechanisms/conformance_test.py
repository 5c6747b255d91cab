"""One list of mechanisms, one list of properties: a new mechanism enters the list."""

import dataclasses
import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from scipy import linalg

from dpfl import Participation, mechanisms
from dpfl.mechanisms import registry
from tests import mechanism_cases, oracles
from tests.mechanism_cases import every
from tests.sizes import exhaustive

_ROUNDS = (1, 2, 3, 5, 8, 12)


def _concrete(kind):
    """Subclasses in the package that can be instantiated, of any depth."""
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith('dpfl.') and not inspect.isabstract(subclass):
            yield subclass
        yield from _concrete(subclass)


def test_every_mechanism_of_the_package_is_in_the_registry_and_in_the_list():
    for module in pkgutil.walk_packages(mechanisms.__path__, 'dpfl.mechanisms.'):
        importlib.import_module(module.name)
    concrete = set(_concrete(mechanisms.Mechanism))
    assert concrete == {entry.kind for entry in registry.ENTRIES.values()}
    assert concrete == {type(make(2)) for make in mechanism_cases.FACTORIES.values()}
    assert concrete == set(registry.TYPES.values())


@every
def test_streaming_equals_solving(make):
    for rounds in (*_ROUNDS, 64):
        mechanism = make(rounds)
        noise = np.random.default_rng(rounds).normal(size=(rounds, 2, 3))
        streamed = mechanisms.stream(mechanism.kernel(), noise)
        np.testing.assert_allclose(
            streamed, oracles.streamed_by_solving(mechanism, noise), rtol=1e-10, atol=1e-10
        )


# Their sensitivity is exact at every schema.
_EXACT = ['gaussian', 'tree', 'tree_by_prefix_sums', 'honaker_tree', 'full_honaker_tree']
_EXACT += ['restarted_tree', 'restarted_blt', 'fichtenberger_toeplitz', 'blt', 'block_blt']


# Signs multiply the patterns of matrices with negative entries; fewer rounds are enough.
_SIGNED = [
    name for name in mechanism_cases.FACTORIES if name.endswith(('negative_entries', 'monotone'))
]


@pytest.mark.parametrize(
    'name, all_rounds',
    [
        *((name, range(1, 9)) for name in mechanism_cases.FACTORIES),
        *(
            exhaustive(name, range(9, 13))
            for name in mechanism_cases.FACTORIES
            if name not in _SIGNED
        ),
    ],
)
def test_sensitivity_is_never_below_brute_force_and_equal_where_exact(name, all_rounds):
    is_always_exact = name in _EXACT
    for rounds in all_rounds:
        mechanism = mechanism_cases.FACTORIES[name](rounds)
        strategy, released = mechanism.strategy_matrix(), mechanism.released_matrix()
        for schema in oracles.small_schemas(rounds):
            bound = mechanism.sensitivity_bound(schema)
            truth = oracles.squared_sensitivity(released, schema)
            assert bound.squared >= truth * (1 - 1e-12)
            assert bound.squared >= oracles.squared_sensitivity(strategy, schema) * (1 - 1e-12)
            if bound.is_exact:
                assert bound.squared == pytest.approx(truth, rel=1e-12)
            assert bound.is_exact or not is_always_exact
        assert mechanism.sensitivity(schema) == pytest.approx(np.sqrt(bound.squared), rel=1e-15)
        assert mechanism.sensitivity_is_exact(schema) == bound.is_exact


@every
def test_other_numbers_of_rounds(make):
    mechanism = make(11)
    matrix = mechanism.strategy_matrix()
    for rounds in (1, 4, 7, 11):
        if not mechanism.shortens:
            break
        block = mechanism.with_rounds(rounds)
        np.testing.assert_allclose(block.strategy_matrix(), matrix[:rounds, :rounds], rtol=1e-14)
        np.testing.assert_allclose(mechanism.released_until(rounds), block.released_matrix())
        schema = Participation(rounds, 2)
        assert mechanism.sensitivity(schema) == block.sensitivity(schema)
    if mechanism.extends:
        longer = mechanism.with_rounds(14)
        np.testing.assert_allclose(longer.strategy_matrix()[:11, :11], matrix, rtol=1e-14)
    for rounds, is_possible in ((4, mechanism.shortens), (40, mechanism.extends)):
        if not is_possible:
            with pytest.raises(ValueError, match='rounds'):
                mechanism.with_rounds(rounds)
    with pytest.raises(ValueError, match='rounds=12: must be an integer >= 1 and <= 11'):
        mechanism.sensitivity(Participation(12))


@every
def test_what_a_mechanism_says_of_its_matrix_is_true(make):
    for rounds in _ROUNDS:
        mechanism = make(rounds)
        matrix = mechanism.strategy_matrix()
        assert (matrix.shape, matrix.dtype) == ((rounds, rounds), np.float64)
        np.testing.assert_array_equal(matrix, np.tril(matrix))
        assert (np.diag(matrix) > 0).all()
        np.testing.assert_allclose(mechanism.column_norms(), np.linalg.norm(matrix, axis=0), 1e-12)
        column = mechanism.toeplitz_column(rounds)
        if column is not None:
            np.testing.assert_allclose(matrix, np.tril(linalg.toeplitz(column)))
        if mechanism.strategy_bands is not None:
            assert not np.tril(matrix, -mechanism.strategy_bands).any()
        if mechanism.is_identity:
            np.testing.assert_array_equal(matrix, np.eye(rounds))
        assert mechanism.starts_afresh or not mechanism.fresh_rounds
        for start in mechanism.fresh_rounds:
            assert not matrix[start:, :start].any()
        forest = mechanism.forest()
        if forest is not None:
            assert sum(2**level for level in forest.levels) == rounds


@every
def test_errors_are_row_norms_of_the_decoder(make):
    for rounds in (1, 7):
        mechanism, schema = make(rounds), Participation(rounds, 2)
        inverse = np.linalg.inv(mechanism.strategy_matrix())
        rates = np.linspace(1, 0.1, rounds)
        schedule = mechanisms.workload.learning_rate_schedule(rates, beta=0.5)
        for a in (None, mechanisms.workload.momentum(rounds + 2, 0.9), schedule):
            decoder = mechanisms.workload.matrix(a, rounds) @ inverse
            expected = (decoder**2).sum(axis=1)
            np.testing.assert_allclose(mechanism.squared_error(a), expected, rtol=1e-9)
            largest, mean = np.sqrt(expected.max()), np.sqrt(expected.mean())
            assert mechanism.max_error(a) == pytest.approx(largest)
            assert mechanism.rms_error(a) == pytest.approx(mean)
            sensitivity = mechanism.sensitivity(schema)
            assert mechanism.max_loss(schema, a) == pytest.approx(largest * sensitivity)
            assert mechanism.rms_loss(schema, a) == pytest.approx(mean * sensitivity)
        with pytest.raises(ValueError, match=f'must have at least {rounds} rounds'):
            mechanism.squared_error(np.ones(rounds - 1))


def test_workloads_are_sgd_with_momentum():
    rng = np.random.default_rng(0)
    updates, rates = rng.normal(size=8), rng.uniform(0.1, 1, size=8)
    schedule = mechanisms.workload.learning_rate_schedule(rates, beta=0.7)
    momentum = mechanisms.workload.matrix(mechanisms.workload.momentum(8, 0.7), 8)
    for matrix, given in ((schedule, rates), (momentum, np.ones(8))):
        model = velocity = 0.0
        for t in range(8):
            velocity = 0.7 * velocity + updates[t]
            model += given[t] * velocity
            assert matrix[t] @ updates == pytest.approx(model)
    np.testing.assert_array_equal(mechanisms.workload.matrix(None, 8), np.tril(np.ones((8, 8))))


@every
def test_dictionary_and_file_round_trip(make, tmp_path):
    mechanism = make(9)
    again = mechanisms.from_dict(mechanism.to_dict())
    assert again == mechanism != make(8)
    assert hash(again) == hash(mechanism)
    assert again.digest() == mechanism.digest() != make(8).digest()
    mechanisms.save(mechanism, tmp_path / 'strategy.npz')
    assert mechanisms.load(tmp_path / 'strategy.npz') == mechanism


@every
def test_what_a_mechanism_holds_cannot_be_changed(make):
    with pytest.raises(dataclasses.FrozenInstanceError):
        make(4).rounds = 5
    arrays = [value for value in vars(make(4)).values() if isinstance(value, np.ndarray)]
    assert not any(array.flags.writeable for array in arrays)


@every
def test_bad_rounds_are_named(make):
    for rounds in (0, -1, 1.5, float('nan'), None):
        with pytest.raises(ValueError, match=f'rounds={rounds}: must be an integer >= 1'):
            make(rounds)


# The class docstrings' promises.
_BUFFERS = {
    'gaussian': lambda m: 0,
    'tree': lambda m: 3,
    'honaker_tree': lambda m: 3,
    'full_honaker_tree': lambda m: 11,
    'banded': lambda m: m.bands - 1,
    'banded_inverse': lambda m: m.inverse_coefficients.size - 1,
    'banded_toeplitz': lambda m: m.coefficients.size - 1,
    'blt': lambda m: m.decay.size,
    'column_scaled': lambda m: m.base.num_buffers(),
    'unscaled_block_blt': lambda m: m.decay.shape[1],
    'restarted': lambda m: max(segment.kernel().buffers for segment in m.segments()),
}


@every
def test_buffers_are_what_the_state_holds(make):
    mechanism = make(12)
    buffers = mechanism.kernel().buffers
    assert mechanism.num_buffers() == buffers == _BUFFERS[mechanism.name](mechanism)
