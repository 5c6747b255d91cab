"""Federated EMNIST: read as TFF reads it; damaged files give one line."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.errors import DataError
from dpfl.tasks.config import (
    NOT_COVERED_OF_DUPLICATES,
    ImageFaultConfig,
    TaskConfig,
    not_covered_of_task,
)
from dpfl.tasks.images import emnist, image_task
from dpfl.tasks.images.image_clients import Faults
from tests.tasks import sqlite_files
from tests.tasks.images import emnist_files as small

_CLIENTS, _HELDOUT = ('f0001_41', 'f0002_00'), ('f0000_14',)


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    return small.write_sqlite(tmp_path_factory.mktemp('emnist') / 'emnist_all.sqlite')


def _opened(path, *faults):
    return emnist.Emnist(emnist.EmnistFile(path), faults=Faults(faults, float(bool(faults))))


def _check(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_clients_and_held_out_writers(path):
    task = _opened(path)
    assert task.population == 2 and task.writers == _CLIENTS and task.heldout_writers == _HELDOUT
    for client, writer in enumerate(_CLIENTS):
        pixels, labels = small.examples(writer, 'train')
        _check(task.examples(client), (pixels, labels))
        _check(task.examples(client, 3), (pixels[:3], labels[:3]))
    for client in (-1, 2, 1.5):
        with pytest.raises(ValueError, match='^client='):
            task.examples(client)
    # Without the faults of the clients.
    for number in (1, 100):
        (found,) = _opened(path, 'inverted').heldout_clients(number)
        _check(found, small.examples(_HELDOUT[0], 'train'))


def test_batches_and_faults(path):
    clean, buggy = _opened(path), _opened(path, 'inverted')
    sizes = {
        limits: [len(b['y']) for b in buggy.client_batches(1, 16, *limits)]
        for limits in ((), (2, 4))
    }
    assert sizes == {(): [16, 16, 8], (2, 4): [16, 16, 8, 16]}
    pixels = np.concatenate([batch['x'] for batch in buggy.client_batches(1, 16)])[..., 0]
    np.testing.assert_array_equal(pixels, 1 - clean.examples(1)[0])
    _check(_opened(path, 'duplicated_client').examples(1), clean.examples(0))


def test_a_report_says_that_other_devices_have_the_data_of_a_client(path):
    for faults, counted in ((('inverted',), 0), (('inverted', 'duplicated_client'), 1)):
        sentences = image_task.facts_about(_opened(path, *faults))['not_covered']
        assert sentences.count(NOT_COVERED_OF_DUPLICATES) == counted
        config = TaskConfig(task='emnist', faults=ImageFaultConfig(inject=faults))
        # A finished run is compared with what its settings say.
        assert not_covered_of_task(config, {'clients': {'heldout': 1}}) == sentences


def test_a_file_that_tff_writes_is_read(tmp_path):
    """TFF published its file in this format, and has the function that writes it."""
    path = tmp_path / 'emnist_all.sqlite'

    def dataset(writer):
        pixels, labels = small.examples(writer, 'train')
        slices = collections.OrderedDict(label=labels, pixels=pixels)
        return tf.data.Dataset.from_tensor_slices(slices)

    tff.simulation.datasets.save_to_sql_client_data(
        list(small.SIZES),
        dataset,
        str(path),
        split_names_by_client_id=dict.fromkeys(small.SIZES, 'all_train'),
    )
    for client, writer in enumerate(_CLIENTS):
        _check(_opened(path).examples(client), small.examples(writer, 'train'))


def test_writers_without_images_and_ids_of_several_types(tmp_path):
    file = small.write_sqlite(tmp_path / 'a.sqlite')
    sqlite_files.execute(
        file,
        'ALTER TABLE client_metadata RENAME TO old',
        'CREATE TABLE client_metadata AS SELECT client_id AS client_id, split_name, num_examples '
        "FROM old UNION ALL VALUES (NULL, 'all_train', 0), (x'00ff', 'all_train', 0)",
    )
    sizes = [*small.SIZES.values(), 0, 0]
    task = _opened(file)
    held = [len(labels) for _, labels in task.heldout_clients(9)]
    of_clients = [len(task.examples(client)[1]) for client in range(task.population)]
    assert sorted(held + of_clients) == sorted(sizes)
    assert task.client_batches(of_clients.index(0), 2) == []


_PIXELS, _LABEL = np.zeros([28, 28], np.float32), 3
_NOT_IMAGES = 'not images 28 x 28 in 62 classes'


def _with_image(pixels, label):
    """Statements that give all images of the first client these pixels and this label."""
    example = sqlite_files.of_image(pixels, label).hex()
    return (
        f"UPDATE examples SET serialized_example_proto = x'{example}' "
        f"WHERE client_id = '{_CLIENTS[0]}' AND split_name = 'all_train'",
    )


# The reader of the file has a table of its own in `client_texts_test.py`.
@pytest.mark.parametrize(
    'statements, message',
    [
        (None, 'must be an SQLite file'),
        (('DELETE FROM client_metadata',), 'has 0 writers of 62 classes'),
        (
            ("DELETE FROM client_metadata WHERE client_id != 'f0001_41'",),
            'has 1 writers .* at least 2',
        ),
        (
            ("DELETE FROM examples WHERE client_id = 'f0001_41'",),
            'has 0 examples of a writer where its index has 1',
        ),
        (_with_image(np.full([28, 28], 2.0, np.float32), _LABEL), _NOT_IMAGES),
        (_with_image(np.full([28, 28], np.nan, np.float32), _LABEL), _NOT_IMAGES),
        (_with_image(_PIXELS, 62), _NOT_IMAGES),
        (_with_image(_PIXELS, 2**32 + 5), _NOT_IMAGES),  # As int32 it would be 5.
        (_with_image(_PIXELS[1:], _LABEL), 'cannot be read as federated EMNIST'),
    ],
    ids=lambda value: None if isinstance(value, tuple) else value,
)
def test_what_is_no_whole_emnist_is_refused_in_one_line(statements, message, tmp_path):
    path = tmp_path / 'other'
    if statements is None:
        path.write_bytes(b'\x89HDF\r\n\x1a\n')
    else:
        sqlite_files.execute(small.write_sqlite(path), *statements)
    with pytest.raises(DataError, match=message):
        _opened(path).examples(0)
