"""Comparison of tensors by identity is refused in every test with the mark `tff`."""

import pathlib

import numpy as np
import pytest
import tensorflow_federated as tff

import dpfl

pytestmark = pytest.mark.tff


@pytest.mark.parametrize('comparison', ['a == b', 'a != b', '(a, b) == (1, b)'])
def test_comparison_by_identity_is_refused(comparison):
    path = pathlib.Path(dpfl.__file__).with_name('example.py')
    compare = eval(compile(f'lambda a, b: {comparison}', path, 'eval'))
    with pytest.raises(AssertionError, match='compares tensors by identity'):
        tff.tensorflow.computation(np.int32, np.int32)(compare)
