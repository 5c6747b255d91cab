"""The index of a file against a dictionary, and when a cached one is used."""

import json
import os
import random

import numpy as np
import pytest

from dpfl.tasks.text.files import record_files, record_index

_FORM = record_files.JsonLines('client', 'text')


@pytest.fixture(name='cache')
def _cache(tmp_path, monkeypatch):
    path = tmp_path / 'cache'
    monkeypatch.setenv('DPFL_CACHE_DIR', str(path))
    return path


@pytest.fixture(name='scans')
def _scans(monkeypatch):
    """A list that grows by one whenever a file is scanned."""
    scans = []
    scan = record_files.JsonLines.scan
    monkeypatch.setattr(
        record_files.JsonLines, 'scan', lambda form, file: scans.append(1) or scan(form, file)
    )
    return scans


def _write(path, records):
    path.write_text(
        ''.join(json.dumps({'client': client, 'text': text}) + '\n' for client, text in records)
    )
    return path


def _read(path, index):
    """Texts of each client, in the order of the index."""
    data = path.read_bytes()
    texts = []
    for client in range(index.num_clients):
        records = range(index.starts[client], index.starts[client + 1])
        texts.append(
            [
                json.loads(data[index.offsets[r] : index.offsets[r] + index.lengths[r]])
                for r in records
            ]
        )
    return [[(v['client'], v['text']) for v in client] for client in texts]


def test_records_are_grouped_by_client_in_the_order_of_the_file(tmp_path):
    rng = random.Random(0)
    records = [(f'c{rng.randrange(40)}', f'text {i}') for i in range(500)]
    expected = {}
    for client, text in records:
        expected.setdefault(client, []).append((client, text))
    path = _write(tmp_path / 'a.jsonl', records)
    index = record_index.index_file(path, _FORM)
    grouped = _read(path, index)
    assert len(grouped) == len(expected)
    assert all(texts == expected[texts[0][0]] for texts in grouped)
    assert index.summary.records == 500

    # The order of the clients does not depend on the order of the file.
    rng.shuffle(records)
    other = _write(tmp_path / 'b.jsonl', records)
    again = _read(other, record_index.index_file(other, _FORM))
    assert [texts[0][0] for texts in again] == [texts[0][0] for texts in grouped]


def test_what_is_left_out_is_counted(tmp_path):
    path = _write(tmp_path / 'a.jsonl', [('a', 'x'), ('b', ' \u3000\n'), ('a', '')])
    with open(path, 'a') as file:
        file.write('nonsense\n{"client": "a"}\nnonsense\n')
    summary = record_index.index_file(path, _FORM).summary
    assert (summary.records, summary.empty) == (1, 2)
    assert summary.malformed == {'not JSON': 2, 'no text': 1}
    assert summary.num_malformed == 3
    assert summary.first_malformed == (4, 'not JSON')


def test_a_file_without_records_has_no_clients(tmp_path):
    for content in ('', 'nonsense', '\n\n'):
        path = tmp_path / 'a.jsonl'
        path.write_text(content)
        assert record_index.index_file(path, _FORM).num_clients == 0


def test_an_index_is_kept_as_long_as_the_file_is_the_same(tmp_path, cache, scans):
    path = _write(tmp_path / 'a.jsonl', [('a', 'x'), ('b', 'y'), ('a', 'z')])
    first = record_index.index_file(path, _FORM)
    again = record_index.index_file(path, _FORM)
    assert len(scans) == 1
    assert again.summary == first.summary
    for name in ('starts', 'offsets', 'lengths'):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    kept = b''.join(p.read_bytes() for p in cache.iterdir())
    assert b'a.jsonl' not in kept

    # Other bytes of the same length, and the same time: only the digest shows it.
    status = os.stat(path)
    _write(path, [('a', 'x'), ('a', 'y'), ('b', 'z')])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    changed = _read(path, record_index.index_file(path, _FORM))
    assert sorted(changed) == [[('a', 'x'), ('a', 'y')], [('b', 'z')]]
    assert len(scans) == 2
    # Another time, another column.
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    record_index.index_file(path, _FORM)
    assert len(scans) == 3
    record_index.index_file(path, record_files.JsonLines('text', 'client'))
    assert len(scans) == 4
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_index_is_made_again(tmp_path, cache, scans):
    path = _write(tmp_path / 'a.jsonl', [('a', 'x'), ('b', 'y'), ('a', 'z')] * 10)
    expected = _read(path, record_index.index_file(path, _FORM))
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for i, data in enumerate((b'', whole[:-30], whole[:200] + b'\xff' * 8 + whole[208:]), 2):
        kept.write_bytes(data)
        assert _read(path, record_index.index_file(path, _FORM)) == expected
        assert len(scans) == i
    assert kept.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / 'file').touch()
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'file' / 'cache'))
    path = _write(tmp_path / 'a.jsonl', [('a', 'x')])
    assert record_index.index_file(path, _FORM).num_clients == 1


def test_a_kept_index_is_for_its_owner_only(tmp_path, cache):
    record_index.index_file(_write(tmp_path / 'a.jsonl', [('a', 'x'), ('b', 'y')]), _FORM)
    (kept,) = (path for path in cache.rglob('*') if path.is_file())
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_key_is_not_in_the_kept_index(tmp_path, cache):
    key = 'somebody@example.org'
    path = _write(tmp_path / 'a.jsonl', [(key, 'private words')])
    record_index.index_file(path, _FORM)
    (kept,) = cache.iterdir()
    assert key.encode() not in kept.read_bytes() and b'private' not in kept.read_bytes()
