"""Kernels as they are and in place, and where their past noise is kept."""

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.mechanisms import kernels
from dpfl.mechanisms.hardened import stream as hardened_stream
from tests import mechanism_cases

_ROUNDS = 20


def _streamed(kernel, z):
    buffers = np.zeros((kernel.buffers, z.shape[1]), z.dtype)
    out = np.empty_like(z)
    for t in range(len(z)):
        kernels.step(kernel, t, z.dtype).apply(z[t], buffers, out[t])
    return out


@pytest.mark.parametrize('bands', [1, 2, 5, 9])
def test_banded_kernels_are_a_solve_and_a_product(bands):
    rng = np.random.default_rng(bands)
    # What lies left of the matrix must not matter.
    diagonals, z = rng.normal(size=(9, bands)), rng.normal(size=(9, 2))
    diagonals[:, 0] = rng.uniform(0.5, 2, size=9)
    matrix = np.zeros((9, 9))
    for t in range(9):
        for j in range(min(bands, t + 1)):
            matrix[t, t - j] = diagonals[t, j]
    solve, product = mechanisms.BandedSolve(diagonals), mechanisms.BandedProduct(diagonals)
    for stream in (mechanisms.stream, _streamed):
        np.testing.assert_allclose(stream(solve, z), np.linalg.solve(matrix, z), 1e-9, 1e-9)
        np.testing.assert_allclose(stream(product, z), matrix @ z, 1e-10, 1e-10)


@mechanism_cases.every
def test_rows_in_place_are_those_of_the_kernel(make):
    kernel = make(_ROUNDS).kernel()
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        z = np.random.default_rng(0).normal(size=(_ROUNDS, 7)).astype(dtype)
        expected = mechanisms.stream(kernel, z)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(_streamed(kernel, z), expected, atol=tolerance * scale)


def _row_in_float32(kernel, t, z, buffers):
    out = np.empty(z.size + 1, np.float32)[1:]
    kernels.step(kernel, t, np.float32).apply(z.astype(np.float32), buffers, out)
    return out


def _row_in_integers(kernel, t, z, buffers):
    return hardened_stream.step(kernel, t).apply(z, buffers)


@pytest.mark.parametrize('name', ['honaker_tree', 'banded_toeplitz', 'banded_inverse'])
@pytest.mark.parametrize(
    'row, dtype', [(_row_in_float32, np.float32), (_row_in_integers, np.float64)]
)
def test_the_bits_do_not_depend_on_where_a_block_is(name, row, dtype):
    kernel = mechanism_cases.FACTORIES[name](_ROUNDS).kernel()
    z = np.random.default_rng(0).integers(-(2**41), 2**41, (_ROUNDS, 64))
    shape = (3, kernel.buffers, 64)
    alone = np.zeros(shape[1:], dtype)
    among_others = np.zeros(np.prod(shape) + 1, dtype)[1:].reshape(shape)
    for t in range(_ROUNDS):
        expected = row(kernel, t, z[t], alone)
        for block in (2, 0, 1):
            found = row(kernel, t, z[t], among_others[block])
            np.testing.assert_array_equal(found, expected)


def test_float32_stays_near_float64_over_many_rounds():
    mechanism = mechanisms.BandedToeplitz.fichtenberger(1000, 342)
    z = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    exact = mechanisms.stream(mechanism.kernel(), z)
    error = _streamed(mechanism.kernel(), z) - exact
    # The rows have standard deviation 1.1; measured 2e-7 and 2e-6 over 2000 rounds.
    assert np.sqrt(np.square(error).mean()) < 4e-7
    assert np.abs(error).max() < 4e-6


_BLT = mechanisms.Blt(2000, [0.99, 0.9, 0.7, 0.2], [0.1] * 4).kernel()
_BANDED = mechanisms.BandedToeplitz.fichtenberger(2000, 342).kernel()
_PRODUCT = mechanisms.BandedInverse.square_root(2000, 32).kernel()
_IDENTITY = mechanisms.Identity(2000).kernel()


@pytest.mark.parametrize(
    'kernel, dimension, limit, noise, name, gigabytes',
    [
        (_IDENTITY, 10**9, 0.0, 'default', 'state', 0.0),
        (_BLT, 10_000, 1.0, 'default', 'state', 160e-6),
        (_BLT, 1_000_000, 1.0, 'default', 'state', 0.016),
        (_BLT, 1_000_001, 1.0, 'default', 'memory', 0.016),
        (_BLT, 10_000, 0.0001, 'default', 'file', 160e-6),
        (_BANDED, 2_400_000, 4.0, 'default', 'memory', 3.2736),
        (_BANDED, 2_400_000, 1.0, 'default', 'file', 3.2736),
        (_PRODUCT, 10_000, 1.0, 'default', 'regenerated', 0.0),
        (_PRODUCT, 2_400_000, 1.0, 'default', 'memory', 0.2976),
        (_PRODUCT, 2_400_000, 0.1, 'default', 'regenerated', 0.0),
        # It is made outside of TFF, so it is never in the state.
        (_IDENTITY, 10, 0.0, 'hardened', 'memory', 0.0),
        (_BLT, 10_000, 1.0, 'hardened', 'memory', 320e-6),
        (_BLT, 10_000, 0.0001, 'hardened', 'file', 320e-6),
        (_PRODUCT, 2_400_000, 0.1, 'hardened', 'file', 0.5952),
    ],
)
def test_storage_follows_from_the_bytes(kernel, dimension, limit, noise, name, gigabytes):
    storage = mechanisms.choose_noise_storage(kernel, dimension, limit, noise)
    assert storage.name == name
    assert storage.gigabytes == pytest.approx(gigabytes, rel=1e-3, abs=1e-12)
    assert storage.is_supplied == (name in ('memory', 'file'))


def test_tables_that_do_not_fit_are_refused():
    for kind in (mechanisms.StateSpace, mechanisms.BandedSolve, mechanisms.BandedProduct):
        with pytest.raises(ValueError, match=r'kernel table has shape \(3,\): must be'):
            kind(np.ones(3))
