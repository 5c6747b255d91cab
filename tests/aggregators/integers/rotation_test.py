"""The fast transform against Hadamard matrices."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import linalg

from dpfl.aggregators import discretized
from dpfl.aggregators.noise import draws


@pytest.mark.parametrize('bits', range(12))
def test_fast_transform_is_the_product_with_the_matrix(bits):
    size = 2**bits
    vector = np.random.default_rng(bits).normal(size=size)
    expected = linalg.hadamard(size) @ vector / np.sqrt(size)
    np.testing.assert_allclose(discretized.hadamard(tf.constant(vector)), expected, atol=1e-12)
    single = discretized.hadamard(tf.constant(vector, tf.float32))
    assert single.dtype == tf.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)


@pytest.mark.parametrize('size', [1, 2, 3, 5, 8, 33, 1000])
def test_rotating_back_undoes_it_and_keeps_the_norm(size):
    padded = 1 << (size - 1).bit_length() if size > 1 else 2
    vector = np.random.default_rng(size).normal(size=size).astype(np.float32)
    sign = discretized.signs(draws.seeded_root_key(1), size)
    rotated = discretized.rotate(tf.constant(vector), sign, padded)
    assert rotated.shape == [padded]
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(vector), rel=1e-5)
    np.testing.assert_allclose(discretized.rotate_back(rotated, sign), vector, atol=1e-5)


def test_signs_are_even_and_differ_between_keys():
    root = draws.seeded_root_key(4)
    first, second = (discretized.signs(draws.derive(root, t), 100_000).numpy() for t in (0, 1))
    np.testing.assert_array_equal(np.abs(first), 1)
    # 5 standard errors of a mean of 100,000.
    assert abs(first.mean()) < 0.016
    assert abs((first * second).mean()) < 0.016
    assert abs((first[1:] * first[:-1]).mean()) < 0.016
    np.testing.assert_array_equal(discretized.signs(draws.derive(root, 0), 100_000), first)
