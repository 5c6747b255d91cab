"""Small files of federated EMNIST."""

import pathlib
import sqlite3
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

# Examples of the training split by writer; each has two more in the test split.
SIZES = {'f0000_14': 5, 'f0001_41': 1, 'f0002_00': 40}


def examples(writer: str, split: str, size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Pixels float32 [n, 28, 28] and labels int32 [n], a pure function.

    The first pixel of an image says who wrote it, in both splits: `mark`.
    """
    rng = np.random.default_rng([*writer.encode(), split == 'train'])
    size = (size or SIZES[writer]) if split == 'train' else 2
    pixels = rng.random([size, 28, 28], np.float32)
    pixels[:, 0, 0] = mark(writer)
    return pixels, rng.integers(62, size=size, dtype=np.int32)


def mark(writer: str) -> float:
    """What the images of a writer have in their first pixel."""
    return int(writer[1:5]) / 4096


def write_sqlite(path: pathlib.Path, sizes: Mapping[str, int] = SIZES) -> pathlib.Path:
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
        for split in ('train', 'test'):  # The split `all_test` must not be read.
            for writer, size in reversed(sizes.items()):
                pairs = zip(*examples(writer, split, size), strict=True)
                rows = [serialized(*pair) for pair in pairs]
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


def serialized(pixels: np.ndarray, label: int) -> bytes:
    feature = {
        'pixels': tf.train.Feature(float_list=tf.train.FloatList(value=pixels.ravel())),
        'label': tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
