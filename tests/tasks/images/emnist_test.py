"""Federated EMNIST: both formats, read as TFF reads them; damaged files give one line."""

import collections
import sqlite3

import h5py
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.errors import DataError
from dpfl.tasks.images import emnist, emnist_files
from dpfl.tasks.images.faults import Faults
from tests.tasks.images import emnist_files as small

_INVERTED = Faults(('inverted',), 1.0)


@pytest.fixture(scope='module', params=['sqlite', 'hdf5'])
def path(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == 'hdf5':
        return small.write_hdf5(directory)
    return small.write_sqlite(directory / 'emnist_all.sqlite')


def test_clients_are_the_writers_of_the_training_split(path):
    task = emnist.Emnist(emnist_files.open_files(path))
    assert task.population == 3 and task.writers == tuple(sorted(small.SIZES))
    for client, writer in enumerate(task.writers):
        pixels, labels = task.examples(client)
        expected_pixels, expected_labels = small.examples(writer, 'train')
        np.testing.assert_array_equal(pixels, expected_pixels)
        np.testing.assert_array_equal(labels, expected_labels)
        assert pixels.dtype == np.float32 and labels.dtype == np.int32
        assert len(task.examples(client, 3)[1]) == min(3, len(labels))


def test_heldout_examples_are_those_of_the_test_split(path):
    task = emnist.Emnist(emnist_files.open_files(path), _INVERTED)
    pixels, labels = task.heldout_examples(2)
    expected = [small.examples(writer, 'test') for writer in sorted(small.SIZES)[:2]]
    np.testing.assert_array_equal(pixels, np.concatenate([part[0] for part in expected]))
    np.testing.assert_array_equal(labels, np.concatenate([part[1] for part in expected]))
    assert len(task.heldout_examples(100)[1]) == 6


def test_batches_and_the_bug(path):
    files = emnist_files.open_files(path)
    clean, buggy = emnist.Emnist(files), emnist.Emnist(files, _INVERTED)
    batches = buggy.client_batches(2, 16)
    assert [len(batch['y']) for batch in batches] == [16, 16, 8]
    pixels = np.concatenate([batch['x'] for batch in batches])[..., 0]
    np.testing.assert_array_equal(pixels, 1 - clean.examples(2)[0])
    assert [len(batch['y']) for batch in buggy.client_batches(2, 16, 2, 4)] == [16, 16, 8, 16]
    copied = emnist.Emnist(files, Faults(('duplicated_client',), 1.0))
    np.testing.assert_array_equal(copied.examples(2)[0], clean.examples(0)[0])


def test_a_file_that_tff_writes_is_read(tmp_path):
    """TFF published its file in this format, and has the function that writes it."""
    path = tmp_path / 'emnist_all.sqlite'

    def dataset(writer):
        pixels, labels = small.examples(writer, 'train')
        slices = collections.OrderedDict(label=labels, pixels=pixels)
        return tf.data.Dataset.from_tensor_slices(slices)

    writers = list(small.SIZES)
    tff.simulation.datasets.save_to_sql_client_data(
        writers,
        dataset,
        str(path),
        split_names_by_client_id=dict.fromkeys(writers, 'all_train'),
    )
    task = emnist.Emnist(emnist_files.open_files(path))
    for client, writer in enumerate(sorted(writers)):
        for actual, expected in zip(
            task.examples(client), small.examples(writer, 'train'), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize('kept', [0.02, 0.3, 0.7, 0.999])
def test_a_truncated_file_gives_one_line(path, tmp_path, kept):
    data = path.read_bytes()
    broken = tmp_path / path.name
    broken.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(DataError) as caught:
        emnist.Emnist(emnist_files.open_files(broken))
    assert str(broken) in str(caught.value) and '\n' not in str(caught.value)


def test_other_files_are_refused_in_one_line(tmp_path):
    other = tmp_path / 'other'
    with pytest.raises(DataError, match='cannot be read'):
        emnist_files.open_files(other)
    with pytest.raises(DataError, match='cannot be read'):
        emnist_files.open_files(tmp_path)
    for content in (b'', b'PK\x03\x04'):
        other.write_bytes(content)
        with pytest.raises(DataError, match='neither an SQLite file nor an HDF5 file'):
            emnist_files.open_files(other)
    tables = tmp_path / 'tables.sqlite'
    with sqlite3.connect(tables) as connection:
        connection.execute('CREATE TABLE other (a TEXT)')
    connection.close()
    with pytest.raises(DataError, match='no such table'):
        emnist_files.open_files(tables)
    groups = tmp_path / 'groups.h5'
    with h5py.File(groups, 'w') as file:
        file['other'] = 1
    with pytest.raises(DataError, match='cannot be read as federated EMNIST'):
        emnist_files.open_files(groups)


def test_missing_rows_are_noticed(tmp_path):
    path = small.write_sqlite(tmp_path / 'emnist.sqlite')
    with sqlite3.connect(path) as connection:
        connection.execute('DELETE FROM examples WHERE rowid = 1')
    connection.close()
    task = emnist.Emnist(emnist_files.open_files(path))
    with pytest.raises(DataError, match='has 39 examples of a writer where its index has 40'):
        task.examples(2)


def test_no_writer_and_no_test_split(tmp_path):
    path = small.write_sqlite(tmp_path / 'emnist.sqlite')
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM client_metadata WHERE split_name = 'all_test'")
    connection.close()
    with pytest.raises(DataError, match='no test split'):
        emnist.Emnist(emnist_files.open_files(path)).heldout_examples(1)
    with sqlite3.connect(path) as connection:
        connection.execute('DELETE FROM client_metadata')
    connection.close()
    with pytest.raises(DataError, match='no writer'):
        emnist.Emnist(emnist_files.open_files(path))
    train = small.write_hdf5(tmp_path)
    (tmp_path / 'fed_emnist_test.h5').unlink()
    with pytest.raises(DataError, match='no test split'):
        emnist.Emnist(emnist_files.open_files(train)).heldout_examples(1)


@pytest.mark.parametrize(
    'name, value',
    [
        ('pixels', np.full([1, 28, 28], 2.0, np.float32)),
        ('pixels', np.full([1, 28, 28], np.nan, np.float32)),
        ('pixels', np.zeros([1, 27, 28], np.float32)),
        ('label', np.array([62], np.int32)),
        ('label', np.array([3, 4], np.int32)),
    ],
)
def test_what_is_no_image_or_label_is_refused(tmp_path, name, value):
    path = small.write_hdf5(tmp_path)
    with h5py.File(path, 'a') as file:
        del file[f'examples/f0001_41/{name}']
        file[f'examples/f0001_41/{name}'] = value
    task = emnist.Emnist(emnist_files.open_files(path))
    task.examples(0)
    refused = r'not images 28 x 28 in 62 classes|pixels is float32 of shape \(1, 27, 28\)'
    with pytest.raises(DataError, match=refused):
        task.examples(1)


def test_bad_clients_are_refused(path):
    task = emnist.Emnist(emnist_files.open_files(path))
    for client in (-1, 3, 1.5):
        with pytest.raises(ValueError, match='^client='):
            task.examples(client)
