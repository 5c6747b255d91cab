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
from tests.sizes import standard

_ROUNDS = 12
_SIGMA = 2.0**40


def _drawn(kernel, rounds, size):
    """Noise z of each round with its own standard deviation, int64 [rounds, size]."""
    key, z = discrete_gaussian.seeded_key(0), []
    for t in range(rounds):
        sampler = discrete_gaussian.DiscreteGaussian(_SIGMA * stream.step(kernel, t).stddev)
        z.append(sampler.draw(discrete_gaussian.Keystream(key, t), size))
    return np.array(z)


def _streamed(kernel, z):
    buffers = np.zeros((kernel.buffers, z.shape[1]))
    return np.array([stream.step(kernel, t).apply(row, buffers) for t, row in enumerate(z)])


def _predictions(kernel, w):
    """Exact predictions, rational numbers [rounds], from w of one coordinate, Python integers.

    Straight from the kernel: `C^-1` streamed with v = (w - p) / first, so that its output is w.
    """
    exact = fractions.Fraction

    def combined(coefficients, buffers):
        return sum((exact(a) * s for a, s in zip(coefficients, buffers, strict=True)), exact(0))

    buffers = [exact(0)] * kernel.buffers
    predictions = []
    for t, output in enumerate(w):
        row = kernel.table[kernel.row(t)].tolist()
        if isinstance(kernel, kernels.StateSpace):
            p = combined(row[0][1:], buffers)
            v = (output - p) / exact(row[0][0])
            buffers = [exact(line[0]) * v + combined(line[1:], buffers) for line in row[1:]]
        elif isinstance(kernel, kernels.BandedSolve):
            p = -combined(row[1:], buffers) / exact(row[0])
            buffers = [exact(output), *buffers][: kernel.buffers]
        else:
            p = combined(row[1:], buffers)
            buffers = [(output - p) / exact(row[0]), *buffers][: kernel.buffers]
        predictions.append(p)
    return predictions


@mechanism_cases.every
def test_exact_replay_in_python_integers(make):
    """The noise w is z plus the rounded prediction, and no prediction is further off than E."""
    kernel = make(_ROUNDS).kernel()
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


def _noise_of(kernel, w):
    """Noise z for given w, [rounds, ...] integers: the inverse of the stream."""
    buffers = np.zeros((kernel.buffers, w.shape[1]))
    z = []
    for t, wanted in enumerate(w):
        step = stream.step(kernel, t)
        # A round changes its buffers: ask a copy what it would add to no noise.
        added = step.apply(np.zeros_like(wanted), buffers.copy())
        np.testing.assert_array_equal(step.apply(wanted - added, buffers), wanted)
        z.append(wanted - added)
    return np.array(z)


@pytest.mark.parametrize('rounds', [60, standard(200)])
def test_the_coefficients_are_those_of_the_matrix(rounds):
    """What `rounding.COEFFICIENTS` says of the kernels: C from w to z."""
    checked = 0
    for name, make in mechanism_cases.FACTORIES.items():
        mechanism = make(rounds)
        kernel = mechanism.kernel()
        if np.isinf(stream.shift(kernel, rounds, 1, _SIGMA)):
            continue  # Refused: its noise grows.
        stddevs = stream.stddevs(kernel, rounds)
        # w is 2^40 in one round of each column: integers, whose rounding is 2^-41 relative.
        z = _noise_of(kernel, np.diag(np.full(rounds, 2**40)))
        matrix = mechanism.strategy_matrix()
        error = np.linalg.norm(z / 2.0**40 / stddevs[:, None] - matrix, 2)
        assert error <= stream.COEFFICIENTS * np.linalg.norm(matrix, 2), name
        np.testing.assert_allclose(stddevs, 1 / np.diag(matrix))
        assert [stream.step(kernel, t).stddev for t in range(rounds)] == stddevs.tolist()
        checked += 1
    assert checked >= len(mechanism_cases.FACTORIES) - 3


def test_predictions_over_many_rounds_keep_their_bound():
    """Errors of a BLT add up, and stay within E; E is not far above them."""
    rounds = 150
    kernel = mechanisms.Blt(rounds, [0.999, 0.9, 0.5], [0.03, 0.1, 0.2]).kernel()
    w = _streamed(kernel, _drawn(kernel, rounds, 2))
    bound = stream.prediction_errors(kernel, rounds, _SIGMA)
    exact = np.array([_predictions(kernel, column) for column in w.T.tolist()]).T
    buffers, largest = np.zeros((kernel.buffers, 2)), 0.0
    for t in range(rounds):
        step = stream.step(kernel, t)
        predicted = sum(a * buffers[j] for j, a in step.recall)
        np.testing.assert_array_equal(
            step.apply(w[t] - np.rint(predicted).astype(int), buffers), w[t]
        )
        for found, truth in zip(predicted.tolist(), exact[t], strict=True) if t else ():
            error = abs(float(fractions.Fraction(found) - truth))
            assert error <= bound[t]
            largest = max(largest, error / bound[t])
    assert largest > 1e-4
    # Where a buffer adds up all noise, errors add up: as t^(3/2), those of one round as t^(1/2).
    adding = mechanisms.Blt(401, [1.0], [1e-6]).kernel()
    errors = stream.prediction_errors(adding, 401, _SIGMA)
    assert 6 * errors[100] < errors[400] < 9 * errors[100]


_FEW_ROUNDS, _SMALL_SIGMA, _NORM = 4, 2.0**9, 33
_TRIALS = 2_000


def _largest_shift(mechanism, participation, dimension):
    """The largest norm that was found, in sigmas, and that of C times the same updates."""
    kernel, rng = mechanism.kernel(), np.random.default_rng(0)
    matrix, most = mechanism.strategy_matrix(), 3 * int(_SMALL_SIGMA)
    shape = (_FEW_ROUNDS, _TRIALS, dimension)
    w = rng.integers(-most, most, (_FEW_ROUNDS, _TRIALS * dimension))
    z = _noise_of(kernel, w)
    # Integer updates of one client, of norm at most _NORM.
    update = np.array([_NORM] if dimension == 1 else [int(_NORM / np.sqrt(2))] * 2)
    largest = exact = 0.0
    for pattern in oracles.patterns(participation):
        for signs in itertools.product([1, -1], repeat=len(pattern) - 1):
            delta = np.zeros((_FEW_ROUNDS, dimension), np.int64)
            delta[list(pattern)] = np.multiply.outer((1, *signs), update)
            moved = z - _noise_of(kernel, w - np.tile(delta, _TRIALS))
            scaled = moved.reshape(shape) * np.diag(matrix)[:, None, None]
            largest = max(largest, np.linalg.norm(scaled, axis=(0, 2)).max() / _SMALL_SIGMA)
            exact = max(exact, np.linalg.norm(matrix @ delta) / _SMALL_SIGMA)
    return largest, exact


# Sums of integers alone: their predictions are integers, and nothing is rounded.
_INTEGRAL = {'tree', 'tree_by_prefix_sums', 'restarted_tree'}


@pytest.mark.parametrize('name', mechanism_cases.FACTORIES)
def test_no_shift_exceeds_the_bound_and_some_come_close(name):
    mechanism, schema = mechanism_cases.FACTORIES[name](_FEW_ROUNDS), Participation(_FEW_ROUNDS, 2)
    for dimension in (1, 2):
        added = stream.shift(mechanism.kernel(), _FEW_ROUNDS, dimension, _SMALL_SIGMA)
        largest, exact = _largest_shift(mechanism, schema, dimension)
        assert largest <= exact * (1 + stream.COEFFICIENTS) + added
        assert largest > 0.9 * (exact + added)
        # What is counted without rounding is never less than C times the updates.
        assert exact <= mechanism.sensitivity(schema) * _NORM / _SMALL_SIGMA * (1 + 1e-12)
        if added and name not in _INTEGRAL:  # Without counting the rounding, it would be wrong.
            assert largest > exact * (1 + 1e-6)


def test_rounds_without_a_prediction_are_not_rounded():
    assert stream.shift(mechanisms.Identity(9).kernel(), 9, 2**28, 1.0) == 0
    restarted = mechanisms.Restarted(mechanisms.Blt(4, [0.5], [0.3]), [4], 8).kernel()
    errors = stream.prediction_errors(restarted, 8, 1.0)
    np.testing.assert_array_equal(np.isnan(errors), np.arange(8) % 4 == 0)


@pytest.mark.parametrize('restarts', [(), (2,)])
@pytest.mark.parametrize('name', mechanism_cases.FACTORIES)
def test_a_run_that_stops_early_is_rounded_like_a_shorter_one(name, restarts):
    mechanism = mechanism_cases.FACTORIES[name](6)
    if not mechanism.shortens:
        return
    if restarts:
        mechanism = mechanisms.Restarted(mechanism, restarts, 6)
    for rounds in range(1, 6):
        shorter = mechanism.with_rounds(rounds).kernel()
        of_shorter, of_first = (
            [stream.shift(kernel, rounds, 10, _SIGMA), *stream.stddevs(kernel, rounds)]
            for kernel in (shorter, mechanism.kernel())
        )
        np.testing.assert_allclose(of_first, of_shorter, rtol=1e-12)


def test_growing_noise_has_no_bound():
    """C^-1 of this one grows by 4 with each round: its integers leave float64."""
    growing = mechanisms.BandedToeplitz(40, [1.0, 4.0])
    assert stream.shift(growing.kernel(), 40, 10, 2.0**40) == np.inf
    assert stream.shift(growing.with_rounds(3).kernel(), 3, 10, 2.0**40) < 1e-3
    fast = kernels.StateSpace(np.array([[[1.0, -3.0], [1.0, -3.0]]]))
    assert stream.shift(fast, 2000, 10, 2.0**40) == np.inf
