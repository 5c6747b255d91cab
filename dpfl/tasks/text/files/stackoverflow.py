"""TFF's StackOverflow data: an SQLite file of serialised sentences, read client by client.

An example has the feature `tokens`, one sentence, its words separated by spaces. The file that
`tff.simulation.datasets.stackoverflow` downloads has 342,477 clients in the split `train`, 38,758
others in the split `heldout`, and 204,088 in the split `test`.

Clients of the split `heldout` are held out. If the file has no such split, a share of its clients
is held out: those whose keys have the smallest digests, whatever the order of the file. Test
clients are those of the split `test` that are in neither of the splits `train` and `heldout`: what
is measured on them has no noise, so they must not be training clients. Clients are numbered in the
order of their keys.
"""

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import message

from dpfl import errors
from dpfl.errors import DataError
from dpfl.tasks import federated_task
from dpfl.tasks.data_sets import ClientFile
from dpfl.tasks.text.word_clients import WordClients

URL = 'https://storage.googleapis.com/tff-datasets-public/stackoverflow.sqlite.lzma'
_FEATURE = 'tokens'


def open_clients(
    path: str | os.PathLike[str], heldout_fraction: float
) -> tuple[WordClients, WordClients, WordClients, dict[str, Any]]:
    """Opens the data.

    Args:
      path: path of the SQLite file.
      heldout_fraction: share of the clients to hold out if the file has no split `heldout`.

    Returns:
      Training clients, held-out clients, test clients (none if the file has no such split), and a
      description of the file as JSON values.

    Raises:
      ValueError: if the file has another format or is truncated (argument `data_path`), or the
        fraction is outside (0, 1).
    """
    try:
        file = ClientFile(path)
        training, heldout, test, splits = _split(file, heldout_fraction)
        _check_first_example(file)
        _ = file.runs  # Reads the whole file if it has no index.
    except DataError as error:
        raise errors.ArgumentError('data_path', path, error.reason) from None
    description = {
        'format': 'sqlite',
        'clients': {'training': len(training.keys), 'heldout': len(heldout.keys)},
        'splits': splits,
    }
    return training.clients(), heldout.clients(), test.clients(), description


def _split(
    file: ClientFile, heldout_fraction: float
) -> tuple['_Part', '_Part', '_Part', dict[str, int]]:
    """Training, held-out and test parts of the file, and the number of clients of each split."""
    members: dict[str, set] = {}
    for client, split in file.rows('SELECT client_id, split_name FROM client_metadata'):
        members.setdefault(split, set()).add(client)
    splits = {str(split): len(clients) for split, clients in members.items()}
    split = 'train' if 'train' in members else None
    clients = members['train'] if split else set().union(*members.values())
    tested = members.get('test', set()) - clients - members.get('heldout', set())
    test = _Part(file, _in_order(tested), 'test')
    if members.get('heldout') and split:
        others = members['heldout'] - clients
        if clients and others:
            return (
                _Part(file, _in_order(clients), split),
                _Part(file, _in_order(others), 'heldout'),
                test,
                splits,
            )
    try:
        trained, held = federated_task.hold_out(clients, heldout_fraction)
    except errors.ArgumentError as error:
        if error.name != 'num_clients':
            raise
        raise file.refused(
            f'has {len(clients)} clients to train on, must have at least 2'
        ) from None
    return _Part(file, _in_order(trained), split), _Part(file, _in_order(held), split), test, splits


def _in_order(keys: Iterable[Any]) -> tuple:
    return tuple(sorted(keys, key=str))


def _check_first_example(file: ClientFile) -> None:
    """Raises DataError unless the first example is a sentence."""
    examples = [*file.rows('SELECT serialized_example_proto FROM examples LIMIT 1')]
    if not examples:
        raise file.refused('has no examples')
    _sentence(file, examples[0][0])


@dataclasses.dataclass(frozen=True)
class _Part:
    """Clients of a file by key, with the examples of one split, or of all splits if it is None."""

    file: ClientFile
    keys: tuple
    split: str | None

    def clients(self) -> WordClients:
        return WordClients(len(self.keys), self._sentences)

    def _sentences(self, client: int) -> Iterator[list[str]]:
        for example in self.file.examples(self.keys[client], self.split):
            yield _sentence(self.file, example)


@functools.cache
def _example_class() -> Any:
    import tensorflow as tf

    return tf.train.Example


def _sentence(file: ClientFile, example: bytes) -> list[str]:
    """The words of a serialised example. Raises DataError if it is not such an example."""
    try:
        features = _example_class().FromString(example).features.feature
    except (message.DecodeError, TypeError):
        raise file.refused('has an example that is not a tf.train.Example') from None
    if _FEATURE not in features:
        raise file.refused(f'has an example without the feature {_FEATURE}')
    return b' '.join(features[_FEATURE].bytes_list.value).decode('utf-8', 'replace').split()
