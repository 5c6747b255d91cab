"""What a process and those that it started, TFF's worker among them, have used of the machine.

`pid` is the process; by default, the caller.
"""

import contextlib
import os
import pathlib
import re


def age() -> float:
    """Seconds since this process began."""
    began = pathlib.Path('/proc/self/stat').read_text().rsplit(')', 1)[1].split()[19]
    uptime = pathlib.Path('/proc/uptime').read_text().split()[0]
    return float(uptime) - int(began) / os.sysconf('SC_CLK_TCK')


def cpu_seconds(pid: int | str = 'self') -> float:
    """Processor time since they began, of those that still run."""
    ticks = (text.rsplit(')', 1)[1].split() for text in _read(pid, 'stat'))
    return sum(int(fields[11]) + int(fields[12]) for fields in ticks) / os.sysconf('SC_CLK_TCK')


def peak_bytes(pid: int | str = 'self') -> int:
    """Sum of the largest memory that each has had."""
    return _status_bytes(pid, 'VmHWM')


def resident_bytes(pid: int | str = 'self') -> int:
    """Sum of the memory that each has now; what two of them share counts twice."""
    return _status_bytes(pid, 'VmRSS')


def _status_bytes(pid, field) -> int:
    found = (re.search(rf'{field}:\s*(\d+) kB', text) for text in _read(pid, 'status'))
    return sum(int(match.group(1)) for match in found if match) * 1024


def _read(pid, name) -> list[str]:
    """A file of each process: of the first one, its children, theirs, and so on."""
    texts, paths = [], [pathlib.Path('/proc', str(pid))]
    while paths:
        path = paths.pop()
        with contextlib.suppress(OSError):  # It may end at any moment.
            texts.append(path.joinpath(name).read_text())
            for task in path.glob('task/*/children'):
                paths += [pathlib.Path('/proc', pid) for pid in task.read_text().split()]
    return texts
