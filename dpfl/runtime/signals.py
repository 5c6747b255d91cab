"""Termination signals as exceptions that cannot get lost."""

import signal
import sys
import threading
from typing import Any

# A signal that the process ignores or handles itself is left alone.
_DEFAULT_HANDLERS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class Signals:
    """Context manager in which termination signals raise exceptions.

    In the main thread SIGINT raises `KeyboardInterrupt` within the block, SIGTERM and SIGHUP raise
    `SystemExit(128 + number)`, unless the process handles or ignores them itself.

    An exception can be raised between any two steps of the main thread, and can get lost there: in
    a finalizer, in native code that clears errors, or in the callback that JAX, which TFF imports,
    adds to every garbage collection. `check` is called where that cannot happen, and raises it
    again.
    """

    def __init__(self):
        self._previous: dict[int, Any] = {}
        self._pending: BaseException | None = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number, default in _DEFAULT_HANDLERS.items():
                if signal.getsignal(number) is default:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        del frame
        error = KeyboardInterrupt if number == signal.SIGINT else SystemExit
        arguments = () if number == signal.SIGINT else (128 + number,)
        self._pending = error(*arguments)
        raise error(*arguments)

    def check(self) -> None:
        """Raises the exception of a signal again, unless it is being handled."""
        if self._pending is None or threading.current_thread() is not threading.main_thread():
            return
        handled = sys.exc_info()[1]
        while handled is not None and not isinstance(handled, type(self._pending)):
            handled = handled.__context__
        if handled is None:
            pending, self._pending = self._pending, None
            raise pending


def reinstall() -> None:
    """Installs the handlers of Python again, where native code has replaced them."""
    if threading.current_thread() is threading.main_thread():
        for number in _DEFAULT_HANDLERS:
            handler = signal.getsignal(number)
            if handler is not None:  # None: it was not installed by Python.
                signal.signal(number, handler)
