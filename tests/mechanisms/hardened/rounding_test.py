"""The shift of integer noise between neighbours, brute force over patterns, against its bound."""

import itertools

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import kernels
from dpfl.mechanisms.hardened import stream
from tests import mechanism_cases, oracles

_ROUNDS, _SIGMA, _NORM = 4, 2.0**9, 33
_TRIALS = 2_000


def _noise_of(kernel, w):
    """Noise z for given w, [rounds, ...] integers: the inverse of the stream."""
    buffers = np.zeros((kernel.buffers, w.shape[1]))
    z = []
    for t, wanted in enumerate(w):
        step = stream.step(kernel, t)
        # A round changes its buffers: ask a copy what it would add to no noise.
        added = step.apply(np.zeros_like(wanted), buffers.copy())
        assert np.array_equal(step.apply(wanted - added, buffers), wanted)
        z.append(wanted - added)
    return np.array(z)


def _largest_shift(mechanism, participation, dimension):
    """The largest norm that was found, in sigmas, and that of C times the same updates."""
    kernel, rng = mechanism.kernel(), np.random.default_rng(0)
    matrix = mechanism.strategy_matrix()
    w = rng.integers(-3 * int(_SIGMA), 3 * int(_SIGMA), (_ROUNDS, _TRIALS * dimension))
    z = _noise_of(kernel, w).reshape(_ROUNDS, _TRIALS, dimension)
    scale = np.diag(matrix)[:, None, None]
    # Integer updates of one client, of norm at most _NORM.
    update = np.zeros(dimension, np.int64)
    update[0] = _NORM
    if dimension == 2:
        update[:] = int(_NORM / np.sqrt(2))
    largest = exact = 0.0
    for pattern in oracles.patterns(participation):
        for signs in itertools.product([1, -1], repeat=len(pattern) - 1):
            delta = np.zeros((_ROUNDS, 1, dimension), np.int64)
            delta[list(pattern), 0] = np.multiply.outer((1, *signs), update)
            other = (w.reshape(_ROUNDS, _TRIALS, dimension) - delta).reshape(_ROUNDS, -1)
            moved = z - _noise_of(kernel, other).reshape(z.shape)
            squared = ((moved * scale) ** 2).sum(axis=(0, 2))
            largest = max(largest, np.sqrt(squared.max()) / _SIGMA)
            exact = max(exact, np.linalg.norm(matrix @ delta.reshape(_ROUNDS, -1)) / _SIGMA)
    return largest, exact


# Sums of integers alone: their predictions are integers, and nothing is rounded.
_INTEGRAL = {'tree', 'tree_by_prefix_sums', 'restarted_tree'}


@pytest.mark.parametrize('name', mechanism_cases.FACTORIES)
def test_no_shift_exceeds_the_bound_and_some_come_close(name):
    mechanism = mechanism_cases.FACTORIES[name](_ROUNDS)
    for dimension in (1, 2):
        _check_shift(mechanism, dimension, is_rounded=name not in _INTEGRAL)


def _check_shift(mechanism, dimension, is_rounded):
    participation = Participation(_ROUNDS, 2)
    added = stream.shift(mechanism.kernel(), _ROUNDS, dimension, _SIGMA)
    largest, exact = _largest_shift(mechanism, participation, dimension)
    assert largest <= exact * (1 + stream.COEFFICIENTS) + added
    assert largest > 0.9 * (exact + added)
    # What is counted without rounding is never less than C times the updates.
    counted = mechanism.sensitivity(participation) * _NORM / _SIGMA
    assert exact <= counted * (1 + 1e-12)
    if added and is_rounded:  # Without counting the rounding, it would be wrong.
        assert largest > exact * (1 + 1e-6)


def test_rounds_without_a_prediction_are_not_rounded():
    assert stream.shift(mechanisms.Identity(9).kernel(), 9, 2**28, 1.0) == 0
    restarted = mechanisms.Restarted(mechanisms.Blt(4, [0.5], [0.3]), [4], 8).kernel()
    errors = stream.prediction_errors(restarted, 8, 1.0)
    np.testing.assert_array_equal(np.isnan(errors), np.arange(8) % 4 == 0)


def test_growing_noise_has_no_bound():
    """C^-1 of this one grows by 4 with each round: its integers leave float64."""
    growing = mechanisms.BandedToeplitz(40, [1.0, 4.0])
    assert stream.shift(growing.kernel(), 40, 10, 2.0**40) == np.inf
    assert stream.shift(growing.with_rounds(3).kernel(), 3, 10, 2.0**40) < 1e-3
    fast = kernels.StateSpace(np.array([[[1.0, -3.0], [1.0, -3.0]]]))
    assert stream.shift(fast, 2000, 10, 2.0**40) == np.inf
