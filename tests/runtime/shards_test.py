"""Shards hold every client once, separated from the others; cohorts are read one ahead."""

import collections
import threading

import numpy as np
import pytest

from dpfl import learning
from tests.learning import models

_SIZES = [[3, 2], [4], [], [4, 4, 1], [1], [4, 3]]


def _clients():
    return [models.client(seed, sizes) for seed, sizes in enumerate(_SIZES)]


def _read(shard):
    """The clients of a shard: lists of batches."""
    clients = []
    for batch in shard.as_numpy_iterator():
        if len(batch['x']):
            clients[-1].append(batch)
        else:
            clients.append([])
    return clients


def _bytes(client):
    return [(batch['x'].tobytes(), batch['y'].tobytes()) for batch in client]


@pytest.mark.parametrize('num_shards', [1, 2, 5])
def test_every_client_is_in_one_shard_with_its_own_batches(num_shards):
    """Also if its batches are those of a data set."""
    arrays, template = learning.shard(_clients(), num_shards), _clients()[0][0]
    datasets = learning.shard([models.dataset(each, template) for each in _clients()], num_shards)
    assert len(arrays) == len(datasets) == num_shards
    found = [[_bytes(client) for client in _read(shard)] for shard in arrays]
    assert sorted(sum(found, [])) == sorted(map(_bytes, _clients()))
    assert found == [[_bytes(client) for client in _read(shard)] for shard in datasets]
    assert arrays[0].element_spec == datasets[0].element_spec


def test_any_sizes_are_cut_at_the_right_places():
    rng = np.random.default_rng(0)
    for seed in range(30):
        counts = rng.integers(0, 4, rng.integers(1, 8))
        sizes = [list(rng.integers(1, 5, count)) for count in counts]
        clients = [models.client(seed, client) for client in [*sizes, [1]]]
        (shard,) = learning.shard(clients, 1)
        assert list(map(_bytes, _read(shard))) == list(map(_bytes, clients))


def test_small_cohorts_have_a_shard_for_each_client():
    assert len(learning.shard(_clients()[:2], 4)) == 2
    assert learning.shard([], 4) == []
    assert learning.shard([[], []], 4) == []
    assert [len(_read(one)) for one in learning.shard([[], *_clients()[:1]], 4)] == [1, 1]


def test_batches_of_other_widths_in_one_process_keep_the_shape_of_a_row():
    for width in (3, 5, 2, 3):
        (result,) = learning.shard([[(np.ones([4, width]), np.ones([4]))]] * 2, 1)
        assert [spec.shape.as_list() for spec in result.element_spec] == [[None, width], [None]]
        shapes = [[leaf.shape for leaf in batch] for batch in result.as_numpy_iterator()]
        assert shapes == [[(0, width), (0,)], [(4, width), (4,)]] * 2


def test_lists_of_arrays_are_structures_as_tuples_are():
    x, y = np.ones([4, 2]), np.ones([4, 2])
    for batch in ([[x, y], y], ([x, y], y)):
        (result,) = learning.shard([[batch]] * 2, 1)
        specs = result.element_spec
        assert isinstance(specs, tuple) and len(specs[0]) == 2
        assert [len(batch[1]) for batch in result.as_numpy_iterator()] == [0, 4, 0, 4]


def _batch(rows, columns=2):
    return collections.OrderedDict(
        x=np.zeros((rows, columns), np.float32), y=np.zeros((rows, 1), np.float32)
    )


_ONE_STRUCTURE = 'clients: must have batches of one structure'
_INTEGER = 'must be an integer >= 1'


@pytest.mark.parametrize(
    'clients, num_shards, message',
    [
        ([[_batch(2), _batch(0)]], 2, r'must have rows in each batch.* has \(0, 2\), \(0, 1\)'),
        ([[dict(_batch(2), y=np.zeros((3, 1)))]], 2, 'equally many in all arrays'),
        ([[dict(x=np.float32(1), y=np.float32(1))]], 2, 'must have rows'),
        ([[_batch(2)], [_batch(2, columns=3)]], 2, _ONE_STRUCTURE),
        ([[_batch(2)], [{'x': np.zeros((2, 2))}]], 2, _ONE_STRUCTURE),
        ([], 0, f'^num_shards=0: {_INTEGER}'),
        ([], 1.5, f'^num_shards=1.5: {_INTEGER}'),
    ],
)
def test_what_cannot_be_cut_is_refused(clients, num_shards, message):
    with pytest.raises(ValueError, match=message):
        learning.shard(clients, num_shards)


def test_cohorts_come_in_order_and_one_is_read_ahead():
    read, is_read = [], threading.Semaphore(0)

    def client_data(client):
        read.append(client)
        is_read.release()
        assert threading.current_thread() is not threading.main_thread()
        return models.client(client, [client + 1])

    stream = learning.sharded_cohorts([[0], [1], [2], [3]], client_data, 1)
    for cohort in range(4):
        (shard,) = next(stream)
        assert [len(batch['x']) for (batch,) in _read(shard)] == [cohort + 1]
        for _ in range(2 if cohort == 0 else cohort < 3):
            assert is_read.acquire(timeout=30)
        # The next one is being read while this one is used, and no more than that.
        assert read == list(range(min(cohort + 2, 4)))
    assert next(stream, None) is None


def test_an_error_belongs_to_its_cohort():
    def client_data(client):
        if client == 1:
            raise OSError('the disk is gone')
        return models.client(client, [2])

    stream = learning.sharded_cohorts([[0], [1], [2]], client_data, 1)
    assert len(next(stream)) == 1
    with pytest.raises(OSError, match='the disk is gone'):
        next(stream)


def test_closing_ends_the_thread():
    stream = learning.sharded_cohorts([[0]] * 100, lambda client: models.client(client, [2]), 1)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if 'dpfl-shards' in thread.name]
