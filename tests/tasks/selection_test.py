"""The six criteria of [Augenstein20], table 1, on small data."""

import collections

import numpy as np
import pytest

from dpfl.tasks import selection

_NUMBERS = np.arange(10)


def _is_even(examples):
    return np.asarray(examples) % 2 == 0


def test_random_examples_are_a_function_of_seed_and_client_and_have_the_rate():
    half = selection.random_examples(0.5, seed=1)
    many = np.arange(10_000)
    chosen = half.apply(3, many)
    np.testing.assert_array_equal(chosen, half.apply(3, many))
    assert len(chosen) == pytest.approx(5_000, abs=300)  # Six standard deviations.
    assert set(chosen) != set(half.apply(4, many))
    assert len(selection.random_examples(0.0, seed=1).apply(3, many)) == 0
    assert half.task == 'T1'


def test_mistakes_and_hits_are_all_examples():
    wrong, right = selection.by_outcome(_is_even), selection.by_outcome(_is_even, correct=True)
    assert wrong.apply(0, _NUMBERS).tolist() == [1, 3, 5, 7, 9]
    assert right.apply(0, _NUMBERS).tolist() == [0, 2, 4, 6, 8]


def test_a_client_with_too_few_examples_takes_no_part():
    five, six = (selection.by_outcome(_is_even, min_examples=n) for n in (5, 6))
    assert len(five.apply(0, _NUMBERS)) == 5
    assert len(six.apply(0, _NUMBERS)) == 0


def test_unknown_labels_of_a_list_stay_a_list():
    chosen = selection.unknown_labels({'a', 'b'}.__contains__)
    assert chosen.apply(0, ['a', 'c', 'b', 'd d', 'c']) == ['c', 'd d', 'c']
    assert chosen.apply(0, []) == []


@pytest.mark.parametrize(
    'bounds, expected',
    [
        (dict(at_most=0.5), [0, 1]),
        (dict(at_least=0.5), [1, 2]),
        (dict(at_least=0.6), [2]),
    ],
)
def test_clients_by_accuracy_come_whole_or_not_at_all(bounds, expected):
    clients = {0: np.array([1, 3, 5]), 1: np.array([1, 2, 3, 4]), 2: np.array([2, 4])}
    chosen = selection.clients_by_accuracy(_is_even, **bounds)
    kept = {client: chosen.apply(client, data) for client, data in clients.items()}
    assert [client for client in clients if len(kept[client])] == expected
    assert all(len(kept[client]) == len(clients[client]) for client in expected)
    assert len(chosen.apply(3, np.zeros(0))) == 0


def test_unlabeled_examples_of_a_mapping_keep_their_columns():
    examples = collections.OrderedDict(x=np.eye(3), y=np.array([4, -1, -1]))
    chosen = selection.unlabeled(lambda data: data['y'] >= 0).apply(0, examples)
    assert type(chosen) is collections.OrderedDict
    assert chosen['y'].tolist() == [-1, -1]
    np.testing.assert_array_equal(chosen['x'], np.eye(3)[1:])


def test_underrepresented_by_density_and_by_ratio():
    training = np.log(np.array([0.5, 0.1, 0.1, 0.3]))
    serving = np.log(np.array([0.1, 0.1, 0.7, 0.1]))
    names = np.array(list('abcd'))
    rare = selection.underrepresented(lambda data: training, np.log(0.2))
    assert rare.apply(0, names).tolist() == ['b', 'c']
    ratio = selection.underrepresented(lambda data: training, np.log(0.5), lambda data: serving)
    assert ratio.apply(0, names).tolist() == ['c']


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda: selection.random_examples(float('nan'), 0), 'rate=nan: must be'),
        (lambda: selection.random_examples(0.1, -1), 'seed=-1: must be'),
        (lambda: selection.by_outcome(_is_even, min_examples=0), 'min_examples=0: must be'),
        (lambda: selection.clients_by_accuracy(_is_even, 0.6, 0.5), 'at_most=0.5: must be'),
        (lambda: selection.underrepresented(len, float('nan')), 'threshold=nan: must be'),
        (
            lambda: selection.by_outcome(lambda data: [True]).apply(0, _NUMBERS),
            r'mask=\(1,\): must be',
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=f'^{message}'):
        make()
