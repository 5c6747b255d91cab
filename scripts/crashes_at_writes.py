"""Ends a run at every system call that changes a file, and continues what each leaves on the disk.

One undisturbed run, with a draw before it, is observed (`system_calls.Child`). From its calls
follow the directories that an end at that moment would have left:

- killed: all that was done before the call;
- torn: the same, and the first half of what the call writes;
- power: the machine lost what was not synced: the content of a file since its last `fsync`, and
  names of files since that of their directory.

Each of these is continued to its end in the same child process, and compared with the undisturbed
run. A draw or a round that was computed must be in the journal of all of them.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np

from dpfl.accounting.records import archive, journal
from dpfl.simulation import program, run_directory
from dpfl.simulation.training import prepared_task
from dpfl.tasks import before_training
from scripts import faults_at_writes, system_calls
from tests.simulation import toy_experiment

# What a directory holds: bytes by the names of files, None for folders.
_Tree = dict[str, bytes | None]
_LEDGER, _KEYS = 'ledger.jsonl', 'checkpoints/keys'
_WRITES = frozenset({'write', 'pwrite', 'writev'})
# Numbers of these system calls.
_SYNCS = {'fsync': 74, 'fdatasync': 75}
_SECONDS_TO_SYNC = 5.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a run that ended.

    Attributes:
      how: 'killed', 'torn' or 'power'.
      place: the system call, and its file.
      worse: what differs from the undisturbed run; '' if nothing does.
    """

    how: str
    place: str
    worse: str


def play(folder: pathlib.Path, every: int, rounds: int = 3) -> list[Outcome]:
    """Plays every `every`-th of the different directories that an end can leave.

    Args:
      folder: an empty folder for the runs.
      every: 1 for all of them.
      rounds: number of rounds of the run.
    """
    observer = _Observer(folder, every)
    faults_at_writes.in_child(folder, lambda ask: _Runs(folder, rounds, ask).play(), observer)
    return observer.outcomes


class _Disk:
    """What is on the disk for certain, after the system calls of a run."""

    def __init__(self) -> None:
        self.durable: _Tree = {}
        self._synced: dict[str, bytes] = {}  # Content of files, whatever their names are.
        self._pending: dict[int, tuple[system_calls.Call, str, _Tree]] = {}

    def before(self, call: system_calls.Call, name: str, tree: _Tree) -> None:
        """A thread is about to make a call."""
        self.update(call.process)
        self._pending[call.process] = call, name, tree

    def update(self, thread: int) -> None:
        """Counts the calls that are over: the last one of a thread, and what others have synced.

        Another thread may have synced a file, and said so. Then it waits for work, or will soon.
        """
        deadline = time.monotonic() + _SECONDS_TO_SYNC
        for other, (call, name, tree) in list(self._pending.items()):
            number = _SYNCS.get(call.name)
            while other != thread and number is not None and _is_in(other, number):
                if time.monotonic() > deadline:
                    break
                time.sleep(1e-3)
            else:
                if other == thread or number is not None:
                    del self._pending[other]
                    self._done(call, name, tree)

    def _done(self, call: system_calls.Call, name: str, tree: _Tree) -> None:
        if call.name == 'rename':
            self._synced[name.removesuffix('.partial')] = self._synced.pop(name, b'')
        elif call.name == 'unlink':
            self._synced.pop(name, None)
        elif call.name in _SYNCS and isinstance(tree.get(name), bytes):
            self._synced[name] = tree[name] or b''
            if name in self.durable:
                self.durable[name] = self._synced[name]
        elif call.name in _SYNCS:
            self._names_are_synced(name, tree)

    def _names_are_synced(self, folder: str, tree: _Tree) -> None:
        for name in [*tree, *self.durable]:
            if str(pathlib.PurePath(name).parent) != folder:
                continue
            if name not in tree:
                self.durable = {
                    each: data
                    for each, data in self.durable.items()
                    if each != name and not each.startswith(f'{name}/')
                }
            elif tree[name] is None:
                self.durable[name] = None
            else:
                self.durable[name] = self._synced.get(name, b'')

    def left(self) -> _Tree:
        """What a power failure leaves: names whose folders are not lost themselves."""
        return {
            name: data
            for name, data in self.durable.items()
            if all(str(each) in self.durable for each in pathlib.PurePath(name).parents[:-1])
        }


def _is_in(thread: int, number: int) -> bool:
    """Whether a thread is in a system call of that number, or may be."""
    try:
        state = pathlib.Path(f'/proc/{thread}/syscall').read_text().split()[0]
    except (OSError, IndexError):  # The thread has ended.
        return False
    return state in ('running', str(number))


class _Observer:
    """Observes the undisturbed run, in the parent process, and makes what an end would leave."""

    def __init__(self, folder: pathlib.Path, every: int):
        self._folder, self._every = folder, every
        self._run: pathlib.Path | None = None
        self._disk = _Disk()
        self._last: dict[int, tuple[str, str, _Tree]] = {}  # The last write of each thread.
        self._seen: set[str] = set()
        self._left: list[tuple[str, str, _Tree]] = []
        self._lost: list[Outcome] = []
        self.outcomes: list[Outcome] = []

    def decide(self, call: system_calls.Call) -> int:
        """Takes down what is there before a call, and lets it be executed."""
        if self._run is not None and (self._run == call.path or self._run in call.path.parents):
            name, tree = str(call.path.relative_to(self._run)), _read(self._run)
            place = f'{call.name} {name}'
            self._torn(call.process, tree)
            self._disk.before(call, name, tree)
            self._keep('killed', place, tree)
            self._keep('power', place, self._disk.left())
            if call.name in _WRITES:
                self._last[call.process] = place, name, tree
        return 0

    def _torn(self, thread: int, tree: _Tree) -> None:
        """What a thread would have left if its last write had been cut off."""
        if thread not in self._last:
            return
        place, name, before = self._last.pop(thread)
        old, new = before.get(name) or b'', tree.get(name) or b''
        if len(new) > len(old) + 1:
            self._keep('torn', place, {**before, name: new[: (len(old) + len(new)) // 2]})

    def _keep(self, how: str, place: str, tree: _Tree) -> None:
        digest = hashlib.sha256(repr(sorted(tree.items())).encode()).hexdigest()
        if digest not in self._seen:
            self._seen.add(digest)
            self._left.append((how, place, tree))

    def answer(self, message: bytes) -> bytes:
        """Answers the child: a run begins or ends, something is computed, or an outcome."""
        values = json.loads(message)
        if 'run' in values:
            self._run = self._folder / values['run']
        elif 'computed' in values:
            self._disk.update(values['thread'])
            kept = self._disk.left().get(_LEDGER) or b''
            if kept.count(values['computed'].encode()) < values['times']:
                worse = 'was computed before the disk had it'
                self.outcomes.append(Outcome('power', values['computed'], worse))
        elif 'next' in values:
            self._run = None
            return self._write(values['next'])
        elif 'outcome' in values:
            self.outcomes.append(Outcome(**values['outcome']))
        return b''

    def _write(self, number: int) -> bytes:
        """Writes what an end leaves, and says which it is; nothing after the last one."""
        chosen = self._left[:: self._every]
        if number >= len(chosen):
            return b''
        how, place, tree = chosen[number]
        path = self._folder / 'left'
        path.mkdir()
        for name, data in sorted(tree.items()):
            if data is None:
                (path / name).mkdir(exist_ok=True)
            else:
                (path / name).write_bytes(data)
        return json.dumps([how, place]).encode()


def _read(path: pathlib.Path) -> _Tree:
    tree: _Tree = {}
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            each = pathlib.Path(folder, name)
            try:
                data = None if each.is_dir() else each.read_bytes()
            except FileNotFoundError:  # Another thread has renamed or removed it.
                continue
            tree[str(each.relative_to(path))] = data
    return tree


class _Runs:
    """Trains the runs, in the child process."""

    def __init__(self, folder: pathlib.Path, rounds: int, ask):
        self._folder, self._ask = folder, ask
        self._experiment = toy_experiment.in_numpy(
            rounds=rounds, noise_seed=None, checkpoint_every=1
        )
        self._reference = folder / 'reference'

    def play(self) -> None:
        """Trains the undisturbed run, and continues from what each end leaves."""
        self._tell(run=self._reference.name)
        self._train(self._reference, is_observed=True)
        number = 0
        while left := self._ask(json.dumps({'next': number}).encode()).rstrip(b'\0'):
            how, place = json.loads(left)
            worse = '; '.join(self._worse(self._folder / 'left'))
            self._tell(outcome=dataclasses.asdict(Outcome(how, place, worse)))
            shutil.rmtree(self._folder / 'left')
            number += 1

    def _worse(self, path: pathlib.Path) -> Iterator[str]:
        """What is wrong with a run once it is continued."""
        before, has_keys = archive.read_journal(path) or journal.Journal(), _has_keys(path)
        try:
            self._train(path)
        except BaseException as error:
            yield f'cannot be continued: {type(error).__name__}: {error}'
            return
        after, reference = archive.read_journal(path), archive.read_journal(self._reference)
        if after.chain[: len(before.chain)] != before.chain:
            yield 'an event is lost'
        if has_keys and after.chain != reference.chain:
            yield 'the journal differs'
        if has_keys:
            yield from faults_at_writes.differences(path, self._reference)
        elif before.state.drawn or before.state.begun:
            yield 'a draw or a round has lost its keys'

    def _train(self, path: pathlib.Path, *, is_observed: bool = False) -> None:
        tell = self._computed if is_observed else lambda *arguments: None
        directory = run_directory.RunDirectory(path, resume=True)
        with directory.in_use():
            if not directory.state.begun:
                draw(directory, None, tell)
            process = _Observed(self._experiment.process, tell)
            experiment = dataclasses.replace(self._experiment, process=process)
            program.run_training(experiment, directory)

    def _computed(self, event: str, times: int) -> None:
        thread = threading.get_native_id()
        self._tell(computed=f'"event": "{event}"', times=times, thread=thread)

    def _tell(self, **values) -> None:
        self._ask(json.dumps(values).encode())


class _Observed:
    """A process that tells before each round that it is about to be computed."""

    def __init__(self, process, tell):
        self._process, self._tell = process, tell
        self.initialize, self.get_model_weights = process.initialize, process.get_model_weights

    def next(self, state, data):
        self._tell('began', int(state.noise.round) + 1)
        return self._process.next(state, data)


def draw(
    directory: run_directory.RunDirectory, noise_seed: int | None, tell=lambda *arguments: None
) -> None:
    """Draws words, as a run does before its training.

    Args:
      directory: the directory of the run, in use.
      noise_seed: of the draws; None for noise from the keys of the run.
      tell: called before the draw with the name of its event, and how often that was written.
    """
    found = before_training.BeforeTraining(
        words=before_training.WordRelease.of_guarantee(3.0, 1e-3, words_per_client=2),
        noise_seed=noise_seed,
        draw=functools.partial(
            prepared_task.draw, directory, functools.partial(directory.begin, {}, {})
        ),
    )

    def find(noise):
        tell('drew', 1)  # The draw has an event before it and one with its result.
        return noise.standard_normal(3).tolist()

    found.find([np.arange(9)], find)


def _has_keys(path: pathlib.Path) -> bool:
    return bool((path / _KEYS).exists() and (path / _KEYS).read_bytes())


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/fault_test.py')
