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

import collections
import hashlib
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator

from scripts import fault_runs, system_calls

# What a directory holds: bytes by the names of files, None for folders.
_Tree = dict[str, bytes | None]
_LEDGER, _KEYS = 'ledger.jsonl', 'checkpoints/keys'
_WRITES = frozenset({'write', 'pwrite', 'writev'})
# Numbers of these system calls.
_SYNCS = {'fsync': 74, 'fdatasync': 75}
_SECONDS_TO_SYNC = 5.0


def play(folder: pathlib.Path, every: int, rounds: int = 3) -> list[fault_runs.Outcome]:
    """Plays every `every`-th of the different directories that an end can leave.

    Args:
      folder: an empty folder for the runs.
      every: 1 for all of them.
      rounds: number of rounds of the run.

    Returns:
      The outcomes, whose faults are 'killed', 'torn' and 'power'.
    """
    toy = fault_runs.Toy(folder, None, rounds=rounds, checkpoint_every=1)
    observer, left = _Observer(toy.reference), folder / 'left'
    with toy.child(is_watched=True) as child:
        if said := child.call(toy.reference, observer.decide):
            raise RuntimeError(said)
        outcomes = observer.lost
        for how, place, tree in observer.left[::every]:
            left.mkdir()
            for name, data in sorted(tree.items()):
                if data is None:
                    (left / name).mkdir(exist_ok=True)
                else:
                    (left / name).write_bytes(data)
            worse = '; '.join(_wrong(toy, child, left))
            outcomes.append(fault_runs.Outcome(how, place, '', worse))
            shutil.rmtree(left)
    return outcomes


def _wrong(toy: fault_runs.Toy, child: system_calls.Child, path: pathlib.Path) -> Iterator[str]:
    """What is wrong with a run once it is continued."""
    before, keys = fault_runs.events(path), path / _KEYS
    has_keys = keys.exists() and bool(keys.read_bytes())
    if said := child.call(path):
        yield f'cannot be continued: {said}'
        return
    if fault_runs.events(path).chain[: len(before.chain)] != before.chain:
        yield 'an event is lost'
    if has_keys:
        yield from toy.differences(path)
    elif before.state.drawn or before.state.begun:
        yield 'a draw or a round has lost its keys'


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
    """Takes down what an end of the undisturbed run would leave at each of its system calls.

    Attributes:
      left: how the run would have ended, the place, and what would be left, of which all differ.
      lost: what was computed before a power failure could not undo the event that says so.
    """

    def __init__(self, run: pathlib.Path):
        self._run = run
        self._disk = _Disk()
        self._last: dict[int, tuple[str, str, _Tree]] = {}  # The last write of each thread.
        self._seen: set[str] = set()
        self._announced: collections.Counter[str] = collections.Counter()
        self.left: list[tuple[str, str, _Tree]] = []
        self.lost: list[fault_runs.Outcome] = []

    def decide(self, call: system_calls.Call) -> int:
        """Takes down what is there before a call, and lets it be executed."""
        if call.path.suffix == fault_runs.ANNOUNCED:
            self._require_event(call)
        elif call.path.is_relative_to(self._run):
            name, tree = str(call.path.relative_to(self._run)), _read(self._run)
            place = f'{call.name} {name}'
            self._torn(call.process, tree)
            self._disk.before(call, name, tree)
            self._keep('killed', place, tree)
            self._keep('power', place, self._disk.left())
            if call.name in _WRITES:
                self._last[call.process] = place, name, tree
        return 0

    def _require_event(self, call: system_calls.Call) -> None:
        """A draw or a round is about to be computed: the disk has its event."""
        self._announced[call.path.stem] += 1
        self._disk.update(call.process)
        kept = self._disk.left().get(_LEDGER) or b''
        if kept.count(f'"event": "{call.path.stem}"'.encode()) < self._announced[call.path.stem]:
            worse = 'was computed before the disk had it'
            self.lost.append(fault_runs.Outcome('power', call.path.stem, '', worse))

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
            self.left.append((how, place, tree))


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


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/fault_test.py')
