"""What is removed from messages and mail and what stays, rule by rule."""

import collections

import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.text import author_texts, tokenization
from experiments.studies.shared import mail

_LONG = 'This line is long enough to be wrapped, so it goes'


def _read(text):
    removed = collections.Counter()
    found = author_texts.prose(text, removed)
    assert set(removed) <= set(author_texts.REMOVED)
    return found, {name: count for name, count in removed.items() if count}


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
    'pairs that are not last': (
        'Fix\n\nNote: careful\n\nText',
        ['Fix', 'Note: careful', 'Text'],
        {},
    ),
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
    'hash': (
        'Since 0123abc and [deadbee1] it fails',
        ['Since and it fails'],
        {'hashes': 2},
    ),
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
    kept, _ = found = _read(text)
    assert found == (expected, removed)
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
    return [*mail.messages([*map(str, paths)], counts)], counts


def test_a_mailbox(tmp_path):
    (tmp_path / 'box').write_bytes(_BOX)
    found, counts = _read_mail(tmp_path / 'box', tmp_path / 'box')
    assert [(each.author, each.source, each.text.split()) for each in found[:3]] == [
        ('a@example.org', 0, ['First', 'line.', '>', 'What?', 'Answer.']),
        ('b@example.org', 0, ['caf\xe9']),
        ('d@example.org', 0, ['Caf\ufffd', 'plain']),
    ]
    assert [each.source for each in found] == [0, 0, 0, 1, 1, 1]
    assert +counts == {
        'messages': 10,
        'without_author': 2,
        'not_text': 2,
        'endings': 2,
        'attributions': 2,
        'not_utf8': 2,
    }
    assert (tmp_path / 'box').read_bytes() == _BOX  # It was only read.


@pytest.mark.parametrize(
    'ending', ['-- ', '--', '---', '-----Original Message-----', 'diff --git a/x b/x', 'Index: x']
)
def test_what_follows_an_ending_is_left_out(ending):
    counts = collections.Counter()
    text = mail.without_quotes(f'Text -- here\r\n{ending}\r\nNot this\n', counts)
    assert text == 'Text -- here\n' and counts['endings'] == 1


@pytest.mark.parametrize(
    'line', ['On 1 May, A B <a@x>\nwrote:', 'A B writes:', 'Am Montag, A <a@x> wrote:']
)
def test_attributions_are_left_out(line):
    counts = collections.Counter()
    assert mail.without_quotes(f'Hi\n\n{line}\nYes', counts) == 'Hi\n\n\nYes'
    assert counts['attributions'] == 1


@pytest.mark.parametrize(
    'content, message',
    [
        (None, r'cannot be read \(No such file'),
        (b'', 'must be in mbox format'),
        (b'Hello', 'must be in mbox format'),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
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
