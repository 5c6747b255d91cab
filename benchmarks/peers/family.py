"""Resources used by a process and its descendants, such as TFF's worker.

`pid` is the process; by default, the caller.
"""

import contextlib
import os
import pathlib
import re
import time


def age() -> float:
    """Seconds since this process started."""
    began = pathlib.Path('/proc/self/stat').read_text().rsplit(')', 1)[1].split()[19]
    uptime = pathlib.Path('/proc/uptime').read_text().split()[0]
    return float(uptime) - int(began) / os.sysconf('SC_CLK_TCK')


class Use:
    """A context manager that measures its block.

    Attributes:
      seconds, cpu_seconds: of the block, the latter of this process and its descendants.
    """

    def __enter__(self):
        self._start = time.perf_counter(), cpu_seconds()
        return self

    def __exit__(self, *error):
        self.seconds = time.perf_counter() - self._start[0]
        self.cpu_seconds = cpu_seconds() - self._start[1]


def cpu_seconds(pid: int | str = 'self') -> float:
    """CPU time of the processes that still run, since their start."""
    ticks = (text.rsplit(')', 1)[1].split() for text in _read(pid, 'stat'))
    return sum(int(fields[11]) + int(fields[12]) for fields in ticks) / os.sysconf('SC_CLK_TCK')


def peak_bytes(pid: int | str = 'self') -> int:
    """Sum of the peak memory of each process."""
    return _status_bytes(pid, 'VmHWM')


def resident_bytes(pid: int | str = 'self') -> int:
    """Sum of the present memory of each process. Shared memory counts twice."""
    return _status_bytes(pid, 'VmRSS')


def own_bytes(field: str) -> int:
    """Memory of this process alone, by the name that the system has for it, such as VmHWM."""
    status = pathlib.Path('/proc/self/status').read_text()
    if f'{field}:' not in status:
        raise LookupError(f'/proc/self/status has no {field}')
    return _sum_bytes([status], field)


def _status_bytes(pid, field) -> int:
    return _sum_bytes(_read(pid, 'status'), field)


def _sum_bytes(texts, field) -> int:
    found = (re.search(rf'{field}:\s*(\d+) kB', text) for text in texts)
    return sum(int(match.group(1)) for match in found if match) * 1024


def _read(pid, name) -> list[str]:
    """Reads a file in /proc of the process and of all its descendants."""
    texts, paths = [], [pathlib.Path('/proc', str(pid))]
    while paths:
        path = paths.pop()
        with contextlib.suppress(OSError):  # The process may end at any moment.
            texts.append(path.joinpath(name).read_text())
            for task in path.glob('task/*/children'):
                paths += [pathlib.Path('/proc', pid) for pid in task.read_text().split()]
    return texts
