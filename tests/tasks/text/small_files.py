"""Small files of text in the formats of real data, for tests."""

import json
import pathlib
import random

from tests.tasks import sqlite_files

_WORDS = [f'word{i}' for i in range(50)]
_SPLITS = ('train', 'train', 'train', 'train', 'heldout', 'test')


def texts(client: int) -> list[str]:
    """The sentences of a client, up to twelve words each."""
    rng = random.Random(client)
    return [' '.join(rng.choices(_WORDS, k=rng.randrange(1, 12))) for _ in range(10)]


def write_stackoverflow(path: pathlib.Path) -> pathlib.Path:
    """Writes 18 clients in TFF's format: 12 to train on, 3 held out, 3 for tests."""
    return sqlite_files.write(
        path,
        [
            (_SPLITS[i % 6], f'client {i:02}', [*map(sqlite_files.of_sentence, texts(i))])
            for i in range(18)
        ],
    )


def write_json_lines(path: pathlib.Path) -> pathlib.Path:
    """Writes 18 clients as a file of a user, a sentence in each line."""
    rows = [{'client': str(i), 'text': text} for i in range(18) for text in texts(i)]
    path.write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
    return path


def write_vocabulary(path: pathlib.Path) -> pathlib.Path:
    """Writes the words, each with a count."""
    path.write_text('\n'.join(f'{word} 9' for word in _WORDS))
    return path
