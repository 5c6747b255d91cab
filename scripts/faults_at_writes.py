"""Lets every system call of a run that changes a file fail once, and then resumes the run.

The runs train a toy model, one after the other in one child process (`system_calls.Child`), so that
everything that is built once serves all of them. A call is identified by its place: its name, its
file, and how often it has been made on that file before.
"""

import collections
import dataclasses
import errno
import pathlib
import re
import shutil
import sys

from scripts import fault_runs, system_calls
from tests import runs

# Parts of file names that differ from run to run.
_RANDOM = re.compile(r'(?<=events\.out\.tfevents\.).*|(?<=_temp)\d+')
_TAKES_SPACE = {
    'open',
    'creat',
    'write',
    'pwrite',
    'writev',
    'sendfile',
    'copy_file_range',
    'fallocate',
    'mkdir',
    'ftruncate',
}


@dataclasses.dataclass(frozen=True)
class Fault:
    """How the chosen call fails, and which later ones.

    Attributes:
      name: description of the fault.
      number: the error number.
      lasts: whether later calls fail as well.
      calls: names of the calls that fail later; the chosen one always fails.
    """

    name: str
    number: int
    lasts: bool
    calls: frozenset[str] = frozenset()


FAULTS = (
    Fault('one call fails: no space', errno.ENOSPC, lasts=False),
    Fault('full disk from a call on', errno.ENOSPC, lasts=True, calls=frozenset(_TAKES_SPACE)),
    Fault(
        'read-only from a call on',
        errno.EROFS,
        lasts=True,
        calls=frozenset(_TAKES_SPACE | {'rename', 'rmdir', 'unlink', 'fsync', 'fdatasync'}),
    ),
)


def play(
    folder: pathlib.Path, noise_seed: int | None, every: int, rounds: int = 3
) -> tuple[int, list[fault_runs.Outcome]]:
    """Plays faults at every `every`-th place.

    Args:
      folder: an empty folder for the runs.
      noise_seed: noise seed of the runs. None takes noise keys from the operating system; all runs
        then begin with the same keys, which is the only way to repeat the noise.
      every: 1 for all places.
      rounds: number of rounds of a run.

    Returns:
      The number of places, and the outcomes.
    """
    toy = fault_runs.Toy(
        folder,
        noise_seed,
        is_in_tff=True,
        draws=False,
        rounds=rounds,
        checkpoint_every=1,
        noise_multiplier=0.5,
    )
    disk = _Disk(toy.new(folder / 'counted'))
    with toy.child(is_watched=True) as child:
        for path, decide in ((toy.new(toy.reference), _execute), (disk.path, disk.decide)):
            if said := child.call(path, decide):
                raise RuntimeError(said)
        outcomes = [
            _outcome(toy, child, fault, place) for place in disk.places[::every] for fault in FAULTS
        ]
    return len(disk.places), outcomes


def _execute(call: system_calls.Call) -> int:
    del call
    return 0


class _Disk:
    """Lets system calls on a run fail, from one place on.

    Attributes:
      path: directory of the run.
      places: of the calls so far.
      has_failed: whether the place of the fault was reached.
    """

    def __init__(self, path: pathlib.Path, fault: Fault | None = None, place: str = ''):
        self.path, self.places, self.has_failed = path, [], False
        self._fault, self._place = fault, place
        self._met = collections.Counter()

    def decide(self, call: system_calls.Call) -> int:
        """The error number with which a call fails; 0 to execute it."""
        if not call.path.is_relative_to(self.path):
            return 0
        name = _RANDOM.sub('', str(call.path.relative_to(self.path)))
        self._met[call.name, name] += 1
        place = f'{call.name} {name} #{self._met[call.name, name]}'
        self.places.append(place)
        if self._fault is None:
            return 0
        if place == self._place:
            self.has_failed = True
            return self._fault.number
        later = self.has_failed and self._fault.lasts and call.name in self._fault.calls
        return self._fault.number if later else 0


def _outcome(
    toy: fault_runs.Toy, child: system_calls.Child, fault: Fault, place: str
) -> fault_runs.Outcome:
    disk = _Disk(toy.new(toy.reference.with_name('run')), fault, place)
    said = child.call(disk.path, disk.decide)
    before = runs.saved_rounds(disk.path)
    if '\n' in said:
        worse = f'more than a line: {said}'
    elif not disk.has_failed:
        worse = 'the call did not come'
    elif problem := child.call(disk.path):
        worse = f'cannot be resumed after {before} rounds: {problem}'
    else:
        left = [partial.name for partial in disk.path.rglob('*.partial')]
        worse = ', '.join([f'{name} differs' for name in toy.differences(disk.path)] + left)
    shutil.rmtree(disk.path)
    return fault_runs.Outcome(fault.name, place, said.replace(str(disk.path), ''), worse)


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/fault_test.py')
