"""Limits of one case: CPU seconds, 30 seconds of wall-clock time, and a gigabyte of memory."""

import contextlib
import resource
import signal

# Wall-clock seconds. On a busy machine a process gets few of them; one that only waits uses all.
_WAITING = 30.0
_ADDRESS_SPACE = 6 << 30
MOST_GROWTH = 1 << 30


class TooSlowError(BaseException):
    """A case took too long. Handlers of `Exception` do not catch it."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """A context that raises TooSlowError after some CPU seconds, or 30 wall-clock seconds."""

    def alarm(number, frame):
        raise TooSlowError

    timers = (
        (signal.SIGALRM, signal.ITIMER_REAL, _WAITING),
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
    )
    before = [signal.signal(number, alarm) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def peak_memory() -> int:
    """Peak memory of the process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory() -> None:
    """Limits the growth of the address space of the process to 6 GiB."""
    with open('/proc/self/statm') as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_SPACE, resource.RLIM_INFINITY))
