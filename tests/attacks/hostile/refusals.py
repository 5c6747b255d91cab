"""Helpers for calls that must be refused in one printable line, within seconds."""

import contextlib
import signal

import pytest


class TooSlowError(BaseException):
    """A call took too long. Handlers of `Exception` do not catch it."""


@contextlib.contextmanager
def within_seconds(number):
    """Context that fails after so many seconds, for calls that could wait for ever."""

    def alarm(*_):
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(number)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def refused(call, kind=ValueError):
    """Checks that a call is refused in one printable line; returns that line."""
    with within_seconds(10), pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message and message.isprintable(), message
    return message
