"""What is removed from messages and what stays, rule by rule."""

import collections

import pytest

from dpfl.tasks.text import tokenization
from dpfl.tasks.text.messages import prose

_LONG = 'This line is long enough to be wrapped, so it goes'


def _read(text):
    removed = collections.Counter()
    found = prose.sentences(text, removed)
    assert set(removed) <= set(prose.REMOVED)
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
    assert _read(text) == (expected, removed)


@pytest.mark.parametrize('text', [case[0] for case in _CASES.values()], ids=_CASES)
def test_a_kept_sentence_is_read_back_as_one(text):
    """The text of a client is its sentences in lines, and the reader splits it again."""
    kept, _ = _read(text)
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
    prose.sentences(text, collections.Counter())
