"""Tries to guess a secret in a client's data from the files of a run.

  python tests/attacks/digests.py

Trains on a file of texts in which one client wrote a code of four digits. The attacker knows
everything else: the rest of the file, the flags, and the source code of dpfl. For each of the
10,000 codes, it constructs the file, the record, the batches and data.json, and their digests
(SHA-256, SHA-1, MD5, BLAKE2b, and HMACs with keys that can be guessed). It searches for these, as
text and as bytes, in all files of the run except `checkpoints/`, which is secret. Exits with status
1 if a digest, or the size of the file, is found.
"""

import argparse
import collections
import hashlib
import hmac
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT))
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

from dpfl.accounting.records import journal  # noqa: E402
from dpfl.simulation import data_digest  # noqa: E402
from dpfl.tasks.text import vocabulary, word_clients  # noqa: E402

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


def contents(code: str) -> bytes:
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


def train(folder: pathlib.Path, code: str) -> pathlib.Path:
    """Trains on the file for a code; returns the directory of the run."""
    (folder / 'texts.jsonl').write_bytes(contents(code))
    (folder / 'words').write_text('\n'.join(_WORDS))
    subprocess.run(
        [
            sys.executable,
            '-m',
            'experiments.train',
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
        ],
        cwd=_ROOT,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    return folder / 'run'


def digests(code: str, known: dict | None) -> Iterator[bytes]:
    """Everything that a run without a key might have left of the data for a code.

    Args:
      code: a guess.
      known: the contents of data.json, of which the attacker knows everything except digests.
    """
    file, text = contents(code), _text(code)
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


def find(run: pathlib.Path, guesses: int) -> tuple[list[str], float]:
    """What the files of a run reveal about the code and the file, and the seconds that this took.

    Args:
      run: the directory of the run.
      guesses: number of codes to try, from 0 on.
    """
    started = time.perf_counter()
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
    size = len(contents('0000'))
    if size in numbers:
        found.append(f'{numbers[size]}: has the size of the data, {size} bytes')
    for code in map('{:04}'.format, range(guesses)):
        for digest in digests(code, known):
            if digest[:_START] in places:
                found.append(f'{places[digest[:_START]]}: has a digest by which the code is {code}')
                break
    return found, time.perf_counter() - started


def main() -> None:
    """Trains, attacks, and prints what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--guesses', type=int, default=10_000, help='codes that are tried')
    parser.add_argument('--run_dir', help='a run of this script that is there already')
    args = parser.parse_args()
    if not 1 <= args.guesses <= 10_000:
        parser.error(f'--guesses={args.guesses}: must be at least 1 and at most 10000')
    with tempfile.TemporaryDirectory() as folder:
        code = f'{random.SystemRandom().randrange(args.guesses):04}'
        run = pathlib.Path(args.run_dir) if args.run_dir else train(pathlib.Path(folder), code)
        found, seconds = find(run, args.guesses)
    for each in found:
        print(each)
    print(f'{args.guesses} codes in {seconds:.1f} s: {"found" if found else "nothing found"}')
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
