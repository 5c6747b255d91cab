"""Faults that a run of the training binary may meet, and what becomes of the run.

A `Fault` says what is done to a run and how that must end; some need a function of their own.
"""

import contextlib
import dataclasses
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
from collections.abc import Callable, Iterator, Mapping, Sequence
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


# The round in which faults happen: in the middle of the run, after a checkpoint.
_ROUND = 5


class _ElsewhereError(Exception):
    """A run went on in another directory than its own."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done to a run, and how it must end. Resumed, it must have the bits of the reference.

    Attributes:
      statuses: the exit statuses that are right.
      do: does it when the run is in `_ROUND`, and returns where the run is then, if not where it
        was; None if the run is another one from the start.
      most_lines: limit on the unusual lines on standard error.
      env: environment variables, also of the resumed run.
      start: options of `Process` for the run alone.
      name: name of its directory.
    """

    statuses: Sequence[int] = (0,)
    do: Callable[[Process], pathlib.Path | None] | None = None
    most_lines: int = 1
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    start: Callable[[], dict[str, Any]] = dict
    name: str = 'run'

    def play(self, title: str, stage: 'Stage') -> Iterator[Outcome]:
        """Begins a run, plays the fault, and yields the outcome."""
        run = _begin(stage.folder / self.name, env=self.env, **self.start())
        moved, place = None, 'from the start'
        if self.do is not None:
            run.wait_for_rounds(_ROUND)
            place = f'in round {_ROUND}'
            try:
                moved = self.do(run)
            except _ElsewhereError as error:
                yield Outcome(title, place, 'went on elsewhere', str(error))
        yield stage.judge(self, run, title, place, moved)


class Stage:
    """Where faults are played: a folder for runs, and an undisturbed run as the reference."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self._reference = folder / 'reference'
        status, lines = _begin(self._reference).end()
        if status:
            raise RuntimeError(f'status {status}: {lines}')

    def judge(
        self,
        fault: Fault,
        run: Process,
        title: str,
        place: str,
        moved: pathlib.Path | None = None,
    ) -> Outcome:
        """Waits for a run, resumes it where it is now, and compares it with the reference."""
        ended, path = _end(run), moved or run.path
        since = runs.saved_rounds(path)
        worse = _worse(*ended, fault.statuses, fault.most_lines)
        if since < run.saved:
            worse = worse or f'the checkpoint of round {run.saved} is lost'
        status, lines = _end(_begin(path, '--resume', env=fault.env))
        if status:
            resumed = f'resumed with status {status}: {lines[-1:]}'
            worse = worse or 'cannot be resumed'
        else:
            differing = ', '.join(runs.differences(path, self._reference))
            resumed = f'resumed from {since} rounds: '
            resumed += f'differs in {differing}' if differing else 'the same bits'
            worse = worse or 'other bits' * bool(differing)
        for each in (path, run.path):
            shutil.rmtree(each, ignore_errors=True)
        return Outcome(title, place, f'{_said(*ended)}; {resumed}', worse)


def _command(path: pathlib.Path, *flags: str) -> list[str]:
    return binaries.command('train', *_FLAGS, f'--output_dir={path}', *flags)


def _begin(
    path: pathlib.Path, *flags: str, env: Mapping[str, str] | None = None, **options: Any
) -> Process:
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


def _one_line(title: str, run: Process, status: int, place: str) -> Outcome:
    """The outcome of a command that must end with a status and one line."""
    ended = _end(run)
    worse = _worse(*ended, [status], 1) or 'no line' * (not ended[1])
    return Outcome(title, place, _said(*ended)[:200], worse)


def _closed(*descriptors: int) -> Fault:
    """Some standard streams are closed before the run begins."""

    def close():
        for descriptor in descriptors:
            os.close(descriptor)

    return Fault(start=lambda: {'preexec_fn': close})


def _full() -> int:
    """A file on a full disk."""
    return os.open('/dev/full', os.O_WRONLY)


def _broken() -> int:
    """A pipe whose reader has closed it."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _signals(status: int, *numbers: signal.Signals) -> Fault:
    """The run receives signals, one after the other."""

    def send(run):
        for number in numbers:
            run.process.send_signal(number)
            time.sleep(0.05)

    return Fault([status], send)


def _closed_terminal(
    title: str, stage: Stage, *, fault: Fault, ignoring: bool
) -> Iterator[Outcome]:
    """The terminal of the run is closed, which may ignore the signal."""
    main, terminal = pty.openpty()
    os.set_blocking(main, False)

    def take_terminal():
        os.login_tty(terminal)
        if ignoring:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def read():
        with contextlib.suppress(OSError):  # Nothing to read, or the end.
            os.read(main, 65536)

    run = _begin(stage.folder / 'run', preexec_fn=take_terminal)
    os.close(terminal)
    run.wait_for_rounds(_ROUND, read)
    os.close(main)
    yield stage.judge(fault, run, title, f'in round {_ROUND}')


def _away(how: str) -> Fault:
    """The directory of the run is removed, renamed or replaced, or its ledger is removed."""

    def do(run):
        run.process.send_signal(signal.SIGSTOP)
        path, renamed, kept = (run.path.with_name(name) for name in ('run', 'renamed', 'kept'))
        run.saved = runs.saved_rounds(path)
        for old in (renamed, kept):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(path, kept)  # From before the fault.
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
            raise _ElsewhereError(f'{left} rounds in a new ledger')
        return renamed if renamed.exists() else kept

    return Fault([1], do)


def _beside(title: str, stage: Stage) -> Iterator[Outcome]:
    """Other processes try to use the directory of the run."""
    run = _begin(stage.folder / 'run')
    run.wait_for_rounds(1)
    for command, status in (
        (_command(run.path), 2),
        (_command(run.path, '--resume'), 1),
        (_command(run.path, '--overwrite'), 1),
        # It prints the report so far, and a line that says so.
        (binaries.command('report_privacy', f'--run_dir={run.path}'), 0),
    ):
        run.process.send_signal(signal.SIGSTOP)
        before = runs.contents(run.path)
        name = f'{title}: {command[2]} {command[-1]}'
        outcome = _one_line(name, Process(run.path, command), status, 'in progress')
        if before != runs.contents(run.path):
            outcome = dataclasses.replace(outcome, worse='files of the run were changed')
        yield outcome
        run.process.send_signal(signal.SIGCONT)
    yield stage.judge(Fault(), run, f'{title}: the run itself', 'with all these')


def _memory(megabytes: int) -> Fault:
    """From some round on, the address space of the run grows at most by some megabytes."""

    def limit(run):
        with open(f'/proc/{run.process.pid}/statm') as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        most = now + megabytes * 2**20
        resource.prlimit(run.process.pid, resource.RLIMIT_AS, (most, most))

    # Native code that runs out of memory aborts the process, and may print several lines.
    return Fault([0, 1, -signal.SIGABRT, -signal.SIGSEGV], limit, most_lines=6)


_CLOCK = """
import itertools, time
_time, _calls = time.time, itertools.count()
time.time = lambda: _time() + (-1) ** next(_calls) * 10 * 365 * 86400
"""


def _clock(title: str, stage: Stage) -> Iterator[Outcome]:
    """The clock jumps by ten years, forwards and backwards, every time it is read."""
    folder = stage.folder / 'clock'
    folder.mkdir()
    (folder / 'sitecustomize.py').write_text(_CLOCK)

    def end(run):
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(300)
        for path in run.path.rglob('*'):  # Files from the year 2100.
            os.utime(path, (4102444800, 4102444800))

    yield from Fault([143], end, env={'PYTHONPATH': str(folder)}).play(title, stage)


def _refused_name(title: str, stage: Stage, *, name: str, status: int) -> Iterator[Outcome]:
    """The directory of the run has a name that it cannot have."""
    yield _one_line(title, _begin(stage.folder / name), status, 'from the start')


def _disk(title: str, stage: Stage, *, size: str, mode: str, status: int) -> Iterator[Outcome]:
    """The directory is on a file system of its own, which is small or read-only."""
    path = stage.folder / 'run'
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
        yield stage.judge(Fault([status]), run, title, 'tmpfs')
    else:
        yield Outcome(title, 'tmpfs', f'not played: cannot mount: {run.end()[1][-1:]}', '')


_ODD = 'name with spaces, \u00fcml\u00e4ut \u6d4b\u8bd5 \'"$x'
_NOWHERE = ('HOME', 'TMPDIR', 'XDG_CACHE_HOME', 'XDG_CONFIG_HOME')
_part = functools.partial
# Each gets its name and the stage, and yields outcomes.
_FAULTS: dict[str, Callable[[str, Stage], Iterator[Outcome]]] = {
    **{
        name: fault.play
        for name, fault in {
            'stdin closed': _closed(0),
            'stdout closed': _closed(1),
            'stderr closed': _closed(2),
            'all streams closed': _closed(0, 1, 2),
            'stdout broken': Fault([1], start=lambda: {'stdout': _broken()}),
            'stderr broken': Fault(start=lambda: {'stderr': _broken()}),
            'stdout full': Fault([1], start=lambda: {'stdout': _full()}),
            'stderr full': Fault(start=lambda: {'stderr': _full()}),
            'SIGINT': _signals(130, signal.SIGINT),
            'SIGINT twice': _signals(130, *[signal.SIGINT] * 2),
            'SIGINT five times': _signals(130, *[signal.SIGINT] * 5),
            'SIGTERM': _signals(143, signal.SIGTERM),
            'SIGTERM twice': _signals(143, *[signal.SIGTERM] * 2),
            'SIGHUP': _signals(129, signal.SIGHUP),
            'SIGSTOP': _signals(0, signal.SIGSTOP, signal.SIGCONT),
            'SIGKILL': _signals(-9, signal.SIGKILL),
            'directory removed': _away('removed'),
            'directory renamed': _away('renamed'),
            'directory replaced by an empty one': _away('replaced by an empty one'),
            'directory replaced by a copy': _away('replaced by a copy'),
            'directory without ledger': _away('without ledger'),
            **{f'memory {size} MB': _memory(size) for size in (0, 2, 20, 100)},
            # Matplotlib warns that it cannot write its cache.
            'no home, no TMPDIR': Fault(most_lines=2, env=dict.fromkeys(_NOWHERE, '/proc/nowhere')),
            'name odd': Fault(name=_ODD),
            'name long': Fault(name='n' * 255),
            'path long': Fault(name='/'.join(['n' * 250] * 15)),
        }.items()
    },
    'closed terminal': _part(_closed_terminal, fault=Fault([129]), ignoring=False),
    # Status 1: the result cannot be printed to a closed terminal.
    'closed terminal, nohup': _part(_closed_terminal, fault=Fault([1]), ignoring=True),
    'beside': _beside,
    'clock jumps, files from the future': _clock,
    'name with a line end': _part(_refused_name, name='two\nlines', status=2),
    'name too long': _part(_refused_name, name='n' * 256, status=2),
    'path too long': _part(
        _refused_name, name='/'.join(['n' * 250] * 16) + '/' + 'n' * 20, status=1
    ),
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
