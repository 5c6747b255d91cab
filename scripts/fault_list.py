"""Faults that a run of the training binary may meet, and what becomes of the run.

Each fault is a function from a `Stage` to outcomes.
"""

import dataclasses
import functools
import os
import pathlib
import pty
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

from scripts import faults_at_writes
from tests import binaries

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
_SECONDS = 900.0
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


@dataclasses.dataclass
class Outcome:
    """What became of a run with a fault.

    Attributes:
      fault: name of the fault.
      happened: what was done to the run, and when.
      status: exit status, negative for a signal.
      lines: lines on standard error, without the usual ones.
      resumed: what `--resume` did with the run.
      worse: what is worse than one line of error and no loss; '' if nothing is.
    """

    fault: str
    happened: str
    status: int
    lines: list[str]
    resumed: str = ''
    worse: str = ''


class _Run:
    """A process of the training binary that writes to a directory."""

    def __init__(self, path: pathlib.Path, *flags, env=None, streams=None, preexec=None):
        self.path = path
        handle, name = tempfile.mkstemp('.stderr')
        self._log = pathlib.Path(name)
        with open(handle, 'wb') as errors:
            self.process = subprocess.Popen(
                binaries.command('train', *_FLAGS, f'--output_dir={path}', *flags),
                cwd=binaries.ROOT,
                preexec_fn=preexec,
                env={**os.environ, **(env or {})},
                **{
                    'stdin': subprocess.DEVNULL,
                    'stdout': subprocess.DEVNULL,
                    'stderr': errors,
                    **(streams or {}),
                },
            )

    def wait_for_rounds(self, rounds: int) -> None:
        """Waits until the ledger has at least `rounds` rounds, or the process ends."""
        deadline = time.monotonic() + _SECONDS
        while _rounds_of(self.path) < rounds and self.process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f'{self.path}: waited {_SECONDS} seconds')
            time.sleep(0.005)

    def end(self) -> tuple[int, list[str]]:
        """Waits for the end; returns the exit status and the unusual lines on standard error."""
        try:
            status = self.process.wait(_SECONDS)
        finally:
            self.process.kill()
        text = self._log.read_text(errors='replace').replace('\r', '\n')
        lines = [line for line in text.splitlines() if line.strip()]
        return status, [line for line in lines if not any(usual in line for usual in _USUAL)]


def _rounds_of(path: pathlib.Path) -> int:
    """Number of rounds that a run has begun."""
    ledger = path / 'ledger.jsonl'
    return ledger.read_bytes().count(b'"event": "began"') if ledger.exists() else 0


class Stage:
    """Where faults are played: a folder for runs, and an undisturbed run as the reference."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.reference = folder / 'reference'
        status, lines = _Run(self.reference).end()
        if status:
            raise RuntimeError(f'status {status}: {lines}')
        self._count = 0

    def path(self) -> pathlib.Path:
        """The path of a new run directory."""
        self._count += 1
        return self.folder / f'run{self._count}'

    def judge(
        self,
        run: _Run,
        fault: str,
        happened: str,
        *,
        statuses,
        most_lines: int = 1,
        path: pathlib.Path | None = None,
        saved: int = -1,
        env=None,
    ) -> Outcome:
        """Waits for a run, resumes it, compares it with the reference, and returns the outcome.

        Args:
          run: the run with the fault.
          fault: name of the fault.
          happened: what was done, and when.
          statuses: the exit statuses that are right.
          most_lines: limit on the unusual lines on standard error.
          path: where the run is now, if it was moved.
          saved: rounds of the newest checkpoint at the time of the fault.
          env: environment variables of the resumed run.
        """
        status, lines = run.end()
        outcome = Outcome(fault, happened, status, lines)
        path = path or run.path
        if status not in statuses:
            outcome.worse = f'the status is none of {list(statuses)}'
        elif len(lines) > most_lines or any('Traceback' in line for line in lines):
            outcome.worse = f'more than {most_lines} lines'
        elif faults_at_writes.saved_rounds(path) < saved:
            outcome.worse = f'the checkpoint of round {saved} is lost'
        since = faults_at_writes.saved_rounds(path)
        status, lines = _Run(path, '--resume', env=env).end()
        if status:
            outcome.resumed = f'resumed with status {status}: {lines[-1:]}'
            outcome.worse = outcome.worse or 'cannot be resumed'
            return outcome
        differing = faults_at_writes.differences(path, self.reference)
        outcome.resumed = f'resumed from {since} rounds: ' + (
            f'differs in {", ".join(differing)}' if differing else 'the same bits'
        )
        if differing:
            outcome.worse = outcome.worse or 'other bits'
        shutil.rmtree(path)
        return outcome


# The round in which faults happen: in the middle of the run, after a checkpoint.
_ROUND = 5
_SMALL_DISKS = ('40k', '130k', '190k', '260k')


def _closed(descriptors, stage):
    """Some standard streams are closed before the run begins."""

    def close():
        for descriptor in descriptors:
            os.close(descriptor)

    run = _Run(stage.path(), preexec=close)
    yield stage.judge(run, f'closed {descriptors}', 'from the start', statuses=[0])


def _broken_pipe(stream, status, stage):
    """The reader of a standard stream closes it at once."""
    reader, writer = os.pipe()
    run = _Run(stage.path(), streams={stream: writer})
    os.close(writer)
    os.close(reader)
    yield stage.judge(run, f'{stream} is a broken pipe', 'from the start', statuses=[status])


def _full(stream, status, stage):
    """A standard stream is a file on a full disk."""
    with open('/dev/full', 'wb') as full:
        run = _Run(stage.path(), streams={stream: full})
    yield stage.judge(run, f'{stream} on a full disk', 'from the start', statuses=[status])


def _signals(numbers, status, stage):
    """The run receives signals, one after the other."""
    run = _Run(stage.path())
    run.wait_for_rounds(_ROUND)
    saved = faults_at_writes.saved_rounds(run.path)
    for number in numbers:
        run.process.send_signal(number)
        time.sleep(0.05)
    names = ', '.join(signal.Signals(number).name for number in numbers)
    yield stage.judge(
        run,
        names,
        f'in round {_rounds_of(run.path)}',
        statuses=[status],
        saved=saved,
    )


def _closed_terminal(ignoring_hangup, status, stage):
    """The terminal of the run is closed."""
    main, terminal = pty.openpty()

    def take_terminal():
        os.setsid()
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if ignoring_hangup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    run = _Run(
        stage.path(),
        preexec=take_terminal,
        streams=dict.fromkeys(['stdin', 'stdout', 'stderr'], terminal),
    )
    os.close(terminal)
    drain = threading.Thread(target=_read_until, args=(main, run), daemon=True)
    drain.start()
    run.wait_for_rounds(_ROUND)
    run.done = True
    saved = faults_at_writes.saved_rounds(run.path)
    drain.join()
    os.close(main)
    name = 'closed terminal' + ', nohup' * ignoring_hangup
    yield stage.judge(run, name, f'after {_ROUND} rounds', statuses=[status], saved=saved)


def _read_until(main, run):
    import select

    while not getattr(run, 'done', False) and run.process.poll() is None:
        if select.select([main], [], [], 0.05)[0]:
            try:
                os.read(main, 65536)
            except OSError:
                return


def _away(how, stage):
    """The directory of the run is removed, renamed or replaced, or its ledger is removed."""
    run = _Run(stage.path())
    run.wait_for_rounds(_ROUND)
    run.process.send_signal(signal.SIGSTOP)
    path, renamed = run.path, run.path.with_name(f'{run.path.name}_renamed')
    saved = faults_at_writes.saved_rounds(path)
    kept = shutil.copytree(path, path.with_name(f'{path.name}_kept'))
    if how == 'removed':
        shutil.rmtree(path)
    elif how == 'ledger removed':
        (path / 'ledger.jsonl').unlink()
    else:
        path.rename(renamed)
        if how == 'replaced by an empty one':
            path.mkdir()
        elif how == 'replaced by a copy':
            shutil.copytree(renamed, path)
    run.process.send_signal(signal.SIGCONT)
    run.process.wait(300)
    left = _rounds_of(path) if path.exists() else 0
    if left and how != 'replaced by a copy' or left > _rounds_of(kept):
        yield Outcome(how, 'went on elsewhere', 0, [], worse=f'{left} rounds in a new ledger')
    if how in ('renamed', 'replaced by an empty one', 'replaced by a copy'):
        resumed = renamed
    else:
        resumed = kept  # A copy from before the fault.
    shutil.rmtree(path, ignore_errors=True)
    yield stage.judge(
        run,
        f'directory: {how}',
        f'after {_ROUND} rounds',
        statuses=[1],
        path=resumed,
        saved=saved,
    )


def _beside(stage):
    """Other processes try to use the directory of the run."""
    run = _Run(stage.path())
    run.wait_for_rounds(1)
    path = run.path
    train = functools.partial(binaries.run, 'train', *_FLAGS, f'--output_dir={path}')
    for name, call, status in (
        ('train beside train', train, 2),
        ('train --resume beside train', functools.partial(train, '--resume'), 1),
        ('train --overwrite beside train', functools.partial(train, '--overwrite'), 1),
        (
            'report_privacy beside train',
            functools.partial(binaries.run, 'report_privacy', f'--run_dir={path}'),
            1,
        ),
    ):
        run.process.send_signal(signal.SIGSTOP)
        before = {p: p.read_bytes() for p in path.rglob('*') if p.is_file()}
        done = call()
        lines = done.stderr.splitlines()
        worse = ''
        if before != {p: p.read_bytes() for p in path.rglob('*') if p.is_file()}:
            worse = 'files of the run were changed'
        elif done.returncode != status or len(lines) != 1:
            worse = f'must end with {status} and a line'
        yield Outcome(
            name,
            'while the run is in progress',
            done.returncode,
            lines,
            'the run itself goes on',
            worse,
        )
        run.process.send_signal(signal.SIGCONT)
    yield stage.judge(run, 'the run with all these beside it', '', statuses=[0])


def _memory(megabytes, stage):
    """From some round on, the address space of the run may only grow by so many megabytes."""
    run = _Run(stage.path())
    run.wait_for_rounds(_ROUND)
    saved = faults_at_writes.saved_rounds(run.path)
    with open(f'/proc/{run.process.pid}/statm') as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    limit = now + megabytes * 2**20
    resource.prlimit(run.process.pid, resource.RLIMIT_AS, (limit, limit))
    # Native code that runs out of memory aborts the process, and may print several lines.
    yield stage.judge(
        run,
        f'memory limit, {megabytes} MB left',
        f'after {_ROUND} rounds',
        statuses=[0, 1, -signal.SIGABRT, -signal.SIGSEGV],
        most_lines=6,
        saved=saved,
    )


_CLOCK = """
import itertools, time
_time, _calls = time.time, itertools.count()
time.time = lambda: _time() + (-1) ** next(_calls) * 10 * 365 * 86400
"""


def _clock(stage):
    """The clock jumps by ten years, forwards and backwards, every time it is read."""
    folder = stage.folder / 'clock'
    folder.mkdir()
    (folder / 'sitecustomize.py').write_text(_CLOCK)
    run = _Run(stage.path(), env={'PYTHONPATH': str(folder)})
    run.wait_for_rounds(_ROUND)
    run.process.send_signal(signal.SIGTERM)
    run.process.wait(300)
    for path in run.path.rglob('*'):  # Files from the year 2100.
        os.utime(path, (4102444800, 4102444800))
    yield stage.judge(
        run,
        'clock jumps, files from the future',
        'all the time, SIGTERM',
        statuses=[143],
        env={'PYTHONPATH': str(folder)},
    )


def _environment(name, env, stage):
    """The run has other environment variables."""
    run = _Run(stage.path(), env=env)
    # Matplotlib warns that it cannot write its cache.
    yield stage.judge(run, name, 'from the start', statuses=[0], most_lines=2, env=env)


def _name(name, status, stage):
    """The directory of the run has an odd name."""
    path = stage.folder / name
    run = _Run(path)
    what = f'--output_dir={name!a}'
    what = what if len(what) < 60 else f'{what[:50]}... ({len(str(path))} characters)'
    if status:
        code, lines = run.end()
        worse = '' if code == status and len(lines) == 1 else f'must be {status} and a line'
        yield Outcome(what[:90], 'from the start', code, [line[:120] for line in lines], '-', worse)
    else:
        yield stage.judge(run, what, 'from the start', statuses=[0])


def _small_disk(size, stage):
    """The directory is on a small file system that gets full, or on a read-only one."""
    path = stage.path()
    command = ' '.join([*binaries.command('train', *_FLAGS), '--output_dir=/mnt/run'])
    is_read_only = size == 'read-only'
    prepare = 'mkdir /mnt/run; mount -o remount,ro /mnt || exit 99\n' if is_read_only else ''
    script = (
        f'mount -t tmpfs -o size={"20m" if is_read_only else size} tmpfs /mnt || exit 99\n'
        f'{prepare}{command} 2> {path}.errors; echo $? > {path}.status\n'
        'mount -o remount,rw,size=20m /mnt\n'
        f'cp -r /mnt/run {path} && echo copied\n'
    )
    done = subprocess.run(
        ['unshare', '-rm', 'sh', '-c', script],
        cwd=binaries.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    name = 'read-only disk' if is_read_only else f'disk of {size}'
    if 'copied' not in done.stdout:
        yield Outcome(name, 'not played: cannot mount', 0, [], done.stderr.strip()[-100:])
        return
    ended = _Run.__new__(_Run)
    ended.path, ended._log = path, pathlib.Path(f'{path}.errors')
    ended.process = subprocess.Popen(
        ['sh', '-c', f'exit {pathlib.Path(f"{path}.status").read_text()}']
    )
    yield stage.judge(ended, name, 'tmpfs', statuses=[2 if is_read_only else 1])


_part = functools.partial
_ODD = 'name with spaces, \u00fcml\u00e4ut \u6d4b\u8bd5 \'"$x'
_FAULTS = {
    'stdin closed': _part(_closed, [0]),
    'stdout closed': _part(_closed, [1]),
    'stderr closed': _part(_closed, [2]),
    'all streams closed': _part(_closed, [0, 1, 2]),
    'stdout broken': _part(_broken_pipe, 'stdout', 1),
    'stderr broken': _part(_broken_pipe, 'stderr', 0),
    'stdout full': _part(_full, 'stdout', 1),
    'stderr full': _part(_full, 'stderr', 0),
    'SIGINT': _part(_signals, [signal.SIGINT], 130),
    'SIGINT twice': _part(_signals, [signal.SIGINT] * 2, 130),
    'SIGINT five times': _part(_signals, [signal.SIGINT] * 5, 130),
    'SIGTERM': _part(_signals, [signal.SIGTERM], 143),
    'SIGTERM twice': _part(_signals, [signal.SIGTERM] * 2, 143),
    'SIGHUP': _part(_signals, [signal.SIGHUP], 129),
    'SIGSTOP': _part(_signals, [signal.SIGSTOP, signal.SIGCONT], 0),
    'SIGKILL': _part(_signals, [signal.SIGKILL], -9),
    'closed terminal': _part(_closed_terminal, False, 129),
    # Status 1: the result cannot be printed to a closed terminal.
    'closed terminal, nohup': _part(_closed_terminal, True, 1),
    **{
        f'directory {how}': _part(_away, how)
        for how in (
            'removed',
            'renamed',
            'replaced by an empty one',
            'replaced by a copy',
            'ledger removed',
        )
    },
    'beside': _beside,
    **{f'memory {size}': _part(_memory, size) for size in (0, 2, 20, 100)},
    'clock': _clock,
    'no home, no TMPDIR': _part(
        _environment,
        'no home, no TMPDIR',
        {
            'HOME': '/proc/nowhere',
            'TMPDIR': '/proc/nowhere',
            'XDG_CACHE_HOME': '/proc/nowhere',
            'XDG_CONFIG_HOME': '/proc/nowhere',
        },
    ),
    'name odd': _part(_name, _ODD, 0),
    'name with a line end': _part(_name, 'two\nlines', 2),
    'name too long': _part(_name, 'n' * 256, 2),
    'name long': _part(_name, 'n' * 255, 0),
    'path long': _part(_name, '/'.join(['n' * 250] * 15), 0),
    'path too long': _part(_name, '/'.join(['n' * 250] * 16) + '/' + 'n' * 20, 1),
    **{f'disk {size}': _part(_small_disk, size) for size in (*_SMALL_DISKS, 'read-only')},
}


def play(folder: pathlib.Path, only: Sequence[str] = ('',)) -> Iterator[Outcome]:
    """Plays the faults whose names contain one of the words, one after the other."""
    chosen = [fault for name, fault in _FAULTS.items() if any(word in name for word in only)]
    if chosen:
        stage = Stage(folder)
        for fault in chosen:
            yield from fault(stage)


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/fault_test.py')
