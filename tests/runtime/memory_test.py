"""Freed memory is kept, and given back on request, seen from outside of the process."""

import subprocess
import sys

import pytest

# Blocks below the threshold at which the C library returns memory by itself, with one kept last, so
# that what is freed lies in the middle of the heap.
_PROGRAM = """
import ctypes, os
from dpfl.runtime import memory

def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20

library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
memory.keep_freed()
before = resident()
blocks = [library.malloc(2**20) for _ in range(101)]
for block in blocks:
    ctypes.memset(block, 1, 2**20)
for block in blocks[:-1]:
    library.free(block)
kept = resident()
memory.give_back()
print(kept - before, resident() - before)
"""


@pytest.mark.skipif(sys.platform != 'linux', reason='the C library of Linux')
def test_freed_memory_is_kept_until_it_is_given_back():
    done = subprocess.run(
        [sys.executable, '-c', _PROGRAM], capture_output=True, text=True, check=True
    )
    kept, left = map(float, done.stdout.split())
    assert kept > 95 and left < 10  # MB of 100.
