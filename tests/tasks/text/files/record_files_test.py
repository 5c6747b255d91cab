"""Records of JSON Lines and CSV files against the standard readers, and the index of a file."""

import csv
import io
import json
import os
import random
import tempfile
import tracemalloc

import numpy as np
import pytest

from dpfl.tasks.text.files import record_files, record_index

_JSON = record_files.JsonLines('who', 'text')
_CSV = record_files.Csv('who', 'text')


def _scan(form, data: bytes):
    """Pairs of the good records, (line, reason) of the bad ones; re-reads each good one alone."""
    good, bad = [], []
    parse = form.parser(io.BytesIO(data))
    for record in form.scan(io.BytesIO(data)):
        if isinstance(record, record_files.BadRecord):
            bad.append((record.line, record.reason))
        else:
            good.append((record.client, record.text))
            alone = data[record.offset : record.offset + record.length]
            assert parse(alone) == good[-1]
    return good, bad


@pytest.mark.parametrize('end', [b'\n', b'\r\n'])
@pytest.mark.parametrize('mark', [b'', b'\xef\xbb\xbf'])
def test_json_lines(end, mark):
    lines = [
        b'{"who": "a", "text": "x"}',
        b'',
        b'  ',
        b'{"who": 7, "text": ""}',
        b'{"text": "caf\xc3\xa9 \\u00e9\\n", "who": "7", "more": [1]}',
        b'{"who": 7.0, "text": "y"}',
        b'{"who": 7.5, "text": "z"}',
    ]
    good, bad = _scan(_JSON, mark + end.join(lines))
    assert good == [('a', 'x'), ('7', ''), ('7', 'caf\u00e9 \u00e9\n'), ('7', 'y'), ('7.5', 'z')]
    assert bad == []


@pytest.mark.parametrize(
    'line, reason',
    [
        (b'{"who": "a", "text"', 'not JSON'),
        (b'["a", "x"]', 'not a JSON object'),
        (b'{"who": "a"}', 'no text'),
        (b'{"who": "a", "text": null}', 'no text'),
        (b'{"who": "a", "text": 5}', 'text is not a string'),
        (b'{"text": "x"}', 'no client id'),
        (b'{"who": "", "text": "x"}', 'no client id'),
        (b'{"who": null, "text": "x"}', 'no client id'),
        (b'{"who": true, "text": "x"}', 'client id is neither a string nor a number'),
        (b'{"who": NaN, "text": "x"}', 'client id is neither a string nor a number'),
        (b'{"who": ["a"], "text": "x"}', 'client id is neither a string nor a number'),
        (b'{"who": "a", "text": "\xff"}', 'not UTF-8'),
        (b'[' * 100_000, 'not JSON'),
        (b'{"who": ' + b'9' * 5000 + b', "text": "x"}', 'not JSON'),
    ],
)
def test_a_malformed_line_is_counted_and_the_next_one_read(line, reason):
    good, bad = _scan(_JSON, b'{"who": "a", "text": "x"}\n' + line + b'\n{"who": "b", "text": "y"}')
    assert good == [('a', 'x'), ('b', 'y')]
    assert bad == [(2, reason)]


@pytest.mark.parametrize('form, header', [(_JSON, b''), (_CSV, b'who,text\n')])
def test_a_huge_line_is_malformed_and_does_not_end_the_scan(form, header, monkeypatch):
    monkeypatch.setattr(record_files, 'MAX_BYTES', 1000)
    after = b'{"who": "b", "text": "y"}\n' if form is _JSON else b'b,y\n'
    good, bad = _scan(form, header + b'x' * 12_345 + b'\n' + after)
    assert good == [('b', 'y')]
    assert bad == [(1 + bool(header), 'record is too long')]


def test_csv_agrees_with_the_standard_reader():
    rng = random.Random(0)
    pieces = ['a', 'b,c', '"q"', 'x\ny', 'x\r\ny', '\u00e9', '', ' ', '5']
    for end in ('\n', '\r\n'):
        rows = [[str(i % 3), 'n', ''.join(rng.choices(pieces, k=3))] for i in range(300)]
        text = io.StringIO(newline='')
        writer = csv.writer(text, lineterminator=end)
        writer.writerows([['who', 'n', 'text'], *rows])
        good, bad = _scan(_CSV, b'\xef\xbb\xbf' + text.getvalue().encode())
        assert good == [(row[0], row[2]) for row in rows]
        assert bad == []


@pytest.mark.parametrize(
    'line, reason',
    [
        (b'a', 'number of fields differs from the header'),
        (b'a,b,c', 'number of fields differs from the header'),
        (b',x', 'no client id'),
        (b'"a"b,x', 'not CSV'),
        (b'a,\xff', 'not UTF-8'),
    ],
)
def test_a_malformed_row_is_counted_and_the_next_one_read(line, reason):
    good, bad = _scan(_CSV, b'who,text\na,x\n' + line + b'\n\nb,y\n')
    assert good == [('a', 'x'), ('b', 'y')]
    assert bad == [(3, reason)]


def test_a_quote_that_nobody_closes_takes_no_text_of_other_clients():
    rows = b''.join(b'c%d,text %d\n' % (i, i) for i in range(50))
    good, bad = _scan(_CSV, b'who,text\na,"open\n' + rows)
    assert good == [(f'c{i}', f'text {i}') for i in range(50)]
    assert bad == [(2, 'not CSV')]
    # A quote further down closes it, as if it had been one field.
    good, bad = _scan(_CSV, b'who,text\na,"open\n' + rows + b'"d",y\n')
    assert good == [(f'c{i}', f'text {i}') for i in range(50)] + [('d', 'y')]
    assert bad == [(2, 'not CSV')]


@pytest.mark.parametrize(
    'header, message',
    [
        (b'who,words\n', 'text_column=text: must be one of the 2 columns'),
        (b'who,text,who\n', 'client_column=who: must be one of the 3 columns'),
        (b'\n', 'client_column=who: must be one of the 0 columns'),
        (b'\xff\n', 'data_path: must begin with a header'),
    ],
)
def test_a_header_without_the_columns_is_refused(header, message):
    with pytest.raises(ValueError, match=message):
        list(_CSV.scan(io.BytesIO(header + b'a,x\n')))


def test_reasons_quote_nothing_of_the_data():
    secret = 'my secret'
    lines = [
        json.dumps(secret),
        json.dumps({'who': [secret], 'text': secret}),
        secret,
        json.dumps({'who': secret}),
    ]
    _, bad = _scan(_JSON, '\n'.join(lines).encode())
    assert len(bad) == 4 and not any(secret in reason for _, reason in bad)


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


def test_an_index_is_kept_as_long_as_the_file_is_the_same(tmp_path, cache, scans):
    path = _write(tmp_path / 'a.jsonl', [('a', 'x'), ('b', 'y'), ('a', 'z')])
    first = record_index.index_file(path, _FORM)
    again = record_index.index_file(path, _FORM)
    assert len(scans) == 1
    assert again.summary == first.summary
    for name in ('starts', 'offsets', 'lengths'):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))

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


def test_a_kept_index_is_for_its_owner_only_and_names_nobody(tmp_path, cache):
    path = _write(tmp_path / 'a.jsonl', [('somebody@example.org', 'private words'), ('b', 'y')])
    record_index.index_file(path, _FORM)
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not any(word in kept.read_bytes() for word in (b'somebody', b'private', b'a.jsonl'))


def test_an_index_takes_few_bytes_of_memory_for_each_record():
    peaks, summary = [], record_index.Summary(0, 0, '')
    for count in (2_000, 8_000):
        lines = (json.dumps({'client': f'c{i % 97}', 'text': 'a b'}) + '\n' for i in range(count))
        with tempfile.TemporaryFile() as file:
            file.write(''.join(lines).encode())
            file.seek(0)
            tracemalloc.start()
            record_index.build(file, _FORM, summary)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 64 * 6_000  # Lists grow in steps.
