"""Digests of data: they tell data apart, and are no test of guesses without the key."""

import collections

import numpy as np
import tensorflow as tf

from dpfl.simulation import data_digest

_KEY = bytes(range(32))


def _digest(clients, label=1, key=_KEY):
    """The digest of clients whose batches have these values."""
    labels = np.array([label])
    batches = [
        [collections.OrderedDict(x=np.array(values), y=labels) for values in client]
        for client in clients
    ]
    return data_digest.of_cohort(key, batches)


def test_other_data_have_another_digest():
    cohorts = [
        [[[1, 2]], [[3]]],
        [[[1, 2]], [[4]]],
        [[[1, 2], [3]], []],
        [[], [[1, 2], [3]]],
        [[[1], [2]], [[3]]],
        [[[[1, 2]]], [[3]]],
        [[[1.0, 2.0]], [[3]]],
        [[[3]], [[1, 2]]],
        [[[1, 2]], [[3]], []],
        [[[1, 2]], [['3']]],
    ]
    digests = [_digest(clients) for clients in cohorts]
    assert digests == [_digest(clients) for clients in cohorts]
    digests += [_digest(cohorts[0], label=2), _digest(cohorts[0], key=_KEY[::-1])]
    assert len(set(digests)) == 12 and {*map(len, digests)} == {64}


def test_another_key_or_purpose_gives_another_digest_of_a_file():
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
