"""Digests of data: they tell data apart, and are no test of guesses without the key."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from dpfl.simulation import data_digest

_KEY = bytes(range(32))


def _batch(values, labels=(1,)):
    return collections.OrderedDict(x=np.array(values), y=np.array(labels))


@pytest.mark.parametrize(
    'changed',
    [
        [[_batch([1, 2])], [_batch([4])]],
        [[_batch([1, 2])], [_batch([3], [2])]],
        [[_batch([1, 2]), _batch([3])], []],
        [[], [_batch([1, 2]), _batch([3])]],
        [[_batch([1]), _batch([2])], [_batch([3])]],
        [[_batch([[1, 2]])], [_batch([3])]],
        [[_batch([1.0, 2.0])], [_batch([3])]],
        [[_batch([3])], [_batch([1, 2])]],
        [[_batch([1, 2])], [_batch([3])], []],
        [[_batch([1, 2])], [_batch(['3'])]],
    ],
)
def test_other_data_have_another_digest(changed):
    data = [[_batch([1, 2])], [_batch([3])]]
    digest = data_digest.of_cohort(_KEY, data)
    assert digest == data_digest.of_cohort(_KEY, [[_batch([1, 2])], [_batch([3])]])
    assert digest != data_digest.of_cohort(_KEY, changed)
    assert len(digest) == 64


def test_another_key_gives_another_digest():
    data = [[_batch([1, 2])]]
    assert data_digest.of_cohort(_KEY, data) != data_digest.of_cohort(_KEY[::-1], data)
    one, other = (data_digest.of_file(key, 'data', 'abc') for key in (_KEY, _KEY[::-1]))
    assert one != other != data_digest.of_file(_KEY, 'vocabulary', 'abc')


def test_strings_are_told_apart_by_what_they_say():
    def of(*words):
        return data_digest.of_cohort(_KEY, [[{'x': np.array(words, dtype=object)}]])

    assert of(b'one', b'two') == of(b'one', bytes(bytearray(b'two')))
    assert len({of(b'one', b'two'), of(b'onet', b'wo'), of(b'two', b'one'), of('one')}) == 4


def test_parts_of_arrays_and_all_types_are_taken():
    whole = np.arange(12).reshape(3, 4)
    part = data_digest.of_cohort(_KEY, [[(whole[:, 1:],)]])
    assert part == data_digest.of_cohort(_KEY, [[(whole[:, 1:].copy(),)]])
    for dtype in (tf.bfloat16.as_numpy_dtype, np.bool_, np.complex64, 'datetime64[s]'):
        array = np.zeros((0, 2), dtype), np.zeros((), dtype)
        assert len(data_digest.of_cohort(_KEY, [[array]])) == 64
