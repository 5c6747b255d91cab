"""Streaming in place against the NumPy interpreter of the kernels, and its bits."""

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.mechanisms.streaming import ring_steps
from tests import mechanism_cases

_ROUNDS = 20


def _streamed(kernel, z):
    buffers = np.zeros((kernel.buffers, z.shape[1]), z.dtype)
    out = np.empty_like(z)
    for t in range(len(z)):
        _step(kernel, t, z, buffers, out[t])
    return out


def _step(kernel, t, z, buffers, out):
    step = ring_steps.step(kernel, t, z.dtype)
    step.apply(z[t], buffers, out)
    for lag, recall in ring_steps.recalled(step):
        recall(z[t - lag], buffers, out)


@pytest.mark.parametrize('make', mechanism_cases.FACTORIES.values(), ids=mechanism_cases.FACTORIES)
@pytest.mark.parametrize('dtype, tolerance', [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_rows_are_those_of_the_kernel(make, dtype, tolerance):
    kernel = make(_ROUNDS).kernel()
    z = np.random.default_rng(0).normal(size=(_ROUNDS, 7)).astype(dtype)
    expected = mechanisms.stream(kernel, z)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(_streamed(kernel, z), expected, atol=tolerance * scale)


@pytest.mark.parametrize(
    'kernel',
    [
        mechanisms.HonakerTree(_ROUNDS).kernel(),
        mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, 9).kernel(),
        mechanisms.BandedInverse.square_root(_ROUNDS, 9).kernel(),
        mechanism_cases.FACTORIES['lagged_blt'](_ROUNDS).kernel(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_the_bits_do_not_depend_on_where_a_block_is(kernel):
    z = np.random.default_rng(0).normal(size=(_ROUNDS, 64)).astype(np.float32)
    alone = _streamed(kernel, z)
    shape = (3, kernel.buffers, 64)
    among_others = np.zeros(np.prod(shape) + 1, np.float32)[1:].reshape(shape)
    for t in range(_ROUNDS):
        out = np.empty((3, 65), np.float32)[:, 1:]
        for block in (2, 0, 1):
            _step(kernel, t, z, among_others[block], out[block])
        np.testing.assert_array_equal(out, np.stack([alone[t]] * 3))


def test_what_lies_left_of_the_matrix_does_not_matter():
    bands = np.array([[2.0, np.nan, np.nan], [1.0, 0.5, np.nan], [1.0, 0.5, 0.25]])
    z = np.ones((3, 1))
    np.testing.assert_allclose(
        _streamed(mechanisms.BandedSolve(bands), z)[:, 0], [0.5, 0.75, 1 - 0.375 - 0.125]
    )


def test_float32_stays_near_float64_over_2000_rounds():
    mechanism = mechanisms.BandedToeplitz.fichtenberger(2000, 342)
    z = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    exact = mechanisms.stream(mechanism.kernel(), z)
    error = _streamed(mechanism.kernel(), z) - exact
    # The rows have standard deviation 1.1; measured 2e-7 and 2e-6.
    assert np.sqrt(np.square(error).mean()) < 4e-7
    assert np.abs(error).max() < 4e-6
