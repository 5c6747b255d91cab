"""Mutates every kind of file that dpfl reads, as an attacker might, and reads the result.

  python -m tests.attacks.hostile_files                        # 120,000 cases; half an hour
  python -m tests.attacks.hostile_files --cases=2000 --targets=strategy,report

A case may end in two ways. Either the file is refused by the documented exception, with a one-line
message, or it is accepted and the result is right (sensitivities and epsilons are compared with a
brute-force oracle, `hostile/oracle.py`). Everything else is a finding: another exception, several
lines, more than five seconds (20 for a binary that computes), more than a gigabyte of memory, a
dead process, or an epsilon below the true one.

Most mutations put the checksums right again (members of archives, digests of checkpoints and
journals, SHA256SUMS), in order to attack the parsers behind them. Case i of a target depends on
--seed and i alone, so `--targets=report --first=123 --cases=1` repeats one case. Every target runs
in a separate process with limited address space. Exits with status 1 if something was found.
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

_ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(_ROOT))

# Shares of --cases by target: larger if a guarantee is at stake, smaller if cases take long.
SHARES = {
    'strategy': 18,
    'strategy values': 18,
    'plan': 12,
    'log': 10,
    'report': 10,
    'run directory': 6,
    'checkpoint': 14,
    'journal': 8,
    'vocabulary': 4,
    'texts': 6,
    'parquet': 1,
    'optimizer cache': 4,
    'stackoverflow': 3,
    'emnist': 3,
    'saved model': 2,
    'model weights': 4,
    'state': 3,
    'report_privacy': 3,
    'plan_privacy': 3,
    'optimize_strategy': 1,
    'compare_mechanisms': 2,
    'simulate_population': 1,
}


def make(name: str, folder: pathlib.Path):
    """The target with a name. Imports only what that target needs."""
    from tests.attacks.hostile import commands

    if name in commands.COMMANDS:
        return commands.Commands(folder, name)
    from tests.attacks.hostile import privacy_targets

    for kind in privacy_targets.TARGETS:
        if kind.name == name:
            return kind(folder)
    from tests.attacks.hostile import run_targets

    for kind in run_targets.TARGETS:
        if kind.name == name:
            return kind(folder)
    from tests.attacks.hostile import data_targets

    return next(kind for kind in data_targets.TARGETS if kind.name == name)(folder)


def _worker(name: str, seed: int, first: int, cases: int, folder: str) -> None:
    """Runs cases in this process, and prints their outcomes in the last line of output."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from tests.attacks.hostile import campaign, guard

    target = make(name, pathlib.Path(folder, 'files'))
    guard.limit_memory()
    outcomes = campaign.run(
        target, seed, range(first, first + cases), pathlib.Path(folder, 'progress')
    )
    result = {'counts': dict(outcomes.counts), 'findings': outcomes.findings}
    print('\n' + json.dumps(result), flush=True)
    # Threads of libraries, one of which may wait for a FIFO, must not keep the process alive.
    os._exit(0)


class _Campaign:
    """Runs the cases of a target in processes, and starts a new one if a process dies."""

    def __init__(self, name: str, seed: int, first: int, cases: int):
        self.name, self.done = name, False
        self._seed, self._next, self._end = seed, first, first + cases
        self.counts: collections.Counter = collections.Counter()
        self.findings: dict[str, list[int]] = {}
        shared = pathlib.Path('/dev/shm')  # A file system in memory, where there is one.
        self._folder = tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
        self._start()

    def _start(self):
        # In parts, so that memory retained by libraries does not add up.
        part = min(self._end - self._next, 4000)
        self._part = part
        path = pathlib.Path(self._folder.name, 'progress')
        path.write_bytes(b'%12d' % self._next)
        self._output = open(pathlib.Path(self._folder.name, 'output'), 'w+b')
        self._errors = open(pathlib.Path(self._folder.name, 'errors'), 'w+b')
        self._process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                '--worker',
                json.dumps([self.name, self._seed, self._next, part, self._folder.name]),
            ],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
        )

    def poll(self) -> bool:
        """Whether the target is done; collects what a process that has ended found."""
        status = self._process.poll()
        if status is None:
            return False
        self._output.seek(0)
        lines = self._output.read().splitlines()
        self._output.close()
        if status == 0:
            result = json.loads(lines[-1])
            self.counts.update(result['counts'])
            for what, cases in result['findings'].items():
                self.findings.setdefault(what, []).extend(cases)
            self._next += self._part
        else:
            case = int(pathlib.Path(self._folder.name, 'progress').read_bytes())
            # The outcomes of earlier cases in the same part are lost with the process.
            what = f'the process ended with status {status} ({self._last_words()})'
            self.findings.setdefault(what, []).append(case)
            self.counts['found'] += 1
            self._next = case + 1
        if self._next < self._end:
            self._start()
            return False
        if sum(self.counts.values()) > 500 and not self.counts['taken']:
            self.findings['no file was taken: the target itself is at fault'] = []
            self.counts['found'] += 1
        self._folder.cleanup()
        self.done = True
        return True

    def _last_words(self) -> str:
        """Where the process was: the innermost frames of the first thread, or the last line."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors='replace').strip().splitlines() or ['']
        start = next((i for i, line in enumerate(lines) if line.startswith('Timeout')), None)
        return ' '.join(lines[start : start + 4] if start is not None else lines[-1:])[:300]

    def stop(self):
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Runs all targets and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument('--cases', type=int, default=120_000, help='cases of all targets together')
    parser.add_argument('--targets', default=','.join(SHARES), help='comma-separated')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--first', type=int, default=0, help='number of the first case')
    parser.add_argument('--workers', type=int, default=2, help='processes side by side')
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _worker(*json.loads(given.worker))
    names = given.targets.split(',')
    for name in names:
        if name not in SHARES:
            parser.error(f'--targets={name}: must be one of {", ".join(SHARES)}')
    total = sum(SHARES[name] for name in names)
    # The same number of a target's cases whatever order they run in; the slow ones come first.
    waiting = [(name, -(-given.cases * SHARES[name] // total)) for name in reversed(names)]
    running, done = [], []
    print(f'{"target":<20}{"cases":>9}{"taken":>9}{"refused":>9}{"found":>7}', flush=True)
    try:
        while waiting or running:
            while waiting and len(running) < given.workers:
                name, cases = waiting.pop(0)
                running.append(_Campaign(name, given.seed, given.first, cases))
            for each in [each for each in running if each.poll()]:
                running.remove(each)
                done.append(each)
                _print(each)
            if running:
                try:
                    running[0]._process.wait(0.2)
                except subprocess.TimeoutExpired:
                    pass
    finally:
        for each in running:
            each.stop()
    counts = sum((each.counts for each in done), collections.Counter())
    print(_row('all', counts))
    print('nothing found' if not counts['found'] else 'FOUND: see above')
    sys.exit(bool(counts['found']))


def _row(name: str, counts) -> str:
    return (
        f'{name:<20}{sum(counts.values()):>9}{counts["taken"]:>9}{counts["refused"]:>9}'
        f'{counts["found"]:>7}'
    )


def _print(campaign: _Campaign) -> None:
    print(_row(campaign.name, campaign.counts), flush=True)
    for what, cases in campaign.findings.items():
        print(f'    {what}: cases {", ".join(map(str, cases[:5]))}', flush=True)


if __name__ == '__main__':
    main()
