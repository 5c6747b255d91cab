"""Limits of one case: seconds of a processor, 30 in all, and a gigabyte more than before."""

import contextlib
import resource
import signal

# Of the clock: on a busy machine little of it is the process's own; what waits takes all of it.
_WAITING = 30.0
_ADDRESS_SPACE = 6 << 30
MOST_GROWTH = 1 << 30


class TooSlowError(BaseException):
    """A case took too long. No handler of Exception stops it."""


@contextlib.contextmanager
def time_limit(seconds: float):
    """Context that ends with TooSlowError after seconds of a processor, or 30 of the clock."""

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
    """Most bytes that the process has had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory() -> None:
    """Limits the address space of the process to 6 GiB more than it has now."""
    with open('/proc/self/statm') as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_SPACE, resource.RLIM_INFINITY))
