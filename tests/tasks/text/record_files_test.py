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
        if record.reason:
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
        b'{"who": "007", "text": "z\\":", "more": {"text": "x", "who": 1}}',
    ]
    good, bad = _scan(_JSON, mark + end.join(lines))
    of_7 = [('7', ''), ('7', 'caf\u00e9 \u00e9\n'), ('7', 'y')]
    assert good == [('a', 'x'), *of_7, ('7.5', 'z'), ('007', 'z":')]
    assert bad == [] and _scan(_JSON, mark) == ([], [])


_ID = 'client id is neither a string nor a number'
_ROW = b'{"who": "b", "text": "y"}'
_FIELDS = 'number of fields differs from the header'


@pytest.mark.parametrize(
    'form, line, reason',
    [
        (_JSON, b'{"who": "a", "text"', 'not JSON'),
        (_JSON, b'["a", "x"]', 'not a JSON object'),
        (_JSON, b'{"who": "a", "who": "b", "text": "x"}', 'a key occurs twice'),
        (_JSON, b'{"who": "a", "text": "x", "more": [{"k": 1, "k" : 2}]}', 'a key occurs twice'),
        (_JSON, b'{"who": "a"}', 'no text'),
        (_JSON, b'{"who": "a", "text": null}', 'no text'),
        (_JSON, b'{"who": "a", "text": 5}', 'text is not a string'),
        (_JSON, b'{"text": "x"}', 'no client id'),
        (_JSON, b'{"who": "", "text": "x"}', 'no client id'),
        (_JSON, b'{"who": null, "text": "x"}', 'no client id'),
        (_JSON, b'{"who": true, "text": "x"}', _ID),
        (_JSON, b'{"who": NaN, "text": "x"}', _ID),
        (_JSON, b'{"who": ["a"], "text": "x"}', _ID),
        (_JSON, b'{"who": "a", "text": "\xff"}', 'not UTF-8'),
        (_JSON, b'[' * 100_000, 'not JSON'),
        (_JSON, b'{"who": ' + b'9' * 5000 + b', "text": "x"}', 'not JSON'),
        (_JSON, b'x' * 2_000_000, 'record is too long'),
        (_CSV, b'a', _FIELDS),
        (_CSV, b'a,b,c', _FIELDS),
        (_CSV, b',x', 'no client id'),
        (_CSV, b',"x\nc,of nobody"', 'no client id'),
        (_CSV, b'"a"b,x', 'not CSV'),
        (_CSV, b'a,\xff', 'not UTF-8'),
    ],
    ids=lambda value: getattr(value, '__name__', str(value)[:30]),
)
def test_a_malformed_record_is_counted_and_the_next_one_read(form, line, reason, monkeypatch):
    monkeypatch.setattr(record_files, 'MAX_BYTES', 1_000_000)
    before, after = (b'who,text\na,x\n', b'\n\nb,y\n') if form is _CSV else (b'', b'\n' + _ROW)
    for mark in (b'', b'\xef\xbb\xbf'):
        good, bad = _scan(form, mark + before + line + after)
        assert good == ([('a', 'x')] if before else []) + [('b', 'y')]
        assert bad == [(1 + before.count(b'\n'), reason)]


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


_ROWS = b''.join(b'c%d,text %d\n' % (i, i) for i in range(50))


@pytest.mark.parametrize(
    'lines, reason',
    [
        # A quote further down closes it, as if it had been one field.
        (b'a,"open\n' + _ROWS, 'not CSV'),
        (b'a,"open\n' + _ROWS + b'"d",y\n', 'not CSV'),
        (b'a,"x\nb",y\n' + _ROWS, 'number of fields differs'),
        # The rest of the field would be a record of client c0.
        (b'a,"\xff\n' + _ROWS + b'"\n', 'not UTF-8'),
        (b'a,"x\n\xff"\n' + _ROWS, 'not UTF-8'),
        (b'x' * 2_000 + b'\n' + _ROWS, 'record is too long'),
        (b'"x\n",' * 400 + _ROWS, 'record is too long'),
    ],
)
def test_no_text_after_a_line_that_is_not_csv_is_used(lines, reason, monkeypatch):
    monkeypatch.setattr(record_files, 'MAX_BYTES', 1_000)
    read = _CSV(io.BytesIO(b'who,text\na,"x\ny"\n' + lines), 'who', 'text')
    assert next(read) == (2, 'a', 'x\ny', '')
    with pytest.raises(ValueError, match=f'^line 4 cannot be read: {reason}'):
        next(read)


@pytest.mark.parametrize(
    'header, message',
    [
        (b'Ann,my secret\n', r'^client_column=who: must be one of the 2 columns that .* client\)$'),
        (b'who,words\n', 'text_column=text: must be one of the 2 columns'),
        (b'who,text,who\n', 'client_column=who: must be one of the 3 columns'),
        (b'\n', 'client_column=who: must be one of the 0 columns'),
        (b'\xff\n', '^must begin with a header'),
    ],
)
def test_a_header_without_the_columns_is_refused(header, message):
    with pytest.raises(ValueError, match=message) as refused:
        list(_CSV(io.BytesIO(header + b'a,x\n'), 'who', 'text'))
    assert 'Ann' not in str(refused.value) and 'secret' not in str(refused.value)
