"""Small SQLite files of clients in the format that TFF writes."""

import contextlib
import pathlib
import sqlite3
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf


def write(path: pathlib.Path, parts: Iterable[tuple[str, str, Sequence[bytes]]]) -> pathlib.Path:
    """Writes the serialised examples of clients: split, client and examples of each part."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('PRAGMA page_size = 4096')
        connection.execute(
            'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, '
            'serialized_example_proto BLOB NOT NULL)'
        )
        connection.execute(
            'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, '
            'num_examples INTEGER NOT NULL)'
        )
        for split, client, examples in parts:
            connection.executemany(
                'INSERT INTO examples VALUES (?, ?, ?)',
                [(split, client, example) for example in examples],
            )
            connection.execute(
                'INSERT INTO client_metadata VALUES (?, ?, ?)', (client, split, len(examples))
            )
    return path


def execute(path: pathlib.Path, *statements: str) -> None:
    """Changes a file by SQL."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def of_sentence(tokens: str) -> bytes:
    """A serialised example of StackOverflow."""
    value = tf.train.BytesList(value=[tokens.encode()])
    return _serialized(tokens=tf.train.Feature(bytes_list=value))


def of_image(pixels: np.ndarray, label: int) -> bytes:
    """A serialised example of federated EMNIST."""
    return _serialized(
        pixels=tf.train.Feature(float_list=tf.train.FloatList(value=pixels.ravel())),
        label=tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    )


def _serialized(**features: tf.train.Feature) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
