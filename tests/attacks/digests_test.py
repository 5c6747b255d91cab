"""A secret in a client's data cannot be guessed from the files of a run.

A model is trained on a file of texts in which one client wrote a code of four digits. The attacker
knows everything else: the rest of the file, the flags, and the source code of dpfl. For each guess,
it constructs the file, the record, the batches and data.json, and their digests (SHA-256, SHA-1,
MD5, BLAKE2b, and HMACs with keys that can be guessed). It searches for these, as text and as bytes,
in all files of the run except `checkpoints/`, which is secret.
"""

import collections
import hashlib
import hmac
import itertools
import json
import pathlib
import random
import re
from collections.abc import Iterator

import numpy as np
import pytest

from dpfl.accounting.records import journal
from dpfl.simulation import data_digest
from dpfl.tasks.text import vocabulary, word_clients
from tests import forked_binaries

pytestmark = [pytest.mark.tff, pytest.mark.exhaustive]
_CODE, _GUESSES = '0041', 50

_CLIENTS, _LENGTH = 14, 8
_WORDS = [f'word{i}' for i in range(20)] + list('0123456789')
_HASHES = (
    hashlib.sha256,
    hashlib.sha1,
    hashlib.md5,
    hashlib.blake2b,
    lambda data: hashlib.blake2b(data, digest_size=32),
    lambda data: hashlib.blake2b(data, digest_size=16),
)
# Keys that a program may use by mistake if it forgets to draw one.
_KEYS = (bytes(32), b'', b'dpfl', b'keys', b'data')
_KEYS += tuple(hmac.new(root, b'data', hashlib.sha256).digest() for root in _KEYS)
_START = (
    16  # Number of bytes of a digest to compare. Fewer than 2^-100 of all other digests share them.
)


def _contents(code: str) -> bytes:
    """The file of texts for a code. The attacker knows everything in it except the code."""
    rng = random.Random(5)
    rows = [
        {'client': f'client {i}', 'text': ' '.join(rng.choices(_WORDS[:20], k=6))}
        for i in range(_CLIENTS)
    ]
    rows[3]['text'] = _text(code)
    return ''.join(f'{json.dumps(row)}\n' for row in rows).encode()


def _text(code: str) -> str:
    return f'word1 word2 {" ".join(code)}'


def _train(folder: pathlib.Path, code: str) -> pathlib.Path:
    """Trains on the file for a code; returns the directory of the run."""
    (folder / 'texts.jsonl').write_bytes(_contents(code))
    (folder / 'words').write_text('\n'.join(_WORDS))
    forked_binaries.run(
        'train',
        '--task=user_text',
        '--model=micro',
        f'--data_path={folder}/texts.jsonl',
        f'--vocabulary_file={folder}/words',
        f'--sentence_length={_LENGTH}',
        '--mechanism=gaussian',
        '--noise_multiplier=20',
        '--delta=1e-6',
        '--rounds=3',
        '--clients_per_round=4',
        '--min_separation=3',
        '--eval_every=3',
        '--eval_clients=1',
        '--shards=1',
        '--profile',
        f'--output_dir={folder}/run',
        check=True,
    )
    return folder / 'run'


def _digests(code: str, known: dict | None) -> Iterator[bytes]:
    """Everything that a run without a key might have left of the data for a code.

    Args:
      code: a guess.
      known: the contents of data.json, of which the attacker knows everything except digests.
    """
    file, text = _contents(code), _text(code)
    lines = file.splitlines(keepends=True)
    parts = [
        file,
        *lines[3:4],
        lines[3].rstrip(),
        text.encode(),
        code.encode(),
        ' '.join(code).encode(),
    ]
    words = vocabulary.Vocabulary(tuple(_WORDS))
    tokens = word_clients.encode([text.split()], words.ids, _LENGTH)
    batch = collections.OrderedDict(x=tokens[:, :-1], y=tokens[:, 1:])
    parts += [tokens.tobytes(), *(np.ascontiguousarray(leaf).tobytes() for leaf in batch.values())]
    plain = hashlib.sha256(file).hexdigest()
    if known is not None:
        older = {'format': known.get('format'), 'bytes': len(file), 'sha256': plain}
        ours = ('confidential', 'keyed_digests', *older)
        rest = {name: known[name] for name in known if name not in ours}
        for values in ({**older, **rest}, {**known, 'keyed_digests': {'data': plain}}):
            parts.append((json.dumps(values, indent=2) + '\n').encode())
    for part, digest in itertools.product(parts, _HASHES):
        yield digest(part).digest()
    yield bytes.fromhex(journal.digest(list(batch.values())))
    yield bytes.fromhex(journal.digest([tokens]))
    for key in _KEYS:
        yield bytes.fromhex(data_digest.of_file(key, 'data', plain))
        yield bytes.fromhex(data_digest.of_cohort(key, [[batch]]))
        for part in parts:
            yield hmac.new(key, part, hashlib.sha256).digest()


def _find(run: pathlib.Path) -> list[str]:
    """What the files of a run reveal about the code and the file."""
    places, numbers = {}, {}
    for path in sorted(run.rglob('*')):
        name = path.relative_to(run).as_posix()
        if not path.is_file() or name.startswith('checkpoints/'):
            continue
        data = path.read_bytes()
        for first in range(len(data) - _START + 1):
            places.setdefault(data[first : first + _START], name)
        for word in re.findall(rb'(?<![0-9A-Za-z])[0-9A-Fa-f]{32,128}(?![0-9A-Za-z])', data):
            places.setdefault(bytes.fromhex(word.decode()[: 2 * _START]), name)
        if path.suffix in ('.json', '.jsonl', '.txt', '.csv', '.md'):
            for word in re.findall(rb'(?<![\w.])\d+(?![\w.])', data):
                numbers.setdefault(int(word), name)
    try:
        known = json.loads((run / 'data.json').read_text())
    except (OSError, ValueError):
        known = None
    found = []
    size = len(_contents('0000'))
    if size in numbers:
        found.append(f'{numbers[size]}: has the size of the data, {size} bytes')
    for code in map('{:04}'.format, range(_GUESSES)):
        for digest in _digests(code, known):
            if digest[:_START] in places:
                found.append(f'{places[digest[:_START]]}: has a digest by which the code is {code}')
                break
    return found


@pytest.fixture(scope='module', name='run')
def _trained(tmp_path_factory):
    return _train(tmp_path_factory.mktemp('attacked'), _CODE)


def _of_older_versions(run):
    """A data.json with size and digest of the file."""
    description = json.loads((run / 'data.json').read_text())
    del description['confidential'], description['keyed_digests']
    file = _contents(_CODE)
    first = {'format': description.pop('format'), 'bytes': len(file)}
    values = {**first, 'sha256': hashlib.sha256(file).hexdigest(), **description}
    return (json.dumps(values, indent=2) + '\n').encode()


def test_digests_are_found_where_they_are_and_nowhere_else(run):
    assert _find(run) == []
    file, older = _contents(_CODE), _of_older_versions(run)
    plain = hashlib.sha256(file).hexdigest()
    planted = run / 'planted.json'
    told = f'planted.json: has a digest by which the code is {_CODE}'
    for left in (
        hashlib.sha256(older).hexdigest().encode(),  # Why SHA256SUMS needs the key in data.json.
        hashlib.sha1(file).digest(),
        hashlib.md5(file.splitlines()[3]).hexdigest().upper().encode(),
        data_digest.of_file(bytes(32), 'data', plain).encode(),
    ):
        planted.write_bytes(b'x ' + left + b' y')
        assert _find(run) == [told]
    planted.write_bytes(older)
    size = f'planted.json: has the size of the data, {len(file)} bytes'
    assert _find(run) == [size, told]
    planted.unlink()


def test_the_key_is_what_protects_the_digests(run):
    """With the key of checkpoints/ the guesses can be tested, and only then."""
    root = (run / 'checkpoints' / 'keys').read_bytes()
    key = hmac.new(root, b'data', hashlib.sha256).digest()
    plain = hashlib.sha256(_contents(_CODE)).hexdigest()
    written = json.loads((run / 'data.json').read_text())['keyed_digests']['data']
    assert data_digest.of_file(key, 'data', plain) == written
    assert data_digest.of_file(bytes(32), 'data', plain) != written
