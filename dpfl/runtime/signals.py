"""Termination signals as exceptions that cannot get lost."""

import os
import signal
import sys
import threading
from typing import Any, NoReturn

# A signal that the process ignores or handles itself is left alone.
_DEFAULT_HANDLERS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


# Seconds from a signal to the end of a program outside of `Signals`.
_GRACE = 1.0


class Terminated(SystemExit):
    """SIGTERM or SIGHUP has come; the process ends with status 128 + number.

    Args:
      number: of the signal.
      what: what to tell the person who started the process.
    """

    def __init__(self, number: int, what: str = ''):
        super().__init__(128 + number)
        self.number = number
        self.what = what

    def __str__(self) -> str:
        return self.what


class _Program:
    """Ends this process soon after a signal, whatever its main thread is doing.

    The exception of a signal waits for native code to return, and can get lost (see `Signals`), as
    in an import. A thread, which the system's handler wakes, ends the process in that case.

    Within `Signals` it does not: saving rounds takes the time that it takes.

    Attributes:
      has_told: whether the closing line is written.
    """

    def __init__(self) -> None:
        self.has_told = False
        self._stderr = os.dup(2)  # An import of TensorFlow redirects the other one for a while.
        self._woken, wakes = os.pipe()
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        for number, default in _DEFAULT_HANDLERS.items():
            if signal.getsignal(number) is default:
                signal.signal(number, raise_signal)
        threading.Thread(target=self._watch, name='dpfl-signals', daemon=True).start()

    def _watch(self) -> None:
        while True:
            number = os.read(self._woken, 1)[0]
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(getattr(handler, '__self__', None), Signals):
                threading.Event().wait(_GRACE)
                self.end(number)

    def end(self, number: int) -> NoReturn:
        """Ends the process now, with one line."""
        if not self.has_told:
            what = b'interrupted' if number == signal.SIGINT else b'terminated'
            os.write(self._stderr, b'error: ' + what + b'\n')
        os._exit(128 + number)


_program: _Program | None = None


def begin_program() -> None:
    """Makes signals end this process, a program, with one line. Call it again as you like."""
    global _program
    sys.excepthook = _uncaught
    if _program is None and threading.current_thread() is threading.main_thread():
        try:
            _program = _Program()
        except OSError:  # Standard error is closed.
            return


def _uncaught(kind, error, trace):
    """Reports a Ctrl-C in one line: during an import, or while another one is handled."""
    if issubclass(kind, KeyboardInterrupt):
        print('error: interrupted', file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def told() -> None:
    """Says that the closing line of the program is written."""
    if _program is not None:
        _program.has_told = True


def end_program(error: BaseException) -> NoReturn:
    """Ends the program after `KeyboardInterrupt` or `Terminated`, with one line."""
    if _program is None:
        raise error
    _program.end(error.number if isinstance(error, Terminated) else signal.SIGINT)


def raise_signal(number: int, frame: Any = None) -> NoReturn:
    """A handler of signals: raises `KeyboardInterrupt` or `Terminated`."""
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)


def within(error: BaseException | None) -> BaseException | None:
    """The exception of a signal that an error is, or that was being handled when it was raised.

    Some code does not end well when a signal interrupts it: TensorFlow's stacks then find
    themselves in disorder, and raise an AssertionError.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | Terminated):
        error = error.__context__
    return error


class Signals:
    """Context manager in which termination signals raise exceptions.

    In the main thread SIGINT raises `KeyboardInterrupt` within the block, SIGTERM and SIGHUP raise
    `Terminated`, a `SystemExit(128 + number)`, unless the process handles or ignores them itself.

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
                if signal.getsignal(number) in (default, raise_signal):
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        try:
            raise_signal(number, frame)
        except BaseException as error:
            self._pending = error
            raise

    def check(self) -> None:
        """Raises the exception of a signal again, unless it is being handled."""
        if self._pending is None or threading.current_thread() is not threading.main_thread():
            return
        if within(sys.exc_info()[1]) is None:
            pending, self._pending = self._pending, None
            raise pending


def reinstall() -> None:
    """Installs the handlers of Python again, where native code has replaced them."""
    if threading.current_thread() is threading.main_thread():
        for number in _DEFAULT_HANDLERS:
            handler = signal.getsignal(number)
            if handler is not None:  # None: it was not installed by Python.
                signal.signal(number, handler)
