"""Integer noise against exact rational arithmetic: replay, bits, and the error of predictions."""

import fractions

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.mechanisms import kernels
from dpfl.mechanisms.hardened import discrete_gaussian, stream
from tests import mechanism_cases

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
