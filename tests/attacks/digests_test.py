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
    *(hashlib.sha256, hashlib.sha1, hashlib.md5, hashlib.blake2b),
    lambda data: hashlib.blake2b(data, digest_size=32),
    lambda data: hashlib.blake2b(data, digest_size=16),
)
# Keys that a program may use by mistake if it forgets to draw one.
_KEYS = (bytes(32), b'', b'dpfl', b'keys', b'data')
_KEYS += tuple(hmac.new(root, b'data', hashlib.sha256).digest() for root in _KEYS)
# Number of bytes of a digest to compare. Fewer than 2^-100 of all other digests share them.
_START = 16


def _contents(code: str) -> bytes:
    """The file of texts for a code. The attacker knows everything in it except the code."""
    rng = random.Random(5)
    texts = [' '.join(rng.choices(_WORDS[:20], k=6)) for _ in range(_CLIENTS)]
    texts[3] = _text(code)
    rows = ({'client': f'client {i}', 'text': text} for i, text in enumerate(texts))
    return ''.join(f'{json.dumps(row)}\n' for row in rows).encode()


def _text(code: str) -> str:
    return f'word1 word2 {" ".join(code)}'


@pytest.fixture(scope='module', name='run')
def _trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp('attacked')
    (folder / 'texts.jsonl').write_bytes(_contents(_CODE))
    (folder / 'words').write_text('\n'.join(_WORDS))
    flags = (
        '--task=user_text --model=micro --mechanism=gaussian --noise_multiplier=20 --delta=1e-6 '
        '--rounds=3 --clients_per_round=4 --min_separation=3 --eval_every=3 --eval_clients=1 '
        f'--shards=1 --sentence_length={_LENGTH}'
    ).split()
    paths = {'data_path': 'texts.jsonl', 'vocabulary_file': 'words', 'output_dir': 'run'}
    flags += [f'--{name}={folder / path}' for name, path in paths.items()]
    forked_binaries.run('train', *flags, check=True)
    return folder / 'run'


def _digests(code: str, known: dict) -> Iterator[bytes]:
    """Everything that a run without a key might have left of the data for a code.

    Args:
      code: a guess.
      known: the contents of data.json, of which the attacker knows everything except digests.
    """
    file, text = _contents(code), _text(code)
    line = file.splitlines(keepends=True)[3]
    words = vocabulary.Vocabulary(tuple(_WORDS))
    tokens = word_clients.encode([text.split()], words.ids, _LENGTH)
    batch = collections.OrderedDict(x=tokens[:, :-1], y=tokens[:, 1:])
    parts = [file, line, line.rstrip(), text.encode(), code.encode(), ' '.join(code).encode()]
    parts += [np.ascontiguousarray(leaf).tobytes() for leaf in (tokens, *batch.values())]
    plain = hashlib.sha256(file).hexdigest()
    parts += [_of_older_versions(file, known)]
    keyed = {**known, 'keyed_digests': {'data': plain}}
    parts.append((json.dumps(keyed, indent=2) + '\n').encode())
    for part, digest in itertools.product(parts, _HASHES):
        yield digest(part).digest()
    yield bytes.fromhex(journal.digest(list(batch.values())))
    yield bytes.fromhex(journal.digest([tokens]))
    for key in _KEYS:
        yield bytes.fromhex(data_digest.of_file(key, 'data', plain))
        yield bytes.fromhex(data_digest.of_cohort(key, [[batch]]))
        for part in parts:
            yield hmac.new(key, part, hashlib.sha256).digest()


def _of_older_versions(file: bytes, known: dict) -> bytes:
    """A data.json with size and digest of the file."""
    ours = ('format', 'confidential', 'keyed_digests')
    rest = {name: value for name, value in known.items() if name not in ours}
    digest = hashlib.sha256(file).hexdigest()
    values = {'format': known['format'], 'bytes': len(file), 'sha256': digest, **rest}
    return (json.dumps(values, indent=2) + '\n').encode()


def _find(run) -> list[str]:
    """What the files of a run reveal about the code and the file."""
    places, found, size = {}, [], len(_contents('0000'))
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
            if re.search(rf'(?<![\w.]){size}(?![\w.])'.encode(), data):
                found.append(f'{name}: has the size of the data, {size} bytes')
    known = json.loads((run / 'data.json').read_text())
    for code in map('{:04}'.format, range(_GUESSES)):
        seen = (places.get(digest[:_START]) for digest in _digests(code, known))
        name = next(filter(None, seen), None)
        if name:
            found.append(f'{name}: has a digest by which the code is {code}')
    return found


def test_digests_are_found_where_they_are_and_nowhere_else(run):
    assert _find(run) == []
    file = _contents(_CODE)
    older = _of_older_versions(file, json.loads((run / 'data.json').read_text()))
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
    assert _find(run) == [f'planted.json: has the size of the data, {len(file)} bytes', told]
    planted.unlink()


def test_the_key_is_what_protects_the_digests(run):
    """With the key of checkpoints/ the guesses can be tested, and only then."""
    root = (run / 'checkpoints' / 'keys').read_bytes()
    key = hmac.new(root, b'data', hashlib.sha256).digest()
    plain = hashlib.sha256(_contents(_CODE)).hexdigest()
    written = json.loads((run / 'data.json').read_text())['keyed_digests']['data']
    assert data_digest.of_file(key, 'data', plain) == written
    assert data_digest.of_file(bytes(32), 'data', plain) != written
