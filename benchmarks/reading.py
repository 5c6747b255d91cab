"""Speed and memory of reading: histories of git repositories, and participation logs as CSV.

  python benchmarks/reading.py                         # a log of ten million rows, made for this
  python benchmarks/reading.py --repository=git        # the history of a clone as well
  python benchmarks/reading.py --rows=100000

Each measurement is a process of its own. Speed is per second of its own CPU time, so other work on
the machine hardly changes it, and the time of `git log` does not count. Memory is the peak of the
process less what it had before it began to read.
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import pathlib
import resource
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np

_REPEATS = 3
_PER_ROUND = 1000


def _log(path: str) -> tuple[int, float, float]:
    from dpfl.participation import imported

    return _measured(lambda: int(imported.read_log(path).log.cohort_sizes.sum()))


def _history(path: str) -> tuple[int, float, float]:
    from dpfl.tasks.text.messages import author_texts, git_history

    def read() -> int:
        counts: collections.Counter[str] = collections.Counter()
        messages = git_history.messages(git_history.find(path), counts)
        for _ in author_texts.by_author(messages, b'k' * 32, 3000, counts):
            pass
        return counts['commits']

    return _measured(read)


def _measured(read: Callable[[], int]) -> tuple[int, float, float]:
    """What was read, CPU seconds, and megabytes."""
    before, start = _peak(), time.process_time()
    items = read()
    return items, time.process_time() - start, _peak() - before


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _write_log(path: pathlib.Path, rows: int) -> None:
    """Rounds of 1000 clients, a minute apart, ids of twelve digits."""
    rng = np.random.default_rng(0)
    with path.open('w') as file:
        file.write('client,round,time\n')
        for i in range(0, rows, _PER_ROUND):
            index = i // _PER_ROUND
            when = np.datetime64('2024-01-01T00:00:00') + np.timedelta64(index, 'm')
            clients = rng.choice(10**6, size=min(_PER_ROUND, rows - i), replace=False)
            file.writelines(f'{client + 10**11},{index},{when}\n' for client in clients)


def _report(name: str, unit: str, measure: Callable[[str], tuple], path: str) -> None:
    runs = []
    for _ in range(_REPEATS):
        context = multiprocessing.get_context('spawn')
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            runs.append(pool.submit(measure, path).result())
    speeds = [items / seconds for items, seconds, _ in runs]
    print(
        f'{name}: {runs[0][0]:,} {unit}; {statistics.median(speeds):,.0f} {unit} a second '
        f'({min(speeds):,.0f} to {max(speeds):,.0f}); '
        f'{statistics.median(run[2] for run in runs):.0f} MB'
    )


def main() -> None:
    """Measures and prints a line for each kind of data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--rows', type=int, default=10_000_000, help='rows of the log')
    parser.add_argument('--repository', help='a clone whose history is read')
    arguments = parser.parse_args()
    if arguments.repository:
        _report('git history', 'commits', _history, arguments.repository)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / 'log.csv'
        _write_log(path, arguments.rows)
        size = path.stat().st_size / arguments.rows
        _report(f'CSV log, {size:.0f} bytes a row', 'rows', _log, str(path))


if __name__ == '__main__':
    main()
