"""Hostile files of runs: checkpoints, journals and digests with valid checksums and bad values."""

import hashlib
import io
import json

import numpy as np
import pytest

from dpfl import errors
from dpfl.accounting.records import archive, verification
from dpfl.simulation import checkpoint, run_journal
from tests.attacks.hostile import privacy_targets
from tests.attacks.hostile.files import npy_described, npy_header
from tests.attacks.hostile.refusals import refused


def _checkpoint(change, arrays=None) -> bytes:
    whole = checkpoint.Checkpoint(rounds=1, head='b', state=[np.zeros(2), b'key'])
    file = io.BytesIO()
    whole.write(file)
    first, header, rest = file.getvalue()[:-32].split(b'\n', 2)
    values = json.loads(header)
    values.update(change)
    data = b'\n'.join([first, json.dumps(values).encode(), rest if arrays is None else arrays])
    return data + hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    'change',
    [
        {'rounds': -1},
        {'rounds': 'one'},
        {'rounds': 10**30},
        {'leaves': 10**9},
        {'leaves': 1},
        {'bytes': [-1]},
        {'bytes': [5]},
        {'head': []},
        {'head': None},
        b'',
        npy_described('(1000000000000,)'),
        npy_header('(' * 5000),
        npy_header("{'descr': '\\d"),
    ],
)
def test_a_checkpoint_of_other_contents_is_refused_behind_its_digest(change, tmp_path):
    path = tmp_path / '00000001.checkpoint'
    path.write_bytes(_checkpoint({}))
    assert checkpoint.Checkpoint.read(path).rounds == 1
    arrays = isinstance(change, bytes)
    path.write_bytes(_checkpoint({}, change) if arrays else _checkpoint(change))
    refused(lambda: checkpoint.Checkpoint.read(path), checkpoint.CheckpointError)


def _journal(text: str) -> bytes:
    """A journal of one line, whose chain is right."""
    start = hashlib.sha256(b'dpfl journal').hexdigest()
    chain = hashlib.sha256((start + text).encode()).hexdigest()
    return f'{text[:-1]}, "chain": "{chain}"}}\n'.encode()


@pytest.mark.parametrize('value', ['5', 'null', '[' * 900 + ']' * 900, '{"a": 1}', '1e5'])
def test_a_journal_of_other_values_is_refused_behind_its_chain(value, tmp_path):
    text = '{"format": 3, "event": "planned", "settings": null, "files": %s, "date": "a", '
    text += f'"version": "b", "keys": "{"c" * 64}"}}'
    (tmp_path / 'ledger.jsonl').write_bytes(_journal(text % '{}'))
    run_journal.RunJournal(tmp_path)
    (tmp_path / 'ledger.jsonl').write_bytes(_journal(text % value))
    message = refused(lambda: run_journal.RunJournal(tmp_path), errors.RunError)
    assert 'line 1 is damaged' in message


def test_a_journal_of_a_strange_format_is_one_line(tmp_path):
    (tmp_path / 'ledger.jsonl').write_bytes(_journal('{"format": "\\u001b[2J\\n", "event": "a"}'))
    message = refused(lambda: run_journal.RunJournal(tmp_path), errors.RunError)
    assert 'has format \\x1b[2J, this version' in message


def test_a_run_that_was_not_spoilt_is_verified(tmp_path):
    target = privacy_targets.RunDirectory(tmp_path / 'files')
    for number, run in enumerate(target._runs):
        case = tmp_path / f'{number}'
        case.mkdir()
        for name, data in run.items():
            (case / name).write_bytes(data)
        (case / archive.SUMS).write_text(archive.digests(case))
        assert verification.verify(case).differences == ()


def test_names_in_a_list_of_digests_are_shown_in_one_line(tmp_path):
    target = privacy_targets.RunDirectory(tmp_path / 'files')
    for name, data in target._runs[0].items():
        (tmp_path / name).write_bytes(data)
    sums = archive.digests(tmp_path) + f'{"0" * 64}  a\x1b[2J\x85b\n'
    (tmp_path / archive.SUMS).write_text(sums)
    differences = verification.verify(tmp_path).differences
    assert differences and all(line.isprintable() for line in differences)
