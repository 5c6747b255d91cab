"""Targets: data and models whose readers need TensorFlow or SQLite."""

import json
import pathlib
import sqlite3
import tempfile

import numpy as np
import tensorflow as tf

from dpfl import errors
from dpfl.accounting.records import archive
from dpfl.errors import DataError
from dpfl.simulation import state
from dpfl.simulation.training import run_model
from dpfl.tasks.images import emnist
from dpfl.tasks.text import client_texts
from dpfl.tasks.text.models import saved_models
from tests.attacks.hostile import archives, mutations
from tests.attacks.hostile.target import Target, require

# Values for a column that is declared as text or blob: SQLite accepts any type in any column.
_CELLS = (
    None,
    1,
    -1,
    2**62,
    0.5,
    float('inf'),
    'text',
    '',
    b'',
    b'\xff\x00',
    '\udcff'.encode('utf-8', 'surrogateescape'),
    'x' * 70_000,
    b'\x00' * 9,
    'train',
    'heldout',
    'all_train',
)
_SCHEMAS = (
    'DROP TABLE examples',
    'ALTER TABLE examples RENAME TO e',
    'ALTER TABLE examples RENAME COLUMN client_id TO c',
    'CREATE INDEX "a""b" ON examples(client_id)',
    'DROP TABLE client_metadata',
    'ALTER TABLE examples RENAME TO e; CREATE VIEW examples AS SELECT rowid, * FROM e',
    'ALTER TABLE examples RENAME TO e; CREATE VIEW examples AS WITH RECURSIVE r(n) AS '
    "(SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS rowid, n AS client_id, 'train' AS "
    "split_name, x'00' AS serialized_example_proto FROM r",
    'ALTER TABLE client_metadata RENAME TO m; CREATE VIEW client_metadata AS WITH RECURSIVE r(n) '
    "AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS client_id, 'train' AS split_name, "
    '1 AS num_examples FROM r',
    'DELETE FROM examples',
    'DELETE FROM client_metadata',
    'PRAGMA user_version = 7',
    'ALTER TABLE examples RENAME TO e; CREATE VIRTUAL TABLE examples USING '
    'fts5(client_id, split_name, serialized_example_proto)',
)


def _example(**features) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def _bytes(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


class _Database(Target):
    """An SQLite file with mutated bytes, rows or schema."""

    splits: tuple[str, ...]

    def __init__(self, folder):
        super().__init__(folder)
        path = folder / 'whole.sqlite'
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute('PRAGMA page_size = 1024')
            connection.execute(
                'CREATE TABLE client_metadata '
                '(client_id TEXT, split_name TEXT, num_examples INTEGER)'
            )
            connection.execute(
                'CREATE TABLE examples '
                '(client_id TEXT, split_name TEXT, serialized_example_proto BLOB)'
            )
            for client in range(6):
                split = self.splits[client % 2]
                connection.execute(
                    'INSERT INTO client_metadata VALUES (?, ?, 2)', (f'c{client}', split)
                )
                for number in range(2):
                    connection.execute(
                        'INSERT INTO examples VALUES (?, ?, ?)',
                        (f'c{client}', split, self.example(client, number)),
                    )
        connection.close()
        self._data = path.read_bytes()

    def example(self, client: int, number: int) -> bytes:
        raise NotImplementedError

    def mutate(self, rng):
        path = self.fresh() / 'data.sqlite'
        if rng.random() < self.special:
            mutations.special(rng, path, may_be_large=True)
            return path
        if rng.integers(3) == 0:
            path.write_bytes(mutations.of_bytes(rng, self._data))
            return path
        path.write_bytes(self._data)
        connection = sqlite3.connect(path)
        try:
            with connection:
                connection.execute('PRAGMA synchronous = OFF')
                connection.execute('PRAGMA journal_mode = MEMORY')
                self._change(rng, connection)
        except sqlite3.Error:
            pass  # Some changes exclude each other.
        finally:
            connection.close()
        return path

    def _change(self, rng, connection):
        if rng.integers(6) == 0:
            connection.executescript(_SCHEMAS[rng.integers(len(_SCHEMAS))])
        for _ in range(int(rng.integers(1, 4))):
            table, columns = (
                ('client_metadata', ('client_id', 'split_name', 'num_examples')),
                ('examples', ('client_id', 'split_name', 'serialized_example_proto')),
            )[rng.integers(2)]
            column = columns[rng.integers(3)]
            cell = _CELLS[rng.integers(len(_CELLS))]
            if column == 'serialized_example_proto' and rng.integers(2):
                cell = mutations.of_bytes(rng, self.example(0, 0))
            expression = 'CAST(? AS TEXT)' if rng.integers(4) == 0 else '?'
            connection.execute(
                f'UPDATE {table} SET {column} = {expression} WHERE rowid = ?',
                (cell, int(rng.integers(1, 8))),
            )


class StackOverflow(_Database):
    """`client_texts.open_stackoverflow`, and all sentences."""

    name = 'stackoverflow'
    refusals = (ValueError, DataError)
    splits = ('train', 'heldout')

    def example(self, client, number):
        return _example(tokens=_bytes(f'some words of {client} and {number}'.encode()))

    def read(self, path):
        training, heldout, test, description = client_texts.open_stackoverflow(path, 0.3)
        json.dumps(description)
        for part in (training, heldout, test):
            for client in range(part.count):
                list(part.sentences(client))


class Emnist(_Database):
    """`emnist.EmnistFile`, and all examples."""

    name = 'emnist'
    refusals = (DataError,)
    splits = ('all_train', 'all_test')

    def example(self, client, number):
        pixels = np.linspace(0, 1, 784)
        return _example(
            pixels=tf.train.Feature(float_list=tf.train.FloatList(value=pixels)),
            label=tf.train.Feature(int64_list=tf.train.Int64List(value=[client + number])),
        )

    def read(self, path):
        found = emnist.EmnistFile(path)
        for writer in found.writers:
            found.read(writer)


class SavedModel(Target):
    """`saved_models.load`: only the description and the small files beside the weights vary."""

    name = 'saved model'

    def __init__(self, folder):
        super().__init__(folder)
        name = next(iter(saved_models.CHAR_MODELS))
        shapes = saved_models.ALL[name].weight_shapes(7)
        rng = np.random.default_rng(0)
        weights = tuple(rng.random(shape, np.float32) for shape in shapes.values())
        with tempfile.TemporaryDirectory() as scratch:
            whole = pathlib.Path(scratch, 'model')
            saved_models.save(saved_models.LanguageModel(name, weights), whole)
            self._files = {
                path.relative_to(whole): path.read_bytes()
                for path in whole.rglob('*')
                if path.is_file()
            }

    def mutate(self, rng):
        case = self.fresh() / 'model'
        description = pathlib.Path('assets.extra/model.json')
        names = [description, description, description, *self._files]
        spoilt = names[rng.integers(len(names))]
        for name, data in self._files.items():
            path = case / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name != spoilt:
                path.write_bytes(data)
            elif rng.random() < self.special:
                mutations.special(rng, path)
            elif name == description and rng.integers(4):
                text = mutations.of_json(rng, json.loads(data))
                path.write_text(text, errors='surrogatepass')
            else:
                path.write_bytes(mutations.of_bytes(rng, data))
        return case

    def read(self, path):
        saved_models.load(path)


class Weights(Target):
    """`run_model.weights`: the model of a finished run."""

    name = 'model weights'
    refusals = (errors.RunError,)

    def mutate(self, rng):
        case = self.fresh()
        path = case / archive.MODEL
        if rng.random() < self.special:
            mutations.special(rng, path)
        else:
            arrays = {str(i): np.arange(i + 1, dtype=np.float32) for i in range(3)}
            path.write_bytes(archives.of_arrays(rng, arrays))
        return case

    def read(self, path):
        run_model.weights(path)


class State(Target):
    """`state.restore`: leaves that are not those of the process."""

    name = 'state'
    refusals = (errors.RunError,)
    _TEMPLATE = {'a': np.zeros((2, 3), np.float32), 'b': (np.int32(1), b'key'), 'c': np.zeros(0)}

    def mutate(self, rng):
        self._leaves = state.leaves(self._TEMPLATE)
        for _ in range(int(rng.integers(1, 3))):
            place, kind = int(rng.integers(len(self._leaves))), rng.integers(6)
            if kind == 0:
                del self._leaves[place]
            elif kind == 1:
                self._leaves.insert(place, np.zeros(1))
            elif isinstance(self._leaves[place], bytes) or kind == 2:
                self._leaves[place] = rng.bytes(3)
            else:
                self._leaves[place] = archives.changed(rng, self._leaves[place])
        return self.folder

    def read(self, path):
        return state.restore(self._leaves, self._TEMPLATE)

    def check(self, value):
        for leaf, expected in zip(state.leaves(value), state.leaves(self._TEMPLATE), strict=True):
            require(type(leaf) is type(expected), 'kind of a leaf')
            require(np.asarray(leaf).shape == np.asarray(expected).shape, 'shape of a leaf')


TARGETS = (StackOverflow, Emnist, SavedModel, Weights, State)
