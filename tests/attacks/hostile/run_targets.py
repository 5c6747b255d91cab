"""Targets: private files of a run (checkpoints, journal, caches), studies and text files."""

import hashlib
import io
import json
import os

import numpy as np

from dpfl import Participation, errors, mechanisms
from dpfl.accounting.records import journal
from dpfl.errors import DataError
from dpfl.mechanisms.optimize import driver
from dpfl.simulation import checkpoint, run_journal
from dpfl.tasks.text import client_texts, vocabulary
from tests.attacks.hostile import archives, mutations
from tests.attacks.hostile.privacy_targets import journal_events
from tests.attacks.hostile.target import Target, require


class Checkpoint(Target):
    """`Checkpoint.read`. The digest at the end is right, so that the parser is reached."""

    name = 'checkpoint'
    refusals = (errors.RunError,)

    def __init__(self, folder):
        super().__init__(folder)
        whole = checkpoint.Checkpoint(
            rounds=3,
            head='cd' * 32,
            state=[np.arange(6, dtype=np.float32).reshape(2, 3), b'key', np.int32(3)],
        )
        file = io.BytesIO()
        whole.write(file)
        self._data = file.getvalue()[:-32]
        first = self._data.index(b'\n') + 1
        second = self._data.index(b'\n', first) + 1
        self._first, self._header = self._data[:first], self._data[first:second]
        self._arrays = self._data[second:]

    def mutate(self, rng):
        path = self.fresh() / '00000003.checkpoint'
        if rng.random() < self.special:
            mutations.special(rng, path)
            return path
        first, header, arrays = self._first, self._header, self._arrays
        kind = rng.integers(10)
        if kind < 5:
            header = mutations.of_json(rng, json.loads(header)).encode('utf-8', 'surrogatepass')
            header += b'\n'
        elif kind < 8:
            pieces = arrays.split(np.lib.format.MAGIC_PREFIX)[1:]
            place = int(rng.integers(len(pieces)))
            piece = np.lib.format.MAGIC_PREFIX + pieces[place]
            if rng.integers(2):
                piece = archives.header(rng, piece)
            else:
                whole = np.lib.format.read_array(io.BytesIO(piece))
                piece = archives.npy(archives.changed(rng, whole))
            pieces[place] = piece.removeprefix(np.lib.format.MAGIC_PREFIX)
            arrays = b''.join(np.lib.format.MAGIC_PREFIX + each for each in pieces)
        elif kind == 8:
            arrays = mutations.of_bytes(rng, arrays)
        else:
            first = mutations.of_bytes(rng, first)
        data = first + header + arrays
        digest = hashlib.sha256(data).digest() if rng.integers(20) else bytes(32)
        path.write_bytes(data + digest)
        return path

    def read(self, path):
        return checkpoint.Checkpoint.read(path)

    def check(self, value):
        require(value.rounds >= 0 and isinstance(value.head, str), 'header')
        value.write(io.BytesIO())


class Journal(Target):
    """`RunJournal`. The chain of digests is right, so that the contents are reached."""

    name = 'journal'
    refusals = (errors.RunError,)

    def mutate(self, rng):
        path = self.fresh() / 'ledger.jsonl'
        if rng.random() < self.special:
            mutations.special(rng, path)
            return path
        events = journal_events({})
        chain, lines = hashlib.sha256(b'dpfl journal').hexdigest(), []
        spoilt = int(rng.integers(len(events) + 1))
        for number, event in enumerate(events):
            values = {**({} if number else {'format': journal.FORMAT}), **event.to_dict()}
            text = mutations.of_json(rng, values) if number == spoilt else json.dumps(values)
            text = text.replace('\n', ' ')
            chain = hashlib.sha256((chain + text).encode('utf-8', 'surrogatepass')).hexdigest()
            line = f'{text[:-1]}, "chain": "{chain}"}}\n'
            lines.append(line.encode('utf-8', 'surrogatepass'))
        data = b''.join(lines)
        path.write_bytes(data if rng.integers(3) else mutations.of_bytes(rng, data))
        return path

    def read(self, path):
        return run_journal.RunJournal(path.parent)

    def check(self, value):
        path = self.folder / 'case' / 'ledger.jsonl'
        written = journal.parse(path.read_bytes() if path.is_file() else b'')
        require(written.state.begun == value.state.begun, 'rounds')
        text, head = b'', ''
        for event in written.events:
            line, head = journal.line(head, event)
            text += line
        require(journal.parse(text).chain == written.chain, 'chain')
        letters = {name: 'abcd'[i] * 64 for i, name in enumerate(('cohort', 'model', 'noise'))}
        event = journal.Began(round=value.state.begun, data='d' * 64, **letters)
        try:
            value.begin(event, None)
        except errors.RunError:
            pass


class Vocabulary(Target):
    """`vocabulary.load` and `count_public_text`."""

    name = 'vocabulary'
    _TEXT = ''.join(f'word{i} {1000 - i}\n' for i in range(30)).encode()

    def mutate(self, rng):
        path = self.fresh() / 'words.txt'
        self._size = (None, 5, 1, 10**9)[rng.integers(4)]
        if rng.random() < self.special:
            mutations.special(rng, path, may_be_large=True)
            return path
        path.write_bytes(mutations.of_bytes(rng, self._TEXT))
        return path

    def read(self, path):
        if self._size == 10**9:
            return vocabulary.count_public_text(path, self._size)
        return vocabulary.load(path, self._size)

    def check(self, value):
        require(len(set(value.words)) == len(value.words), 'words')
        value.digest()


class Texts(Target):
    """`client_texts.open_user_text` of all formats, and all sentences of the clients."""

    name = 'texts'
    refusals = (ValueError, DataError)
    _RECORDS = tuple(
        {'user': f'u{i % 5}', 'text': f'Some words of user {i}. And more!', 'n': i}
        for i in range(12)
    )

    def _jsonl(self, rng):
        lines = []
        for record in self._RECORDS:
            text = mutations.of_json(rng, record) if rng.integers(6) == 0 else json.dumps(record)
            lines.append(text.replace('\n', ' '))
        return '\n'.join(lines).encode('utf-8', 'surrogatepass'), '.jsonl'

    def _csv(self, rng):
        lines = ['user,text,n', *(f'{r["user"]},"{r["text"]}",{r["n"]}' for r in self._RECORDS)]
        data = '\n'.join(lines).encode()
        if rng.integers(4) == 0:
            extra = (b'"', b'\0', b'\r', b'"' * 99, b'\xff', b'a,' * 9999, b'x' * (1 << 17))
            place = int(rng.integers(len(data)))
            data = data[:place] + extra[rng.integers(len(extra))] + data[place:]
        return data, '.csv'

    def mutate(self, rng):
        data, suffix = (self._jsonl, self._csv)[rng.integers(2)](rng)
        path = self.fresh() / f'texts{suffix}'
        if rng.random() < self.special:
            mutations.special(rng, path, may_be_large=True)
        else:
            path.write_bytes(mutations.of_bytes(rng, data) if rng.integers(2) else data)
        return path

    def read(self, path):
        training, heldout, description, _ = client_texts.open_user_text(path, 'user', 'text', 0.3)
        json.dumps(description)
        return training, heldout

    def check(self, value):
        for part in value:
            for client in range(part.count):
                list(part.sentences(client))


class Parquet(Texts):
    """The same for Parquet files, whose columns may have any type."""

    name = 'parquet'

    def __init__(self, folder):
        super().__init__(folder)
        import pyarrow
        from pyarrow import parquet

        texts = [record['text'] for record in self._RECORDS]
        users = [record['user'] for record in self._RECORDS]
        columns = [
            pyarrow.array(users),
            pyarrow.array(range(12)),
            pyarrow.array([2.5] * 12),
            pyarrow.array(users).dictionary_encode(),
            pyarrow.array([2**63 - 1] * 12),
            pyarrow.array([2**62] * 12).cast(pyarrow.timestamp('ns')),
            pyarrow.array([2**50] * 12).cast(pyarrow.timestamp('s')),
            pyarrow.array([None] * 12),
            pyarrow.array([[1]] * 12),
            pyarrow.array([{'a': 1}] * 12),
            pyarrow.array([b'\xff'] * 12),
            pyarrow.array([2**30] * 12, pyarrow.date32()),
            pyarrow.array([float('nan')] * 12),
            pyarrow.array([True] * 12),
        ]
        self._files = []
        for i, column in enumerate(columns):
            for first, second in ((column, texts), (users, column)):
                path = folder / f'{i}.parquet'
                table = pyarrow.table({'user': first, 'text': second})
                parquet.write_table(table, path, compression=('snappy', 'none', 'gzip')[i % 3])
                self._files.append(path.read_bytes())

    def mutate(self, rng):
        path = self.fresh() / 'texts.parquet'
        data = self._files[rng.integers(len(self._files) if rng.integers(2) else 2)]
        if rng.random() < self.special:
            mutations.special(rng, path, may_be_large=True)
        else:
            path.write_bytes(mutations.of_bytes(rng, data) if rng.integers(20) else data)
        return path


class OptimizerCache(Target):
    """An entry in the cache of optimisers. Whatever it holds, the right mechanism is returned."""

    name = 'optimizer cache'
    refusals = ()

    def __init__(self, folder):
        super().__init__(folder)
        self._right = mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3])
        self._schema = Participation(6, 2)
        self._directory = folder / 'cache'
        self.read(folder)
        self._kept = next(self._directory.glob('blt-*.npz'))
        self._data = self._kept.read_bytes()
        with np.load(self._kept) as arrays:
            self._arrays = dict(arrays)

    def mutate(self, rng):
        if self._kept.is_dir() and not self._kept.is_symlink():
            self._kept.rmdir()
        self._kept.unlink(missing_ok=True)
        if rng.random() < 0.02:
            mutations.special(rng, self._kept)
        elif rng.integers(2):
            self._kept.write_bytes(mutations.of_bytes(rng, self._data))
        else:
            self._kept.write_bytes(archives.of_arrays(rng, self._arrays))
        return self._kept

    def read(self, path):
        os.environ['DPFL_CACHE_DIR'] = str(self._directory)
        fields = {'participation': [self._schema.rounds, self._schema.min_separation]}
        return driver.cached('blt', mechanisms.Blt, fields, lambda: self._right)

    def check(self, value):
        require(value == self._right, f'{value}')


TARGETS = (Checkpoint, Journal, Vocabulary, Texts, Parquet, OptimizerCache)
