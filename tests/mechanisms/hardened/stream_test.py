"""Integer noise against exact rational arithmetic: replay, bits, and the error of predictions.

The shift of integer noise between neighbours is compared with its bound, for every pattern.
"""

import fractions
import itertools

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import kernels
from dpfl.mechanisms.hardened import discrete_gaussian, stream
from tests import mechanism_cases, oracles

_ROUNDS = 12
_SIGMA = 2.0**40


def _drawn(kernel, rounds, size, sigma=_SIGMA, seed=0):
    """Noise z of each round with its own standard deviation, int64 [rounds, size]."""
    return np.array(
        [
            discrete_gaussian.DiscreteGaussian(sigma * stream.step(kernel, t).stddev).draw(
                discrete_gaussian.Keystream(discrete_gaussian.seeded_key(seed), t), size
            )
            for t in range(rounds)
        ]
    )


def _streamed(kernel, z):
    buffers = np.zeros((kernel.buffers, z.shape[1]))
    return np.array([stream.step(kernel, t).apply(row, buffers) for t, row in enumerate(z)])


def _predictions(kernel, w):
    """Exact predictions, rational numbers [rounds], from w of one coordinate, Python integers.

    Straight from the kernel: `C^-1` streamed with v = (w - p) / first, so that its output is w.
    """
    exact = fractions.Fraction
    buffers = [exact(0)] * kernel.buffers
    predictions = []
    for t, output in enumerate(w):
        row = kernel.table[kernel.row(t)].tolist()
        if isinstance(kernel, kernels.StateSpace):
            first = exact(row[0][0])
            p = sum((exact(a) * s for a, s in zip(row[0][1:], buffers, strict=True)), exact(0))
            v = (output - p) / first
            buffers = [
                exact(line[0]) * v
                + sum(exact(a) * s for a, s in zip(line[1:], buffers, strict=True))
                for line in row[1:]
            ]
        elif isinstance(kernel, kernels.BandedSolve):
            past = zip(row[1:], buffers, strict=True)
            p = -sum((exact(a) * s for a, s in past), exact(0)) / exact(row[0])
            buffers = [exact(output), *buffers][: kernel.buffers]
        else:
            p = sum((exact(a) * s for a, s in zip(row[1:], buffers, strict=True)), exact(0))
            buffers = [(output - p) / exact(row[0]), *buffers][: kernel.buffers]
        predictions.append(p)
    return predictions


@pytest.fixture(
    name='kernel', params=mechanism_cases.FACTORIES.values(), ids=mechanism_cases.FACTORIES
)
def _kernel(request):
    return request.param(_ROUNDS).kernel()


def test_exact_replay_in_python_integers(kernel):
    """The noise w is z plus the rounded prediction, and no prediction is further off than E."""
    z = _drawn(kernel, _ROUNDS, 3)
    w = _streamed(kernel, z)
    errors = np.nan_to_num(stream.prediction_errors(kernel, _ROUNDS, _SIGMA))
    equal = 0
    for column in range(3):
        exact = _predictions(kernel, w[:, column].tolist())
        for t, p in enumerate(exact):
            added = int(w[t, column]) - int(z[t, column])
            assert abs(added - p) <= fractions.Fraction(1, 2) + fractions.Fraction(errors[t])
            equal += added == round(p)
    assert equal > 0.9 * 3 * _ROUNDS


@pytest.mark.parametrize('rounds', [60, pytest.param(200, marks=pytest.mark.standard)])
def test_the_coefficients_are_those_of_the_matrix(rounds):
    """What `rounding.COEFFICIENTS` says of the kernels: C from w to z."""
    checked = 0
    for name, make in mechanism_cases.FACTORIES.items():
        mechanism = make(rounds)
        kernel = mechanism.kernel()
        if np.isinf(stream.shift(kernel, rounds, 1, _SIGMA)):
            continue  # Refused: its noise grows.
        matrix, streamed = mechanism.strategy_matrix(), np.zeros((rounds, rounds))
        buffers = np.zeros((kernel.buffers, rounds))
        for t in range(rounds):
            # w is 2^40 in one round of each column: integers, whose rounding is 2^-41 relative.
            wanted = np.zeros(rounds, np.int64)
            wanted[t] = 2**40
            step = stream.step(kernel, t)
            added = step.apply(np.zeros_like(wanted), buffers.copy())
            step.apply(wanted - added, buffers)
            streamed[t] = (wanted - added) / 2.0**40 / step.stddev
        error = np.linalg.norm(streamed - matrix, 2) / np.linalg.norm(matrix, 2)
        assert error <= stream.COEFFICIENTS, name
        np.testing.assert_allclose(stream.stddevs(kernel, rounds), 1 / np.diag(matrix))
        checked += 1
    assert checked >= len(mechanism_cases.FACTORIES) - 3


def test_predictions_over_many_rounds_keep_their_bound():
    """Errors of a BLT add up, and stay within E; E is not far above them."""
    rounds = 150
    kernel = mechanisms.Blt(rounds, [0.999, 0.9, 0.5], [0.03, 0.1, 0.2]).kernel()
    w = _streamed(kernel, _drawn(kernel, rounds, 2))
    bound = stream.prediction_errors(kernel, rounds, _SIGMA)
    largest = 0.0
    for column in range(2):
        exact = _predictions(kernel, w[:, column].tolist())
        buffers = np.zeros((kernel.buffers, 1))
        for t in range(rounds):
            step = stream.step(kernel, t)
            p = sum(a * buffers[j] for j, a in step.recall)
            error = abs(float(fractions.Fraction(float(p[0])) - exact[t]))
            if t:
                assert error <= bound[t]
                largest = max(largest, error / bound[t])
            forced = w[t, column] - int(np.rint(p[0]))
            assert step.apply(np.array([forced]), buffers)[0] == w[t, column]
    assert largest > 1e-4


@pytest.mark.parametrize('name', ['honaker_tree', 'banded_toeplitz', 'banded_inverse'])
def test_the_bits_do_not_depend_on_where_a_block_is(name):
    kernel = mechanism_cases.FACTORIES[name](20).kernel()
    z = _drawn(kernel, 20, 64)
    alone = _streamed(kernel, z)
    others = np.zeros(3 * kernel.buffers * 64 + 1)[1:].reshape(3, kernel.buffers, 64)
    for t in range(20):
        for block in (2, 0, 1):
            np.testing.assert_array_equal(
                stream.step(kernel, t).apply(z[t], others[block]), alone[t]
            )


_FEW_ROUNDS, _SMALL_SIGMA, _NORM = 4, 2.0**9, 33
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
    w = rng.integers(
        -3 * int(_SMALL_SIGMA), 3 * int(_SMALL_SIGMA), (_FEW_ROUNDS, _TRIALS * dimension)
    )
    z = _noise_of(kernel, w).reshape(_FEW_ROUNDS, _TRIALS, dimension)
    scale = np.diag(matrix)[:, None, None]
    # Integer updates of one client, of norm at most _NORM.
    update = np.zeros(dimension, np.int64)
    update[0] = _NORM
    if dimension == 2:
        update[:] = int(_NORM / np.sqrt(2))
    largest = exact = 0.0
    for pattern in oracles.patterns(participation):
        for signs in itertools.product([1, -1], repeat=len(pattern) - 1):
            delta = np.zeros((_FEW_ROUNDS, 1, dimension), np.int64)
            delta[list(pattern), 0] = np.multiply.outer((1, *signs), update)
            other = (w.reshape(_FEW_ROUNDS, _TRIALS, dimension) - delta).reshape(_FEW_ROUNDS, -1)
            moved = z - _noise_of(kernel, other).reshape(z.shape)
            squared = ((moved * scale) ** 2).sum(axis=(0, 2))
            largest = max(largest, np.sqrt(squared.max()) / _SMALL_SIGMA)
            exact = max(
                exact, np.linalg.norm(matrix @ delta.reshape(_FEW_ROUNDS, -1)) / _SMALL_SIGMA
            )
    return largest, exact


# Sums of integers alone: their predictions are integers, and nothing is rounded.
_INTEGRAL = {'tree', 'tree_by_prefix_sums', 'restarted_tree'}


@pytest.mark.parametrize('name', mechanism_cases.FACTORIES)
def test_no_shift_exceeds_the_bound_and_some_come_close(name):
    mechanism = mechanism_cases.FACTORIES[name](_FEW_ROUNDS)
    for dimension in (1, 2):
        _check_shift(mechanism, dimension, is_rounded=name not in _INTEGRAL)


def _check_shift(mechanism, dimension, is_rounded):
    participation = Participation(_FEW_ROUNDS, 2)
    added = stream.shift(mechanism.kernel(), _FEW_ROUNDS, dimension, _SMALL_SIGMA)
    largest, exact = _largest_shift(mechanism, participation, dimension)
    assert largest <= exact * (1 + stream.COEFFICIENTS) + added
    assert largest > 0.9 * (exact + added)
    # What is counted without rounding is never less than C times the updates.
    counted = mechanism.sensitivity(participation) * _NORM / _SMALL_SIGMA
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
