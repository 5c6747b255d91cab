"""Faults that a run of the training binary may meet, and what becomes of the run.

Each fault is a function of its name and a `Stage`, and yields outcomes.
"""

import contextlib
import functools
import os
import pathlib
import pty
import resource
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scripts.fault_runs import Outcome
from tests import binaries, runs
from tests.binaries import Process

_FLAGS = (
    '--flagfile=configs/quickstart.flags',
    '--population=60',
    '--clients_per_round=2',
    '--client_max_batches=1',
    '--eval_clients=2',
    '--eval_every=30',
    '--checkpoint_every=3',
    '--rounds=20',
    '--min_separation=20',
    '--noise_seed=1',
)
# Parts of the usual lines on standard error: the model, its plan and its noise, and the progress.
_USUAL = (
    'model micro: ',
    'feasible: ',
    'noise of past rounds: ',
    'noise: ',
    'the report so far, ',
    ' rounds (',
    ': training diverged. ',
)


class Stage:
    """Where faults are played: a folder for runs, and an undisturbed run as the reference."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.reference = folder / 'reference'
        status, lines = _begin(self.reference).end()
        if status:
            raise RuntimeError(f'status {status}: {lines}')
        self._count = 0

    def begin(self, **options: Any) -> Process:
        """A run in a new directory; `options` as for `Process`."""
        self._count += 1
        return _begin(self.folder / f'run{self._count}', **options)

    def judge(
        self,
        run: Process,
        fault: str,
        place: str,
        statuses: Sequence[int],
        *,
        most_lines: int = 1,
        path: pathlib.Path | None = None,
        **options: Any,
    ) -> Outcome:
        """Waits for a run, resumes it, compares it with the reference, and returns the outcome.

        Args:
          run: the run with the fault.
          fault: name of the fault.
          place: what was done, and when.
          statuses: the exit statuses that are right.
          most_lines: limit on the unusual lines on standard error.
          path: where the run is now, if it was moved.
          **options: of the resumed run, as for `Process`.
        """
        ended, path = _end(run), path or run.path
        since = runs.saved_rounds(path)
        worse = _worse(*ended, statuses, most_lines)
        if since < run.saved:
            worse = worse or f'the checkpoint of round {run.saved} is lost'
        status, lines = _end(_begin(path, '--resume', **options))
        if status:
            resumed = f'resumed with status {status}: {lines[-1:]}'
            worse = worse or 'cannot be resumed'
        else:
            differing = ', '.join(runs.differences(path, self.reference))
            resumed = f'resumed from {since} rounds: '
            resumed += f'differs in {differing}' if differing else 'the same bits'
            worse = worse or 'other bits' * bool(differing)
            shutil.rmtree(path)
        return Outcome(fault, place, f'{_said(*ended)}; {resumed}', worse)


def _command(path: pathlib.Path, *flags: str) -> list[str]:
    return binaries.command('train', *_FLAGS, f'--output_dir={path}', *flags)


def _begin(path: pathlib.Path, *flags: str, env: Any = None, **options: Any) -> Process:
    return Process(path, _command(path, *flags), env={**os.environ, **(env or {})}, **options)


def _end(run: Process) -> tuple[int, list[str]]:
    """The exit status of a run, and the unusual lines on standard error."""
    status, lines = run.end()
    return status, [line for line in lines if not any(usual in line for usual in _USUAL)]


def _said(status: int, lines: Sequence[str]) -> str:
    count = f'{len(lines)} line{"s" * (len(lines) != 1)}'
    return f'status {status}; {count}: {" / ".join(lines) or "-"}'


def _worse(status: int, lines: Sequence[str], statuses: Sequence[int], most_lines: int) -> str:
    """What is wrong with the end of a run, or ''."""
    if status not in statuses:
        return f'the status is none of {list(statuses)}'
    if len(lines) > most_lines or any('Traceback' in line for line in lines):
        return f'more than {most_lines} lines'
    return ''


# The round in which faults happen: in the middle of the run, after a checkpoint.
_ROUND = 5


def _close(*descriptors: int) -> Callable[[], None]:
    def close():
        for descriptor in descriptors:
            os.close(descriptor)

    return close


def _full() -> int:
    """A file on a full disk."""
    return os.open('/dev/full', os.O_WRONLY)


def _broken() -> int:
    """A pipe whose reader has closed it."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _from_the_start(
    fault: str,
    stage: Stage,
    status: int = 0,
    *,
    most_lines: int = 1,
    env: dict[str, str] | None = None,
    streams: dict[str, Callable[[], int]] | None = None,
    preexec_fn: Callable[[], None] | None = None,
) -> Iterator[Outcome]:
    """The run has other streams or environment variables; these also when it is resumed."""
    opened = {name: make() for name, make in (streams or {}).items()}
    run = stage.begin(env=env, preexec_fn=preexec_fn, **opened)
    for descriptor in opened.values():
        os.close(descriptor)
    yield stage.judge(run, fault, 'from the start', [status], most_lines=most_lines, env=env)


def _signals(
    fault: str, stage: Stage, numbers: Sequence[signal.Signals], status: int
) -> Iterator[Outcome]:
    """The run receives signals, one after the other."""
    run = stage.begin()
    run.wait_for_rounds(_ROUND)
    for number in numbers:
        run.process.send_signal(number)
        time.sleep(0.05)
    yield stage.judge(run, fault, f'in round {runs.begun_rounds(run.path)}', [status])


def _closed_terminal(
    fault: str, stage: Stage, ignoring_hangup: bool, status: int
) -> Iterator[Outcome]:
    """The terminal of the run is closed."""
    main, terminal = pty.openpty()
    os.set_blocking(main, False)

    def take_terminal():
        os.login_tty(terminal)
        if ignoring_hangup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def read():
        with contextlib.suppress(OSError):  # Nothing to read, or the end.
            os.read(main, 65536)

    run = stage.begin(preexec_fn=take_terminal)
    os.close(terminal)
    run.wait_for_rounds(_ROUND, read)
    os.close(main)
    yield stage.judge(run, fault, f'after {_ROUND} rounds', [status])


def _away(fault: str, stage: Stage, how: str) -> Iterator[Outcome]:
    """The directory of the run is removed, renamed or replaced, or its ledger is removed."""
    run = stage.begin()
    run.wait_for_rounds(_ROUND)
    run.process.send_signal(signal.SIGSTOP)
    path, renamed = run.path, run.path.with_name(f'{run.path.name}_renamed')
    run.saved = runs.saved_rounds(path)
    kept = shutil.copytree(path, path.with_name(f'{path.name}_kept'))  # From before the fault.
    if how == 'removed':
        shutil.rmtree(path)
    elif how == 'without ledger':
        (path / 'ledger.jsonl').unlink()
    else:
        path.rename(renamed)
        if how == 'replaced by an empty one':
            path.mkdir()
        elif how == 'replaced by a copy':
            shutil.copytree(renamed, path)
    run.process.send_signal(signal.SIGCONT)
    run.process.wait(300)
    left = runs.begun_rounds(path)
    if left and how != 'replaced by a copy' or left > runs.begun_rounds(kept):
        yield Outcome(fault, '', 'went on elsewhere', f'{left} rounds in a new ledger')
    shutil.rmtree(path, ignore_errors=True)
    yield stage.judge(
        run, fault, f'after {_ROUND} rounds', [1], path=renamed if renamed.exists() else kept
    )


def _beside(fault: str, stage: Stage) -> Iterator[Outcome]:
    """Other processes try to use the directory of the run."""
    run = stage.begin()
    run.wait_for_rounds(1)
    for command, status in (
        (_command(run.path), 2),
        (_command(run.path, '--resume'), 1),
        (_command(run.path, '--overwrite'), 1),
        (binaries.command('report_privacy', f'--run_dir={run.path}'), 1),
    ):
        run.process.send_signal(signal.SIGSTOP)
        before = runs.contents(run.path)
        ended = _end(Process(run.path, command))
        changed = 'files of the run were changed' * (before != runs.contents(run.path))
        worse = changed or _worse(*ended, [status], 1) or 'no line' * (not ended[1])
        yield Outcome(f'{fault}: {command[2]} {command[-1]}', 'in progress', _said(*ended), worse)
        run.process.send_signal(signal.SIGCONT)
    yield stage.judge(run, f'{fault}: the run itself', 'with all these', [0])


def _memory(fault: str, stage: Stage, megabytes: int) -> Iterator[Outcome]:
    """From some round on, the address space of the run grows at most by some megabytes."""
    run = stage.begin()
    run.wait_for_rounds(_ROUND)
    with open(f'/proc/{run.process.pid}/statm') as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    limit = now + megabytes * 2**20
    resource.prlimit(run.process.pid, resource.RLIMIT_AS, (limit, limit))
    # Native code that runs out of memory aborts the process, and may print several lines.
    statuses = [0, 1, -signal.SIGABRT, -signal.SIGSEGV]
    yield stage.judge(run, fault, f'after {_ROUND} rounds', statuses, most_lines=6)


_CLOCK = """
import itertools, time
_time, _calls = time.time, itertools.count()
time.time = lambda: _time() + (-1) ** next(_calls) * 10 * 365 * 86400
"""


def _clock(fault: str, stage: Stage) -> Iterator[Outcome]:
    """The clock jumps by ten years, forwards and backwards, every time it is read."""
    folder = stage.folder / 'clock'
    folder.mkdir()
    (folder / 'sitecustomize.py').write_text(_CLOCK)
    env = {'PYTHONPATH': str(folder)}
    run = stage.begin(env=env)
    run.wait_for_rounds(_ROUND)
    run.process.send_signal(signal.SIGTERM)
    run.process.wait(300)
    for path in run.path.rglob('*'):  # Files from the year 2100.
        os.utime(path, (4102444800, 4102444800))
    yield stage.judge(run, fault, 'all the time, SIGTERM', [143], env=env)


def _name(fault: str, stage: Stage, name: str, status: int) -> Iterator[Outcome]:
    """The directory of the run has an odd name."""
    run = _begin(stage.folder / name)
    if status == 2:
        ended = _end(run)
        worse = _worse(*ended, [status], 1) or 'no line' * (not ended[1])
        yield Outcome(fault, 'from the start', _said(*ended)[:200], worse)
    else:
        yield stage.judge(run, fault, 'from the start', [status])


def _disk(fault: str, stage: Stage, size: str, mode: str, status: int) -> Iterator[Outcome]:
    """The directory is on a file system of its own, which is small or read-only."""
    path = stage.folder / size
    script = (
        f'mount -t tmpfs -o size={size} tmpfs /mnt && mkdir /mnt/run || exit 99\n'
        f'mount -o remount,{mode} /mnt || exit 99\n'
        f'{shlex.join(_command(pathlib.Path("/mnt/run")))}; status=$?\n'
        'mount -o remount,rw,size=20m /mnt\n'
        f'cp -r /mnt/run {path}; exit $status\n'
    )
    run = Process(path, ['unshare', '-rm', 'sh', '-c', script], env=dict(os.environ))
    run.process.wait(900)
    if path.exists():
        yield stage.judge(run, fault, 'tmpfs', [status])
    else:
        yield Outcome(fault, 'tmpfs', f'not played: cannot mount: {run.end()[1][-1:]}', '')


_ODD = 'name with spaces, \u00fcml\u00e4ut \u6d4b\u8bd5 \'"$x'
_NOWHERE = ('HOME', 'TMPDIR', 'XDG_CACHE_HOME', 'XDG_CONFIG_HOME')
_part = functools.partial
# What is done to a run. Each takes its name and the stage.
_FAULTS: dict[str, Callable[[str, Stage], Iterator[Outcome]]] = {
    'stdin closed': _part(_from_the_start, preexec_fn=_close(0)),
    'stdout closed': _part(_from_the_start, preexec_fn=_close(1)),
    'stderr closed': _part(_from_the_start, preexec_fn=_close(2)),
    'all streams closed': _part(_from_the_start, preexec_fn=_close(0, 1, 2)),
    'stdout broken': _part(_from_the_start, status=1, streams={'stdout': _broken}),
    'stderr broken': _part(_from_the_start, streams={'stderr': _broken}),
    'stdout full': _part(_from_the_start, status=1, streams={'stdout': _full}),
    'stderr full': _part(_from_the_start, streams={'stderr': _full}),
    'SIGINT': _part(_signals, numbers=[signal.SIGINT], status=130),
    'SIGINT twice': _part(_signals, numbers=[signal.SIGINT] * 2, status=130),
    'SIGINT five times': _part(_signals, numbers=[signal.SIGINT] * 5, status=130),
    'SIGTERM': _part(_signals, numbers=[signal.SIGTERM], status=143),
    'SIGTERM twice': _part(_signals, numbers=[signal.SIGTERM] * 2, status=143),
    'SIGHUP': _part(_signals, numbers=[signal.SIGHUP], status=129),
    'SIGSTOP': _part(_signals, numbers=[signal.SIGSTOP, signal.SIGCONT], status=0),
    'SIGKILL': _part(_signals, numbers=[signal.SIGKILL], status=-9),
    'closed terminal': _part(_closed_terminal, ignoring_hangup=False, status=129),
    # Status 1: the result cannot be printed to a closed terminal.
    'closed terminal, nohup': _part(_closed_terminal, ignoring_hangup=True, status=1),
    **{
        f'directory {how}': _part(_away, how=how)
        for how in (
            'removed',
            'renamed',
            'replaced by an empty one',
            'replaced by a copy',
            'without ledger',
        )
    },
    'beside': _beside,
    **{f'memory {size} MB': _part(_memory, megabytes=size) for size in (0, 2, 20, 100)},
    'clock jumps, files from the future': _clock,
    # Matplotlib warns that it cannot write its cache.
    'no home, no TMPDIR': _part(
        _from_the_start, most_lines=2, env=dict.fromkeys(_NOWHERE, '/proc/nowhere')
    ),
    'name odd': _part(_name, name=_ODD, status=0),
    'name with a line end': _part(_name, name='two\nlines', status=2),
    'name too long': _part(_name, name='n' * 256, status=2),
    'name long': _part(_name, name='n' * 255, status=0),
    'path long': _part(_name, name='/'.join(['n' * 250] * 15), status=0),
    'path too long': _part(_name, name='/'.join(['n' * 250] * 16) + '/' + 'n' * 20, status=1),
    **{
        f'disk of {size}': _part(_disk, size=size, mode='rw', status=1)
        for size in ('40k', '130k', '190k', '260k')
    },
    'read-only disk': _part(_disk, size='20m', mode='ro', status=2),
}


def play(folder: pathlib.Path, only: Sequence[str] = ('',)) -> Iterator[Outcome]:
    """Plays the faults whose names contain one of the words, one after the other."""
    chosen = {name: _FAULTS[name] for name in _FAULTS if any(word in name for word in only)}
    if chosen:
        stage = Stage(folder)
        for name, fault in chosen.items():
            yield from fault(name, stage)


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/fault_test.py')
