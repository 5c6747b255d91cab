"""Messages of authors: rules of prose, mail, authors and keys, and data sets made of them."""

import collections
import json
import os
import stat

import pytest
from pyarrow import parquet

from dpfl.errors import ArgumentError, StorageError
from dpfl.tasks.text import author_texts, client_texts, tokenization, vocabulary
from dpfl.tasks.text.author_texts import Message
from tests.studies import scripts_of_studies
from tests.tasks.text import repositories
from tests.tasks.text.repositories import Commit

dataset = scripts_of_studies.load('make_dataset')

_KEY = bytes(range(32))


pytestmark = pytest.mark.usefixtures('cache')


_FIRST, _TWO = Message('a@x', 0, 'one two three'), Message('a@x', 0, 'four five. six')
# Messages and the cap on words; what is kept of each author, by source; what is counted.
_AUTHORS = {
    'joined over all sources, in order': (
        [Message('a@x', 0, 'One. Two'), Message('b@x', 0, 'Three'), Message('a@x', 1, 'Four')],
        0,
        {'a@x': [(0, 'One.'), (0, 'Two'), (1, 'Four')], 'b@x': [(0, 'Three')]},
        {'authors': 2, 'sentences': 4, 'words': 5},
    ),
    'identical sentences of one author are there once': (
        [
            Message('a@x', 0, 'Fix it. fix  IT.'),
            Message('b@x', 0, 'Fix it.'),
            Message('a@x', 1, 'Fix it.\n\nFix it now.'),
        ],
        0,
        {'a@x': [(0, 'Fix it.'), (1, 'Fix it now.')], 'b@x': [(0, 'Fix it.')]},
        {'authors': 2, 'sentences': 3, 'words': 10, 'repeated_sentences': 2},
    ),
    # All are counted, and another author has words of its own.
    'the first sentences that fit': (
        [_FIRST, _TWO, _FIRST, _TWO, Message('b@x', 0, 'one two three four five')],
        5,
        {
            'a@x': [(0, 'one two three'), (0, 'six')],
            'b@x': [(0, 'one two three four five')],
        },
        {
            'authors': 2,
            'sentences': 3,
            'words': 9,
            'repeated_sentences': 3,
            'sentences_over_cap': 1,
            'words_over_cap': 3,
        },
    ),
}


@pytest.mark.parametrize('case', _AUTHORS)
def test_the_sentences_of_authors(case):
    messages, max_words, expected, counted = _AUTHORS[case]
    counts, found = collections.Counter(), {}
    sentences = author_texts.by_author(iter(messages), _KEY, max_words, counts)
    for client, source, sentence in sentences:
        assert client not in list(found)[:-1], 'the sentences of a client are together'
        found.setdefault(client, []).append((source, sentence))
    assert found == {author_texts.client_of(_KEY, a): texts for a, texts in expected.items()}
    assert +counts == counted


def test_the_key_is_made_once_and_only_for_its_owner(cache):
    key = author_texts.load_key()
    assert len(key) == 32 and author_texts.load_key() == key
    assert stat.S_IMODE((cache / 'authors.key').stat().st_mode) == 0o600
    assert os.listdir(cache) == ['authors.key']
    (cache / 'authors.key').unlink()
    assert author_texts.load_key() != key


def test_a_key_that_another_process_has_made_meanwhile_stays(cache, monkeypatch):
    def urandom(count):
        (cache / 'authors.key').write_bytes(_KEY)
        return bytes(count)

    monkeypatch.setattr(os, 'urandom', urandom)
    assert author_texts.load_key() == _KEY


def test_keys_that_cannot_be_used_are_named(cache, monkeypatch):
    cache.mkdir()
    (cache / 'authors.key').write_bytes(b'short')
    for folder, error, message in (
        (str(cache), StorageError, r'authors\.key: must have 32 bytes; remove it'),
        (str(cache / 'authors.key'), StorageError, 'authors.key: '),
        ('', ArgumentError, 'data_path: needs a cache directory .* is empty'),
    ):
        monkeypatch.setenv('DPFL_CACHE_DIR', folder)
        with pytest.raises(error, match=message):
            author_texts.load_key()


def _client(author):
    return author_texts.client_of(author_texts.load_key(), author)


def _rows(path):
    return {tuple(row.values()) for row in parquet.read_table(path).to_pylist()}


@pytest.mark.usefixtures('parquet_in_process')
def test_a_data_set_of_repositories(tmp_path):
    first = repositories.make(
        tmp_path / 'a.git', [Commit('A@x.org', 'One. Two'), Commit('b@x.org', 'Three')]
    )
    second = repositories.make(tmp_path / 'b', [Commit('a@x.org', 'Four\n\nOne.')])
    output = tmp_path / 'out.parquet'
    output.write_text('older')
    made = dataset.make('git', f'{first},{second}', output, max_words=0)
    assert parquet.read_table(output).column_names == ['client', 'source', 'text', 'sentence']
    a, b = _client('a@x.org'), _client('b@x.org')
    of_a = {(a, 'a', 'One.', 0), (a, 'a', 'Two', 1), (a, 'b', 'Four', 2)}
    assert _rows(output) == of_a | {(b, 'a', 'Three', 0)}
    assert made['clients'] == 2 and made['sources'] == ['a', 'b']
    assert made['history']['commits'] == 3 and made['removed']['repeated_sentences'] == 1
    assert made['kept'] == {'sentences': 4, 'words': 5}
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    # As a task, and as public text.
    data = client_texts.open_user_text(output, 'client', 'text', 0.5)
    assert data.training.count + data.heldout.count == 2 and data.description['records'] == 4
    sentences = vocabulary.public_sentences('vocabulary_text', output)
    assert {*map(' '.join, sentences)} == {'one .', 'two', 'four', 'three'}


def test_data_sets_of_records_and_of_mail(tmp_path):
    path, output = tmp_path / 'a.jsonl', tmp_path / 'out.parquet'
    lines = [{'who': 7, 'said': 'One\n> two'}, {'who': '7', 'said': 'Three'}, {'who': 'x'}]
    path.write_text(''.join(json.dumps(line) + '\n' for line in lines))
    columns = dict(client_column='who', text_column='said')
    made = dataset.make('jsonl', str(path), output, max_words=0, **columns)
    client = _client('7')
    assert _rows(output) == {(client, 'a.jsonl', 'One', 0), (client, 'a.jsonl', 'Three', 1)}
    assert made['history'] == {'records': 3, 'malformed': 1, 'authors': 1}
    assert made['removed']['quoted_lines'] == 1
    # Clients of mail are those of repositories.
    path = tmp_path / 'box'
    path.write_text('From x\nFrom: A <A@x.org>\n\nHello you. Bye\n')
    made = dataset.make('mbox', str(path), output, max_words=3)
    assert _rows(output) == {(_client('a@x.org'), 'box', 'Hello you.', 0)}
    assert made['history']['messages'] == 1 and made['removed']['words_over_cap'] == 1


def test_what_cannot_be_read_leaves_an_older_file(tmp_path):
    output = tmp_path / 'out.parquet'
    output.write_text('older')
    columns = r'client_column=client, text_column=text'
    for name, content, message in (
        ('a.jsonl', '{"client": 1, "text": "> x"}\n', '^data_path: has no sentence'),
        (
            'b.jsonl',
            '{"who": 1, "text": "x"}\n{"who": 2, "text": "y"}\n',
            '^client_column=client: must be one of the 2 columns: who, text$',
        ),
        (
            'c.jsonl',
            'x\ny\n',
            rf'^data_path: all records are malformed \({columns}\); '
            'the first one: .*c.jsonl, line 1: not JSON$',
        ),
        ('absent', None, r'^data_path=.*absent: cannot be read \(No such file'),
    ):
        if content:
            (tmp_path / name).write_text(content)
        with pytest.raises(ArgumentError, match=message):
            dataset.make('jsonl', str(tmp_path / name), output, max_words=0)
    assert output.read_text() == 'older'
    assert not (tmp_path / 'out.parquet.partial').exists()


_LONG = 'This line is long enough to be wrapped, so it goes'


_CASES = {
    'subject': ('Fix the parser', ['Fix the parser'], {}),
    'sentences': ('One. Two!  Three', ['One.', 'Two!', 'Three'], {}),
    'wrapped': (f'{_LONG}\non here. Next.', [f'{_LONG} on here.', 'Next.'], {}),
    'short lines': ('First thing\nSecond thing', ['First thing', 'Second thing'], {}),
    'paragraphs': (f'{_LONG}\n\nNew one', [_LONG, 'New one'], {}),
    'line ends': ('One\r\n\r\nTwo\r\n', ['One', 'Two'], {}),
    'signed off': (
        'Fix\n\nText\nSigned-off-by: A B <a@example.org>\nReviewed-By: C\nCc: D\n',
        ['Fix', 'Text'],
        {'trailers': 3},
    ),
    'trailers in the subject only': ('Signed-off-by: A', [], {'trailers': 1}),
    'with spaces': ('Fix\n\nSubmitted by: A\nText', ['Fix', 'Text'], {'trailers': 1}),
    'ids': (
        'Fix\n\nText\nChange-Id: I0123\ngit-svn-id: https://example.org/1 a',
        ['Fix', 'Text'],
        {'trailers': 2},
    ),
    'last paragraph of pairs': (
        'Fix\n\nText here\n\nBug: 12\nTest: ran it\n  and more\n',
        ['Fix', 'Text here'],
        {'trailers': 3},
    ),
    'pairs not last': ('Fix\n\nNote: so\n\nText', ['Fix', 'Note: so', 'Text'], {}),
    'subject like a pair': ('parser: fix it', ['parser: fix it'], {}),
    'picked': (
        'Fix\n\n(cherry picked from commit 0123abc)\nThis reverts commit 0123abc4567.',
        ['Fix'],
        {'trailers': 2},
    ),
    'references': (
        'Fix\n\nText\nCloses #12\nFixes: a/b#3, #4\nSee also https://example.org/x',
        ['Fix', 'Text'],
        {'trailers': 3},
    ),
    'a reference in a sentence stays': ('Fixes #12 for good', ['Fixes #12 for good'], {}),
    'fence': ('Do\n\n```sh\nrun it\n\n```\nDone', ['Do', 'Done'], {'code_lines': 4}),
    'fence with tildes': ('Do\n~~~\nrun ```\n~~~\nDone', ['Do', 'Done'], {'code_lines': 3}),
    'open fence': ('Do\n```\nrun it', ['Do'], {'code_lines': 2}),
    'indented': ('Do:\n\n    run it\n\tand this\n\nDone', ['Do:', 'Done'], {'code_lines': 2}),
    'a little indented': ('Do\n\n  this', ['Do', 'this'], {}),
    'list': ('Do\n\n- one\n* two\n 3. three', ['Do', 'one', 'two', 'three'], {}),
    'wrapped item': (f'-   {_LONG}\n    on', [f'{_LONG} on'], {}),
    'nested item': ('- one\n  - two\n    - three', ['one', 'two', 'three'], {}),
    'code after a list': ('- one\n\nText\n\n    code', ['one', 'Text'], {'code_lines': 1}),
    'quoted': ('I say\n> you said\nI do', ['I say', 'I do'], {'quoted_lines': 1}),
    'diff': (
        'Do\n\ndiff --git a/x b/x\nindex 0123456..789abcd\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n'
        '-a\n+b\n\nDone',
        ['Do', 'Done'],
        {'diff_lines': 7},
    ),
    'hunk': ('Do\n@@ -1,2 +1,2 @@ f\n-a', ['Do'], {'diff_lines': 2}),
    'link': ('See https://example.org/a?b=c. Or www.example.org', ['See .', 'Or'], {'links': 2}),
    'link in brackets': ('It (https://example.org/a) is', ['It is'], {'links': 1}),
    'address': ('Ask A <a.b@example.org> now', ['Ask A now'], {'addresses': 1}),
    'no address': ('Ask @somebody', ['Ask @somebody'], {}),
    'hash': ('At 0123abc and [deadbee1] it fails', ['At and it fails'], {'hashes': 2}),
    'no hash': ('A defaced 1234567 and 12ab', ['A defaced 1234567 and 12ab'], {}),
    'change id': ('As I' + '0a' * 20 + ' says', ['As says'], {'hashes': 1}),
    'code': ('Call `f(x)` or ``g``', ['Call or g'], {'inline_code': 1}),
    'name in code': ('Call `a_b.c-d`', ['Call a_b.c-d'], {}),
    'brackets of a call stay': ('f() at 0123abc', ['f() at'], {'hashes': 1}),
    'no letters': ('1.2.3\n\n====\n\nText 1', ['Text 1'], {'without_letters': 2}),
    'other letters': ('Поправка. 修正', ['Поправка.', '修正'], {}),
    'empty': ('', [], {}),
    'blank': (' \n\n\t\n', [], {}),
}


@pytest.mark.parametrize(('text', 'expected', 'removed'), _CASES.values(), ids=_CASES)
def test_a_rule(text, expected, removed):
    counts = collections.Counter()
    kept = author_texts.prose(text, counts)
    assert kept == expected and +counts == removed and {*counts} <= {*author_texts.REMOVED}
    # The text of a client is its sentences in lines, and the reader splits it again.
    assert list(tokenization.sentences('\n'.join(kept))) == [tokenization.words(s) for s in kept]


@pytest.mark.parametrize(
    'text',
    [
        '- ' * 9**5,
        '(' * 9**5,
        '`' * 9**5,
        '``a`' * 9**5,
        '0' * 9**5,
        'a' * 9**5 + '@',
        'a@' * 9**5,
        'see' + ' ' * 9**5 + 'x',
        'see ' + 'https://a,' * 9**5 + ' !',
        'fixes #1' + ' and' * 9**5,
        'a-' * 9**5,
        'http://.' * 9**5,
        '> \n' * 9**5,
        'Key: value\n\n' * 9**5,
    ],
    ids=lambda text: text[:12],
)
def test_strange_text_takes_no_more_time_than_other_text(text):
    """No rule takes longer than in proportion to the length; a quadratic one would take minutes."""
    author_texts.prose(text, collections.Counter())


_BOX = b"""\
From a Thu Jan  1 00:00:00 1970
From: Some Body <A@Example.org>
Subject: none

First line.

On Monday, B <b@example.org> wrote:
> What?
Answer.
-- \nSome Body

From b Thu Jan  1 00:00:00 1970
From: b at example.org (B C)
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

caf=E9

From c Thu Jan  1 00:00:00 1970
Subject: nobody

Text

From d Thu Jan  1 00:00:00 1970
From: d@example.org
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/html

<b>Bold</b>
--x
Content-Type: text/plain
Content-Disposition: attachment

Attached
--x
Content-Type: text/plain; charset=unknown-8bit

Caf\xe9 plain
--x--

From e Thu Jan  1 00:00:00 1970
From: e@example.org
Content-Type: text/html

<b>Bold</b>
"""


def _read_mail(*paths):
    counts = collections.Counter()
    return [*dataset.mailbox_messages([*map(str, paths)], counts)], counts


def test_a_mailbox(tmp_path):
    (tmp_path / 'box').write_bytes(_BOX)
    found, counts = _read_mail(tmp_path / 'box', tmp_path / 'box')
    assert [(each.author, each.source, each.text.split()) for each in found[:3]] == [
        ('a@example.org', 0, ['First', 'line.', '>', 'What?', 'Answer.']),
        ('b@example.org', 0, ['caf\xe9']),
        ('d@example.org', 0, ['Caf\ufffd', 'plain']),
    ]
    assert [each.source for each in found] == [0, 0, 0, 1, 1, 1]
    twos = ('without_author', 'not_text', 'endings', 'attributions', 'not_utf8')
    assert +counts == {'messages': 10, **dict.fromkeys(twos, 2)}
    assert (tmp_path / 'box').read_bytes() == _BOX  # It was only read.


@pytest.mark.parametrize(
    'text, kept, counted',
    [
        *(
            (f'Text -- here\r\n{ending}\r\nNot this\n', 'Text -- here\n', {'endings': 1})
            for ending in ('-- ', '--', '---', '-----Original Message-----', 'Index: x')
        ),
        ('Text\ndiff --git a/x b/x\nNot this\n', 'Text\n', {'endings': 1}),
        *(
            (f'Hi\n\n{line}\nYes', 'Hi\n\n\nYes', {'attributions': 1})
            for line in ('On 1 May, A B <a@x>\nwrote:', 'A B writes:', 'Am 1., A <a@x> wrote:')
        ),
    ],
)
def test_endings_and_attributions_are_left_out(text, kept, counted):
    counts = collections.Counter()
    assert dataset.without_quotes(text, counts) == kept and +counts == counted


@pytest.mark.parametrize('content', [None, b'', b'Hello'])
def test_other_files_are_refused(content, tmp_path):
    message = r'cannot be read \(No such file' if content is None else 'must be in mbox format'
    if content is not None:
        (tmp_path / 'box').write_bytes(content)
    with pytest.raises(ArgumentError, match=f'^data_path={tmp_path}/box: {message}'):
        _read_mail(tmp_path / 'box')


@pytest.mark.parametrize(
    'header', [b'From: =?x?=', b'From:', b'From: \xff@\xfe', b'Content-Type: ;']
)
def test_strange_headers_do_no_harm(header, tmp_path):
    (tmp_path / 'box').write_bytes(b'From x\n' + header + b'\n\nText\n')
    found, counts = _read_mail(tmp_path / 'box')
    assert len(found) + counts['without_author'] == 1
