"""Settings of the C library's allocator: keep freed memory for speed, or give it back.

Both functions do nothing except on Linux with glibc.
"""

import ctypes
import sys

# Options of glibc's `mallopt` (malloc.h) and their values.
_OPTIONS = {
    # With a heap per thread the process grows by tens of megabytes in hundreds of rounds.
    -8: 2,  # M_ARENA_MAX
    # Keeps the memory of freed tensors. Given back to the kernel, it would cost a page fault for
    # every 4 KB of every result. The threshold is the largest that glibc takes.
    -3: 32 << 20,  # M_MMAP_THRESHOLD
    -1: 1 << 30,  # M_TRIM_THRESHOLD
    -2: 64 << 20,  # M_TOP_PAD
}


def keep_freed() -> None:
    """From now on the process keeps freed memory for later use."""
    if (mallopt := _function('mallopt')) is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)


def give_back() -> None:
    """Gives free memory back to the kernel. Takes tens of milliseconds: not for every round.

    Cohorts of varying sizes leave gaps of all sizes. Without this the process grows by tens of
    megabytes in hundreds of rounds.
    """
    if (trim := _function('malloc_trim')) is not None:
        trim(0)


def _function(name: str):
    """A function of the C library; None if there is no such function."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == 'linux' else None
