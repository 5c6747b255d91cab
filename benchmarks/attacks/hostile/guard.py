"""Limits of one case: five seconds, and a gigabyte more than before."""

import contextlib
import resource
import signal

SECONDS = 5.0
_ADDRESS_SPACE = 6 << 30
MOST_GROWTH = 1 << 30


class TooSlowError(BaseException):
    """A case took longer than five seconds. No handler of Exception stops it."""


@contextlib.contextmanager
def time_limit(seconds: float = SECONDS):
    """Context that ends with TooSlowError after so many seconds."""

    def alarm(number, frame):
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def peak_memory() -> int:
    """Most bytes that the process has had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory() -> None:
    """Limits the address space of the process to 6 GiB more than it has now."""
    with open('/proc/self/statm') as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_SPACE, resource.RLIM_INFINITY))
