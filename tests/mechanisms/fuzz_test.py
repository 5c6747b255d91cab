"""Random small members of every family, against brute force and dense algebra."""

import fractions

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import block_blt, restarts, toeplitz
from dpfl.mechanisms.sensitivities import scaled_toeplitz, tree_sensitivity
from tests import oracles
from tests.mechanisms import random_members
from tests.sizes import exhaustive

# With the share of cases whose bound is known to be exact, less a margin.
_FAMILIES = {
    'tree': (random_members.tree, 0.9),
    'full_honaker_tree': (random_members.full_honaker_tree, 0.9),
    'banded': (random_members.banded, 0.75),
    'banded_toeplitz': (random_members.banded_toeplitz, 0.8),
    'banded_inverse': (random_members.banded_inverse, 0.8),
    'monotone_blt': (random_members.monotone_blt, 1.0),
    'blt': (random_members.blt, 0.65),
    'block_blt': (random_members.block_blt, 0.75),
    'column_scaled': (random_members.column_scaled, 0.65),
    'column_scaled_block_blt': (random_members.column_scaled_block_blt, 0.75),
    'falling_scales': (random_members.falling_scales, 1.0),
    'restarted': (random_members.restarted, 0.85),
    'restarted_blt': (random_members.restarted_blt, 0.75),
    'restarted_monotone': (random_members.restarted_monotone, 0.95),
}


def _random_case(rng, make):
    rounds = int(rng.integers(1, 9))
    mechanism = make(rng, rounds)
    return mechanism, Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 6)))


def _checked_bound(mechanism, schema):
    bound = mechanism.sensitivity_bound(schema)
    released, strategy = mechanism.released_matrix(), mechanism.strategy_matrix()
    truth = oracles.squared_sensitivity(released, schema)
    assert bound.squared >= truth * (1 - 1e-12), (mechanism, schema)
    if mechanism.rounds <= 5:  # Not by any digit.
        exact = oracles.exact_squared_sensitivity(released, schema)
        assert fractions.Fraction(bound.squared) >= exact, (mechanism, schema)
    assert bound.squared >= oracles.squared_sensitivity(strategy, schema) * (1 - 1e-12)
    if bound.is_exact:
        assert bound.squared == pytest.approx(truth, rel=1e-10), (mechanism, schema)
    return bound


def _reached_by_vectors(matrix, pattern, rng):
    """A squared norm for updates that are vectors of norm 1: gradient ascent from random ones."""
    columns = matrix[:, list(pattern)]
    updates = rng.normal(size=(len(pattern), 3))
    for _ in range(10):
        updates /= np.linalg.norm(updates, axis=1, keepdims=True)
        reached = np.linalg.norm(columns @ updates) ** 2
        updates = columns.T @ columns @ updates + 1e-3 * updates
    return reached


def _check_algebra(mechanism, rng):
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    noise = rng.normal(size=(mechanism.rounds, 2))
    streamed = mechanisms.stream(mechanism.kernel(), noise)
    np.testing.assert_allclose(streamed, inverse @ noise, atol=1e-9 * np.abs(inverse).max())
    np.testing.assert_allclose(mechanism.squared_error(), oracles.squared_error(mechanism), 1e-7)
    again = mechanisms.from_dict(mechanism.to_dict())
    assert again == mechanism and again.digest() == mechanism.digest()


@pytest.mark.parametrize('cases', [40, exhaustive(1000)])
@pytest.mark.parametrize('name', _FAMILIES)
def test_no_sensitivity_is_below_the_truth(name, cases):
    rng = np.random.default_rng(cases)
    make, share_exact = _FAMILIES[name]
    exact = 0
    for _ in range(cases):
        mechanism, schema = _random_case(rng, make)
        bound = _checked_bound(mechanism, schema)
        longest = oracles.patterns(schema)[-1]
        reached = _reached_by_vectors(mechanism.released_matrix(), longest, rng)
        assert reached <= bound.squared * (1 + 1e-12)
        bands = mechanism.strategy_bands
        if bands is not None and bands <= schema.min_separation:
            assert bound.is_exact  # The columns of a pattern do not overlap.
        exact += bound.is_exact
        _check_algebra(mechanism, rng)
    assert exact >= share_exact * cases


# What replaces the usual bound for many rounds or participations, in force for all.
_OTHER_BOUNDS = {
    'no pairs of columns': ('banded_inverse', toeplitz, {'_MOST_PAIRS': 0}),
    'blocks of participations': (
        'banded_inverse',
        toeplitz,
        {'_MOST_PAIRS': 0, '_MAX_BLOCKS': 3},
    ),
    'envelope': ('block_blt', block_blt, {'_MOST_GRAM_ROUNDS': 0}),
    'majorant': ('block_blt', block_blt, {'_MOST_PAIRED_ROUNDS': 0}),
    'scaled envelope': ('column_scaled_block_blt', block_blt, {'_MOST_GRAM_ROUNDS': 0}),
    'scaled majorant': ('column_scaled_block_blt', block_blt, {'_MOST_PAIRED_ROUNDS': 0}),
    'few cells': ('column_scaled', scaled_toeplitz, {'_MOST_STEPS': 30}),
    'segments apart': ('restarted_blt', restarts, {'_MOST_COUPLED_ROUNDS': 0}),
    'no recursion': ('tree', tree_sensitivity, {'_WORK_LIMIT': 0}),
}


@pytest.mark.parametrize('cases', [60, exhaustive(1000)])
@pytest.mark.parametrize('name', _OTHER_BOUNDS)
def test_no_bound_for_large_runs_is_below_the_truth(name, cases, monkeypatch):
    family, module, limits = _OTHER_BOUNDS[name]
    rng = np.random.default_rng(cases)
    random_cases = [_random_case(rng, _FAMILIES[family][0]) for _ in range(cases)]
    usual = [mechanism.sensitivity_bound(schema).squared for mechanism, schema in random_cases]
    for limit, value in limits.items():
        monkeypatch.setattr(module, limit, value)
    others = [_checked_bound(mechanism, schema).squared for mechanism, schema in random_cases]
    # So it was another bound.
    assert (np.array(others) > np.array(usual) * (1 + 1e-9)).any()
