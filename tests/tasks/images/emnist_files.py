"""Small files in the two formats of federated EMNIST."""

import pathlib
import sqlite3

import h5py
import numpy as np
import tensorflow as tf

# Examples of the training split by writer; each has two more in the test split.
SIZES = {'f0000_14': 5, 'f0001_41': 1, 'f0002_00': 40}


def examples(writer: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Pixels float32 [n, 28, 28] and labels int32 [n], a pure function."""
    rng = np.random.default_rng([*writer.encode(), split == 'train'])
    size = SIZES[writer] if split == 'train' else 2
    return rng.random([size, 28, 28], np.float32), rng.integers(62, size=size, dtype=np.int32)


def write_sqlite(path: pathlib.Path) -> pathlib.Path:
    """Writes the writers as the SQLite file that TFF reads."""
    with sqlite3.connect(path) as connection:
        connection.execute('PRAGMA page_size = 4096')
        connection.execute(
            'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, '
            'serialized_example_proto BLOB NOT NULL)'
        )
        connection.execute(
            'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, '
            'num_examples INTEGER NOT NULL)'
        )
        for split in ('train', 'test'):
            for writer in reversed(SIZES):
                rows = [_serialized(*pair) for pair in zip(*examples(writer, split), strict=True)]
                connection.executemany(
                    'INSERT INTO examples VALUES (?, ?, ?)',
                    [(f'all_{split}', writer, row) for row in rows],
                )
                connection.execute(
                    'INSERT INTO client_metadata VALUES (?, ?, ?)',
                    (writer, f'all_{split}', len(rows)),
                )
        # The digits alone are splits of the same file.
        connection.execute("INSERT INTO client_metadata VALUES ('f9', 'digits_only_train', 3)")
    connection.close()
    return path


def write_hdf5(directory: pathlib.Path) -> pathlib.Path:
    """Writes the writers as a file for each split; returns that of the training split."""
    for split in ('train', 'test'):
        with h5py.File(directory / f'fed_emnist_{split}.h5', 'w') as file:
            for writer in SIZES:
                pixels, labels = examples(writer, split)
                file[f'examples/{writer}/pixels'] = pixels
                file[f'examples/{writer}/label'] = labels
    return directory / 'fed_emnist_train.h5'


def _serialized(pixels: np.ndarray, label: int) -> bytes:
    feature = {
        'pixels': tf.train.Feature(float_list=tf.train.FloatList(value=pixels.ravel())),
        'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
