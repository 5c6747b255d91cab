"""The protocol of a measured process: it runs one task, times it, and writes the result to a file.

Uses NumPy and the standard library only, since it runs in the environment of every peer.
"""

import json
import pathlib
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np


def serve(tasks: Mapping[str, Callable[..., dict]]) -> None:
    """Runs the task that the command line names: task, options as JSON, file for the result.

    A task takes the options as keyword arguments and returns the fields of dpfl's mechanism of the
    same name.
    """
    task, options, output = sys.argv[1:]
    started = time.perf_counter()
    fields = tasks[task](**json.loads(options))
    fields = {name: np.asarray(value) for name, value in fields.items()}
    seconds = time.perf_counter() - started
    np.savez(output, seconds=seconds, peak_bytes=peak_bytes(), **fields)


def peak_bytes() -> int:
    """Peak memory of this process.

    On Linux, `getrusage` also remembers the memory of the parent that started the process; the
    kernel's own record of the program does not.
    """
    status = pathlib.Path('/proc/self/status')
    if status.exists():
        return int(re.search(r'VmHWM:\s*(\d+) kB', status.read_text()).group(1)) * 1024
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
