"""One list of mechanisms, one list of properties: a new mechanism enters the list."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import serialization
from tests import mechanism_cases, oracles

_ROUNDS = (1, 2, 3, 5, 8, 12)

every_mechanism = pytest.mark.parametrize(
    'make', mechanism_cases.FACTORIES.values(), ids=mechanism_cases.FACTORIES
)


def test_every_saved_type_is_in_the_list():
    made = {make(2).name for make in mechanism_cases.FACTORIES.values()}
    assert made == set(serialization._TYPES)


@every_mechanism
@pytest.mark.parametrize('rounds', _ROUNDS)
def test_strategy_is_lower_triangular_with_a_positive_diagonal(make, rounds):
    matrix = make(rounds).strategy_matrix()
    assert matrix.shape == (rounds, rounds)
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, np.tril(matrix))
    assert (np.diag(matrix) > 0).all()


@every_mechanism
@pytest.mark.parametrize('rounds', _ROUNDS + (64,))
def test_streaming_equals_solving(make, rounds):
    mechanism = make(rounds)
    noise = np.random.default_rng(rounds).normal(size=(rounds, 2, 3))
    streamed = mechanisms.stream(mechanism.kernel(), noise)
    np.testing.assert_allclose(
        streamed, oracles.streamed_by_solving(mechanism, noise), rtol=1e-10, atol=1e-10
    )


@every_mechanism
@pytest.mark.parametrize('rounds', range(1, 13))
def test_sensitivity_is_never_below_brute_force_and_equal_where_exact(make, rounds):
    mechanism = make(rounds)
    strategy, released = mechanism.strategy_matrix(), mechanism.released_matrix()
    # Signs multiply the patterns of matrices with negative entries; fewer rounds are enough.
    if (strategy < 0).any() and rounds > 8:
        mechanism = make(8)
        strategy, released, rounds = strategy[:8, :8], released[:8, :8], 8
    for schema in oracles.small_schemas(rounds):
        bound = mechanism.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(released, schema)
        assert bound.squared >= truth * (1 - 1e-12)
        assert bound.squared >= oracles.squared_sensitivity(strategy, schema) * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)
        assert mechanism.sensitivity(schema) == pytest.approx(np.sqrt(bound.squared), rel=1e-15)
        assert mechanism.sensitivity_is_exact(schema) == bound.is_exact


@every_mechanism
def test_fewer_rounds_are_the_leading_block(make):
    mechanism = make(11)
    if mechanism.name == 'full_honaker_tree':  # Its rows depend on the rounds to come.
        with pytest.raises(ValueError, match='rounds=4: must be 11'):
            mechanism.with_rounds(4)
        return
    for rounds in (1, 4, 7, 11):
        block = mechanism.with_rounds(rounds)
        np.testing.assert_allclose(
            block.strategy_matrix(), mechanism.strategy_matrix()[:rounds, :rounds], rtol=1e-14
        )
        schema = Participation(rounds, 2)
        assert mechanism.sensitivity(schema) == block.sensitivity(schema)


@every_mechanism
def test_more_rounds_than_the_mechanism_has_are_refused(make):
    with pytest.raises(ValueError, match='rounds=6: must be an integer >= 1 and <= 5'):
        make(5).sensitivity(Participation(6))


@every_mechanism
@pytest.mark.parametrize('rounds', _ROUNDS)
def test_errors_are_row_norms_of_the_decoder(make, rounds):
    mechanism = make(rounds)
    expected = oracles.squared_error(mechanism)
    np.testing.assert_allclose(mechanism.squared_error(), expected, rtol=1e-9)
    assert mechanism.max_error() == pytest.approx(np.sqrt(expected.max()))
    assert mechanism.rms_error() == pytest.approx(np.sqrt(expected.mean()))
    schema = Participation(rounds, 2)
    assert mechanism.max_loss(schema) == pytest.approx(
        np.sqrt(expected.max()) * mechanism.sensitivity(schema)
    )
    assert mechanism.rms_loss(schema) == pytest.approx(
        np.sqrt(expected.mean()) * mechanism.sensitivity(schema)
    )


@every_mechanism
def test_errors_of_other_workloads(make):
    mechanism = make(7)
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    rates = np.linspace(1, 0.1, 7)
    schedule = mechanisms.workload.learning_rate_schedule(rates, beta=0.5)
    for a in (mechanisms.workload.momentum(9, 0.9), schedule):
        dense = mechanisms.workload.matrix(a, 7)
        expected = ((dense @ inverse) ** 2).sum(axis=1)
        np.testing.assert_allclose(mechanism.squared_error(a), expected, rtol=1e-9)
        assert mechanism.rms_error(a) == pytest.approx(np.sqrt(expected.mean()))


@every_mechanism
def test_dictionary_and_file_round_trip(make, tmp_path):
    mechanism = make(9)
    again = mechanisms.from_dict(mechanism.to_dict())
    assert again == mechanism
    assert again.digest() == mechanism.digest() != make(8).digest()
    mechanisms.save(mechanism, tmp_path / 'strategy.npz')
    assert mechanisms.load(tmp_path / 'strategy.npz') == mechanism


@every_mechanism
@pytest.mark.parametrize('rounds', [0, -1, 1.5, float('nan'), None])
def test_bad_rounds_are_named(make, rounds):
    with pytest.raises(ValueError, match=f'rounds={rounds}: must be an integer >= 1'):
        make(rounds)


@every_mechanism
def test_buffers_are_what_the_state_holds(make):
    mechanism = make(12)
    inner = getattr(mechanism, 'base', mechanism)
    expected = {
        'gaussian': lambda m: 0,
        'tree': lambda m: 3,
        'honaker_tree': lambda m: 3,
        'full_honaker_tree': lambda m: 11,
        'banded': lambda m: m.bands - 1,
        'banded_inverse': lambda m: m.inverse_coefficients.size - 1,
        'banded_toeplitz': lambda m: m.coefficients.size - 1,
        'blt': lambda m: m.decay.size,
    }
    buffers = mechanism.kernel().buffers
    if inner is mechanism:
        assert buffers == expected[mechanism.name](mechanism)
    else:
        assert buffers == max(segment.kernel().buffers for segment in mechanism.segments())
