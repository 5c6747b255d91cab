"""Tests of what every test with the mark `tff` refuses."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import dpfl

pytestmark = pytest.mark.tff


def _in_a_module_of_dpfl(expression):
    path = pathlib.Path(dpfl.__file__).with_name('example.py')
    return eval(compile(f'lambda a, b: {expression}', path, 'eval'))


@pytest.mark.parametrize('comparison', ['a == b', 'a != b', '(a, b) == (1, b)'])
def test_comparison_by_identity_is_refused(comparison):
    with pytest.raises(AssertionError, match='compares tensors by identity'):
        tff.tensorflow.computation(np.int32, np.int32)(_in_a_module_of_dpfl(comparison))


def test_comparison_of_values_is_not():
    equal = _in_a_module_of_dpfl('a == b')
    assert equal(tf.constant(1), tf.constant(1))
    assert tf.function(equal)(tf.constant(1), tf.constant(1))


def test_what_to_write_instead():
    @tff.tensorflow.computation(np.int32, np.int32)
    def equal(a, b):
        return tf.equal(a, b)

    assert equal(1, 1) and not equal(1, 2)
