"""What a process and its children, TFF's worker among them, have used of the machine."""

import os
import pathlib
import re


def cpu_seconds() -> float:
    """Processor time of the family since it began."""
    ticks = (path.joinpath('stat').read_text().rsplit(')', 1)[1].split() for path in _family())
    return sum(int(fields[11]) + int(fields[12]) for fields in ticks) / os.sysconf('SC_CLK_TCK')


def peak_bytes() -> int:
    """Sum of the largest memory that each of the family has had."""
    status = (path.joinpath('status').read_text() for path in _family())
    return sum(int(re.search(r'VmHWM:\s*(\d+) kB', text).group(1)) for text in status) * 1024


def _family() -> list[pathlib.Path]:
    tasks = pathlib.Path('/proc/self/task').glob('*/children')
    return [pathlib.Path('/proc/self')] + [
        pathlib.Path('/proc', pid) for task in tasks for pid in task.read_text().split()
    ]
