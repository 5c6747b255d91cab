"""Plants the faults of `planted.py`, one at a time, and prints which test notices each.

  python -m tests.faults [--only=NAME] [--near_only] [--jobs=2]

Each fault is planted into a copy of the working tree. The tests in `near` run first, then all
quick tests, until the first one fails. A test that also fails without the fault notices nothing.
Exits with status 1 if a fault is not noticed.
"""

import argparse
import concurrent.futures
import importlib.util
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time

from tests import paths
from tests.faults import forks, planted

_PYTEST = ['-q', '-p', 'no:cacheprovider', '--tb=no', '-r', 'fE']
_QUICK = ('-x', '-m', 'not standard and not exhaustive')
_STATUSES = (0, 1, 2)  # Of pytest: all passed, some failed, some could not be imported.
# Names of red tests in the summary, or of files that cannot be imported.
_RED = re.compile(r'^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$', re.MULTILINE)


class NotNoticedError(Exception):
    """No test notices a fault; the message says what happened instead."""


def copy_tree(target: pathlib.Path) -> None:
    """Copies the working tree: what git tracks or would add, and the environment as a link."""
    listed = ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard']
    names = subprocess.run(listed, cwd=paths.ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split('\0')):
        if (paths.ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(paths.ROOT / name, target / name, follow_symlinks=False)
    if (paths.ROOT / '.venv').exists():
        (target / '.venv').symlink_to((paths.ROOT / '.venv').resolve())
    for command in (['init', '--quiet'], ['add', '--all']):  # Some tests ask git for the files.
        subprocess.run(['git', *command], cwd=target, check=True)


def write(path: pathlib.Path, text: str) -> None:
    """Writes a module, and removes its compiled form, which two versions of one second share."""
    path.write_text(text, encoding='utf-8')
    pathlib.Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def run_pytest(tree: pathlib.Path, limit: float, *arguments: str) -> list[str]:
    """Names of the tests that fail in a copy, or of files that cannot be imported.

    Raises:
      NotNoticedError: if pytest does not end within the limit, or ends without a result.
    """
    with tempfile.NamedTemporaryFile() as output:
        path = pathlib.Path(output.name)
        status = forks.run_pytest(tree, path, [*_PYTEST, *arguments], limit)
        red = _RED.findall(path.read_text(errors='replace'))
    if status is None:
        raise NotNoticedError(f'no result after {limit:g} s')
    if status not in _STATUSES or bool(status) != bool(red):
        raise NotNoticedError(f'pytest ended with status {status}')
    return red


def noticed_by(tree: pathlib.Path, fault: planted.Fault, near_only: bool, limit: float) -> str:
    """The test that notices a fault in a copy of the working tree.

    Raises:
      NotNoticedError: if no test does.
    """
    path = tree / fault.path
    original = path.read_text(encoding='utf-8')
    try:
        write(path, original.replace(fault.before, fault.after))
        red = run_pytest(tree, limit, *_QUICK, *fault.near)
        if not red and not near_only:
            red = run_pytest(tree, limit, *_QUICK, 'tests')
    finally:
        write(path, original)
    if not red:
        raise NotNoticedError('all tests pass')
    return red[0]


def main() -> int:
    parser = argparse.ArgumentParser(prog='python -m tests.faults', description=__doc__)
    parser.add_argument('--only', metavar='NAME', action='append', help='plant this fault only')
    parser.add_argument('--near_only', action='store_true', help='run the tests in `near` only')
    parser.add_argument('--jobs', type=int, default=1, help='faults that are planted at once')
    parser.add_argument('--limit', type=float, default=1800, help='seconds for one pytest')
    flags = parser.parse_args()
    names = [fault.name for fault in planted.FAULTS]
    wanted = flags.only or names
    for name in wanted:
        if name not in names:
            parser.error(f'--only={name}: is no fault of tests/faults/planted.py')
    faults = [fault for fault in planted.FAULTS if fault.name in wanted]
    trees: queue.Queue[pathlib.Path] = queue.Queue()

    def play(fault):
        tree, started = trees.get(), time.monotonic()
        try:
            by = noticed_by(tree, fault, flags.near_only, flags.limit)
        except NotNoticedError as error:
            return f'NOT NOTICED: {error}', None, time.monotonic() - started
        finally:
            trees.put(tree)
        return by, by, time.monotonic() - started

    noticing = []
    with tempfile.TemporaryDirectory() as folder:
        for job in range(flags.jobs):
            tree = pathlib.Path(folder, str(job))
            copy_tree(tree)
            trees.put(tree)
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as threads:
            for fault, (shown, by, seconds) in zip(faults, threads.map(play, faults), strict=True):
                print(f'{fault.name:58} {seconds:4.0f} s  {shown}', flush=True)
                noticing += [by] if by else []
        try:
            always_red = run_pytest(tree, flags.limit, *sorted({*noticing})) if noticing else []
        except NotNoticedError as error:
            parser.exit(1, f'without a fault, these tests gave no result: {error}\n')
    for test in always_red:
        print(f'NOT NOTICED: {test} also fails without a fault')
    noticed = sum(test not in always_red for test in noticing)
    print(f'{noticed} of {len(faults)} faults noticed')
    return int(noticed < len(faults))


if __name__ == '__main__':
    sys.exit(main())
