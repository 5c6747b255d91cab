"""Text of clients in files: any file with a column for the client, and the StackOverflow data.

A file of texts is read once. Its texts are copied to an unnamed temporary file that disappears with
the process, in the order in which they came; those of a client are read when the client is trained
on. Memory holds 16 bytes for each text and 8 for each client, and neither texts nor client keys.
Keys are replaced by digests, and clients are numbered in the order of the digests. So the numbering
does not depend on the order of the records, and the first clients are a random sample of all; they
are held out.

StackOverflow is an SQLite file of serialised sentences. The one that
`tff.simulation.datasets.stackoverflow` downloads has 342,477 clients in the split `train`, 38,758
others in the split `heldout`, and 204,088 in the split `test`.
"""

import array
import collections
import functools
import hashlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from dpfl import _files, _progress, errors
from dpfl.errors import DataError
from dpfl.tasks import federated_task
from dpfl.tasks.data_sets import ClientFile
from dpfl.tasks.text import record_files, tokenization
from dpfl.tasks.text.word_clients import TextData, WordClients

STACKOVERFLOW_URL = 'https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma'
_FEATURE = 'tokens'


class ClientTexts:
    """The texts of clients, those of a client in the order in which they came.

    Needs at most 60 bytes of memory for each text while it is made.

    Args:
      records: pairs of a client's key and a text.

    Raises:
      OSError: if the directory for temporary files is full.
    """

    def __init__(self, records: Iterable[tuple[str, str]]):
        digests, lengths = bytearray(), array.array('q')
        self._file = tempfile.TemporaryFile(prefix='dpfl-')
        for client, text in records:
            data = text.encode('utf-8', 'surrogatepass')
            self._file.write(data)
            # 128 bits, enough for distinct digests of any realistic number of clients.
            key = client.encode('utf-8', 'surrogatepass')
            digests += hashlib.blake2b(key, digest_size=16).digest()
            lengths.append(len(data))
        self._file.flush()
        words = np.frombuffer(digests, np.uint64).reshape(-1, 2)
        if sys.byteorder == 'little':
            words.byteswap(inplace=True)
        # Stable: a client's texts keep their order.
        order = np.lexsort((words[:, 1], words[:, 0]))
        first = np.arange(len(words)) == 0
        for column in words.T:
            ordered = column[order]
            first[1:] |= ordered[1:] != ordered[:-1]
        self._starts = np.append(np.flatnonzero(first), len(words)).astype(np.int64)
        del words, column, ordered, digests  # Before the copies in the new order.
        self._lengths = np.asarray(lengths)
        self._ends = self._lengths.cumsum()[order]
        self._lengths = self._lengths[order]

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self._starts) - 1

    @property
    def num_texts(self) -> int:
        """Number of texts of all clients."""
        return len(self._lengths)

    def of_client(self, client: int) -> Iterator[str]:
        """The texts of a client. May be called in any thread.

        Raises:
          OSError: if they cannot be read.
        """
        for place in range(self._starts[client], self._starts[client + 1]):
            length = int(self._lengths[place])
            data = os.pread(self._file.fileno(), length, int(self._ends[place]) - length)
            yield data.decode('utf-8', 'surrogatepass')


def open_user_text(
    path: str | os.PathLike[str],
    client_column: str,
    text_column: str,
    heldout_fraction: float,
) -> TextData:
    """Opens and reads a file.

    The description has no size, and the fingerprint must never be written to disk: anyone who has
    it can test guesses at the texts.

    Args:
      path: path of the file. The suffix decides the format: `.jsonl`, `.ndjson` or `.json` (one
        JSON object per line), `.csv`, or `.parquet` or `.pq`.
      client_column: name of the column with the client's key.
      text_column: name of the column with the text.
      heldout_fraction: share of the clients to hold out.

    Raises:
      ValueError: if the file cannot be used; the argument named is `data_path` or the one at fault.
    """
    path = pathlib.Path(path)
    suffix = path.suffix.lower()
    left_out: collections.Counter[str] = collections.Counter(empty=0)
    first_malformed = ''

    def kept(records: Iterable[record_files.Record]) -> Iterator[tuple[str, str]]:
        nonlocal first_malformed
        for record in records:
            if record.reason:
                left_out[record.reason] += 1
                first_malformed = first_malformed or f'line {record.line}: {record.reason}'
            elif not record.text or record.text.isspace():
                left_out['empty'] += 1
            else:
                yield record.client, record.text

    with record_files.refusing('data_path', path):
        if suffix not in record_files.FORMATS:
            raise ValueError(
                f'must be a file whose name ends in one of {", ".join(record_files.FORMATS)}'
            )
        name, scan = record_files.FORMATS[suffix]
        with _files.open_regular(path) as file:
            before = os.fstat(file.fileno())
            digest = hashlib.file_digest(cast(Any, file), 'sha256').hexdigest()
            file.seek(0)
            records = scan(file, client_column, text_column)
            bar = _progress.bar(records, 'texts', unit='record', delay=2, leave=False)
            texts = ClientTexts(kept(bar))
            after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ValueError('has changed while it was read')
        remark = ''
        if first_malformed:
            malformed = left_out.total() - left_out['empty']
            remark = f' ({malformed} malformed records; the first is in {first_malformed})'
    facts = {'records': texts.num_texts, 'left_out': dict(left_out)}
    if first_malformed:
        facts['first_malformed'] = first_malformed
    return divided(texts, path, heldout_fraction, name, facts, digest, remark)


def divided(
    texts: ClientTexts,
    path: str | os.PathLike[str],
    heldout_fraction: float,
    name: str,
    facts: Mapping[str, Any],
    digest: str,
    remark: str = '',
) -> TextData:
    """Clients to train on and held-out clients, with their description.

    Args:
      texts: texts of all clients.
      path: where they are from, for errors.
      heldout_fraction: share of the clients to hold out.
      name: of the format.
      facts: more for the description.
      digest: SHA-256 of the data.
      remark: added to the error about too few clients.

    Raises:
      ArgumentError: if there are fewer than two clients; it names `data_path`.
    """

    def sentences(client: int) -> Iterator[list[str]]:
        try:
            for text in texts.of_client(client):
                yield from tokenization.sentences(text)
        except OSError as error:
            raise DataError(f'{path}: its copy cannot be read ({error.strerror})') from None

    count = texts.num_clients
    if count < 2:
        raise errors.ArgumentError(
            'data_path', path, f'must have texts of at least 2 clients, has {count}{remark}'
        )
    held = federated_task.num_held_out(count, heldout_fraction)
    return TextData(
        WordClients(count - held, lambda client: sentences(client + held)),
        WordClients(held, sentences),
        description={
            'format': name,
            'clients': {'training': count - held, 'heldout': held},
            **facts,
        },
        fingerprints={'data': digest},
    )


def open_stackoverflow(path: str | os.PathLike[str], heldout_fraction: float) -> TextData:
    """Opens the StackOverflow data of TFF, read client by client.

    Clients of the split `heldout` are held out. If the file has no such split, a share of its
    clients is held out: those whose keys have the smallest digests, whatever the order of the file.
    Test clients are those of the split `test` that are in neither of the splits `train` and
    `heldout`: what is measured on them has no noise, so they must not be training clients. Clients
    are numbered in the order of their keys.

    Args:
      path: path of the SQLite file. An example has the feature `tokens`, one sentence, its words
        separated by spaces.
      heldout_fraction: share of the clients to hold out if the file has no split `heldout`.

    Raises:
      ValueError: if the file has another format or is truncated (argument `data_path`), or the
        fraction is outside (0, 1).
    """
    try:
        file = ClientFile(path)
        members: dict[str, set] = {}
        for client, split in file.rows('SELECT client_id, split_name FROM client_metadata'):
            members.setdefault(split, set()).add(client)
        of_training = 'train' if 'train' in members else None
        of_heldout: str | None = 'heldout'
        training: Any = members['train'] if of_training else set().union(*members.values())
        heldout: Any = members.get('heldout', set()) - training
        test = members.get('test', set()) - training - members.get('heldout', set())
        if not (of_training and training and heldout):
            if len(training) < 2:
                raise file.refused(f'has {len(training)} clients to train on, must have at least 2')
            training, heldout = federated_task.hold_out(training, heldout_fraction)
            of_heldout = of_training
        examples = [*file.rows('SELECT serialized_example_proto FROM examples LIMIT 1')]
        if not examples:
            raise file.refused('has no examples')
        _sentence(file, examples[0][0])
        _ = file.runs  # Reads the whole file if it has no index.
    except DataError as error:
        raise errors.ArgumentError('data_path', path, error.reason) from None

    def clients(keys: Iterable[Any], split: str | None) -> WordClients:
        """The clients with the examples of one split, or of all splits if it is None."""
        ordered = sorted(keys, key=str)

        def sentences(client: int) -> Iterator[list[str]]:
            for example in file.examples(ordered[client], split):
                yield _sentence(file, example)

        return WordClients(len(ordered), sentences)

    description = {
        'format': 'sqlite',
        'clients': {'training': len(training), 'heldout': len(heldout)},
        'splits': {str(split): len(keys) for split, keys in members.items()},
    }
    return TextData(
        clients(training, of_training),
        clients(heldout, of_heldout),
        clients(test, 'test') if test else None,
        description,
    )


@functools.cache
def _example_reader() -> tuple[Any, Any]:
    """The class of serialised examples, and the error of one that is damaged."""
    import tensorflow as tf
    from google.protobuf import message

    return tf.train.Example, message.DecodeError


def _sentence(file: ClientFile, example: bytes) -> list[str]:
    """The words of a serialised example. Raises DataError if it is not such an example."""
    example_class, decode_error = _example_reader()
    try:
        features = example_class.FromString(example).features.feature
    except (decode_error, TypeError):
        raise file.refused('has an example that is not a tf.train.Example') from None
    if _FEATURE not in features:
        raise file.refused(f'has an example without the feature {_FEATURE}')
    return b' '.join(features[_FEATURE].bytes_list.value).decode('utf-8', 'replace').split()
