"""Plants the faults of `planted.py`, one at a time, and prints which test notices each.

  python -m tests.faults [--only=NAME] [--near_only] [--jobs=2]

Each fault is planted into a copy of the working tree. The tests in `near` run first, then all that
are not slow, until the first one fails. A test that also fails without the fault notices nothing.
Exits with status 1 if a fault is not noticed.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tests import paths
from tests.faults import planted

_PYTEST = ['-m', 'pytest', '-x', '-q', '-p', 'no:cacheprovider', '--tb=no', '-r', 'fE']
_PASSED, _FAILED, _INTERRUPTED = 0, 1, 2
_RED = re.compile(r'^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$', re.MULTILINE)
_ALL = ('tests', '-m', 'not slow')


class NotNoticed(Exception):
    """No test notices a fault; the message says what happened instead."""


def copy_tree(target: pathlib.Path) -> None:
    """Copies the files of the working tree that git tracks, or would track if they were added."""
    listed = ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
    names = subprocess.run(listed, cwd=paths.ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split('\0')):
        if (paths.ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(paths.ROOT / name, target / name)


def write(path: pathlib.Path, text: str) -> None:
    """Writes a module, and removes its compiled form, which two versions of one second share."""
    path.write_text(text, encoding='utf-8')
    pathlib.Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def first_red(tree: pathlib.Path, tests: tuple[str, ...], limit: float) -> str | None:
    """The first test that fails in a copy; None if all of them pass.

    Raises:
      NotNoticed: if pytest does not end within the limit, or ends without a result.
    """
    environment = {**os.environ, 'OPENBLAS_NUM_THREADS': '1', 'TF_CPP_MIN_LOG_LEVEL': '3'}
    try:
        done = subprocess.run(
            [sys.executable, *_PYTEST, *tests],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise NotNoticed(f'no result after {limit:g} s') from None
    if done.returncode == _PASSED:
        return None
    red = _RED.search(done.stdout)
    if done.returncode not in (_FAILED, _INTERRUPTED) or red is None:
        raise NotNoticed(f'pytest ended with status {done.returncode}')
    return red[1]


def noticed_by(tree: pathlib.Path, fault: planted.Fault, near_only: bool, limit: float) -> str:
    """The test that notices a fault in a copy of the working tree.

    Raises:
      NotNoticed: if no test does.
    """
    path = tree / fault.path
    original = path.read_text(encoding='utf-8')
    try:
        write(path, original.replace(fault.before, fault.after))
        red = first_red(tree, (*fault.near, '-m', 'not slow'), limit)
        if red is None and not near_only:
            red = first_red(tree, _ALL, limit)
    finally:
        write(path, original)
    if red is None:
        raise NotNoticed('all tests pass')
    return red


def main() -> int:
    parser = argparse.ArgumentParser(prog='python -m tests.faults', description=__doc__)
    parser.add_argument('--only', metavar='NAME', help='plant this fault only')
    parser.add_argument('--near_only', action='store_true', help='run the tests in `near` only')
    parser.add_argument('--jobs', type=int, default=1, help='faults that are planted at once')
    parser.add_argument('--limit', type=float, default=1800, help='seconds for one pytest')
    flags = parser.parse_args()
    faults = [fault for fault in planted.FAULTS if flags.only in (None, fault.name)]
    if not faults:
        parser.error(f'--only={flags.only}: is not a fault of tests/faults/planted.py')
    trees: queue.Queue[pathlib.Path] = queue.Queue()

    def play(fault):
        tree, started = trees.get(), time.monotonic()
        try:
            return True, noticed_by(tree, fault, flags.near_only, flags.limit), started
        except NotNoticed as error:
            return False, f'NOT NOTICED: {error}', started
        finally:
            trees.put(tree)

    with tempfile.TemporaryDirectory() as folder:
        for job in range(flags.jobs):
            trees.put(pathlib.Path(folder, str(job)))
            copy_tree(pathlib.Path(folder, str(job)))
        missed = 0
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as threads:
            for fault, (is_noticed, by, started) in zip(faults, threads.map(play, faults)):
                missed += not is_noticed
                print(f'{fault.name:58} {time.monotonic() - started:5.0f} s  {by}', flush=True)
    print(f'{len(faults) - missed} of {len(faults)} faults noticed')
    return int(missed > 0)


if __name__ == '__main__':
    sys.exit(main())
