"""How the C library deals with the memory of this process: kept for speed, given back at times.

Elsewhere than on Linux with glibc both functions do nothing.
"""

import ctypes
import sys

# Options of glibc's `mallopt` (malloc.h), and values.
_OPTIONS = {
    # With a heap for every thread the process grows by tens of megabytes in hundreds of rounds.
    -8: 2,  # M_ARENA_MAX
    # The memory of tensors is kept when they are freed: given back to the kernel, it would cost a
    # page fault for every 4 KB of every result. The threshold is the largest that glibc takes.
    -3: 32 << 20,  # M_MMAP_THRESHOLD
    -1: 1 << 30,  # M_TRIM_THRESHOLD
    -2: 64 << 20,  # M_TOP_PAD
}


def keep_freed() -> None:
    """From now on memory that is freed stays with the process, for what comes next."""
    if (mallopt := _function('mallopt')) is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)


def give_back() -> None:
    """Gives the kernel what is free now: tens of milliseconds, so not in every round.

    Cohorts of other sizes in every round leave gaps of all sizes, and a process that only keeps
    grows by tens of megabytes in hundreds of rounds.
    """
    if (trim := _function('malloc_trim')) is not None:
        trim(0)


def _function(name: str):
    """A function of the C library; None where it has no such function."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == 'linux' else None
