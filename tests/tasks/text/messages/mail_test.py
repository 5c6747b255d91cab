"""Mailboxes: authors, parts, encodings, and what is no text of the author."""

import collections

import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.text.messages import mail

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


def _read(*paths):
    counts = collections.Counter()
    return [*mail.messages([*map(str, paths)], counts)], counts


def test_a_mailbox(tmp_path):
    (tmp_path / 'box').write_bytes(_BOX)
    found, counts = _read(tmp_path / 'box', tmp_path / 'box')
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
        _read(tmp_path / 'box')


@pytest.mark.parametrize(
    'header', [b'From: =?x?=', b'From:', b'From: \xff@\xfe', b'Content-Type: ;']
)
def test_strange_headers_do_no_harm(header, tmp_path):
    (tmp_path / 'box').write_bytes(b'From x\n' + header + b'\n\nText\n')
    found, counts = _read(tmp_path / 'box')
    assert len(found) + counts['without_author'] == 1
