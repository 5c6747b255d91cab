"""Records of JSON Lines and CSV files against the standard readers."""

import csv
import io
import random

import pytest

from dpfl.tasks.text import record_files

_JSON, _CSV = record_files.json_lines, record_files.csv_rows


def _scan(form, data: bytes):
    """Pairs of the good records, (line, reason) of the bad ones."""
    good, bad = [], []
    for record in form(io.BytesIO(data), 'who', 'text'):
        if isinstance(record, record_files.BadRecord):
            bad.append((record.line, record.reason))
        else:
            good.append((record.client, record.text))
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
        b'{"who": "007", "text": "z"}',
    ]
    good, bad = _scan(_JSON, mark + end.join(lines))
    of_7 = [('7', ''), ('7', 'caf\u00e9 \u00e9\n'), ('7', 'y')]
    assert good == [('a', 'x'), *of_7, ('7.5', 'z'), ('007', 'z')]
    assert bad == []


@pytest.mark.parametrize(
    'line, reason',
    [
        (b'{"who": "a", "text"', 'not JSON'),
        (b'["a", "x"]', 'not a JSON object'),
        (b'{"who": "a", "who": "b", "text": "x"}', 'a key occurs twice'),
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


def test_a_byte_order_mark_is_no_line():
    assert _scan(_JSON, b'\xef\xbb\xbf') == ([], [])


@pytest.mark.parametrize(
    'form, header', [(_JSON, b''), (_JSON, b'\xef\xbb\xbf'), (_CSV, b'who,text\n')]
)
def test_a_huge_line_is_malformed_and_does_not_end_the_scan(form, header, monkeypatch):
    monkeypatch.setattr(record_files, 'MAX_BYTES', 1000)
    after = b'{"who": "b", "text": "y"}\n' if form is _JSON else b'b,y\n'
    good, bad = _scan(form, header + b'x' * 12_345 + b'\n' + after)
    assert good == [('b', 'y')]
    assert bad == [(1 + header.count(b'\n'), 'record is too long')]


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
        (b'\xff\n', '^must begin with a header'),
    ],
)
def test_a_header_without_the_columns_is_refused(header, message):
    with pytest.raises(ValueError, match=message):
        list(_CSV(io.BytesIO(header + b'a,x\n'), 'who', 'text'))
