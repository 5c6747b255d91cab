"""Progress in a terminal and in a log."""

import io
import sys
import types

import pytest

from dpfl import _progress


class _Stream(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal


@pytest.fixture(name='clock')
def _clock(monkeypatch):
    """A clock that `work` moves on; tqdm's constructor and its updates read it."""
    clock = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr('tqdm.std.time', lambda: clock.now)
    return clock


def _stream(monkeypatch, is_terminal):
    stream = _Stream(is_terminal)
    monkeypatch.setattr(sys, 'stderr', stream)
    return stream


def _work(bar, clock, steps):
    for step in range(steps):
        clock.now += 2.0
        bar.set_postfix({'loss': f'{5 - step / 10:.4g}', 'epsilon': f'{step / 10:.4g}'})
        bar.update()


_LINES = """\
5 of 12 rounds (42 %), 00:10 so far, 00:14 left, 30 rounds/min, loss=4.6, epsilon=0.4
10 of 12 rounds (83 %), 00:20 so far, 00:04 left, 30 rounds/min, loss=4.1, epsilon=0.9
12 of 12 rounds (100 %), 00:24 so far, 30 rounds/min, loss=3.9, epsilon=1.1
"""
_BAR = '| 6/12 [00:12<00:12, 30 rounds/min, loss=4.5, epsilon=0.5]\n'
_CONTINUED = """\
105 of 200 rounds (52 %), 00:10 so far, 03:10 left, 30 rounds/min, loss=4.6, epsilon=0.4
"""


@pytest.mark.parametrize(
    'is_terminal, options, steps, shown',
    [
        # A log gets a line every ten seconds and one at the end.
        (False, {}, 12, _LINES),
        (True, {}, 6, _BAR),
        # A run that continues counts the rounds before, but not in its speed.
        (False, dict(total=200, initial=100), 5, _CONTINUED),
        (False, dict(disable=True), 12, ''),
        (True, dict(disable=True), 12, ''),
    ],
)
def test_what_a_stream_gets(monkeypatch, clock, is_terminal, options, steps, shown):
    stream = _stream(monkeypatch, is_terminal)
    with _progress.bar(**{'total': 12, 'unit': 'round', **options}) as bar:
        _work(bar, clock, steps)
    *_, last = stream.getvalue().split('\r')
    assert (last.startswith(' 50%|') and last.endswith(shown)) if shown == _BAR else last == shown


def test_a_task_shorter_than_its_delay_leaves_nothing(monkeypatch, clock):
    stream = _stream(monkeypatch, False)
    for rows in (range(9), range(11)):
        for _ in _progress.bar(rows, unit='row', delay=1.0):
            clock.now += 0.1
    assert stream.getvalue() == '11 of 11 rows (100 %), 00:01 so far, 10 rows/s\n'
    # Nor does one that need not leave anything, and all of it is gone through.
    assert list(_progress.bar(iter('abc'), leave=False)) == ['a', 'b', 'c']
    with _progress.bar(total=3):
        pass
    assert stream.getvalue().count('\n') == 1


def test_a_process_without_standard_error_still_works(monkeypatch):
    monkeypatch.setattr(sys, 'stderr', None)
    with _progress.bar(total=2) as bar:
        bar.update(2)
