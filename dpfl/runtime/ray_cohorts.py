"""Cohorts whose data the processes of Ray read themselves, where they can.

A round then sends ids of clients and the model, not examples. A process reads its part of the next
cohort, and returns for each client the number of its rows and a description, such as a digest:
from these this process makes the same shards as `shards.shard`, and knows the data that a round
is about to release. A shard is read again by the process that trains it, which refuses data that
do not have the descriptions.

Where no process of Ray can read the data, this process reads and sends them.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ray

from dpfl.runtime import shards as shards_lib
from dpfl.runtime.failures import RayError
from dpfl.runtime.ray_rounds import Kept, Put, Rounds, TaskError, Tasks

_log = logging.getLogger(__name__)

# Largest pickled reader of data that every process unpickles. With a larger one, this process reads
# the data and sends it.
_MOST_READER_BYTES = 64 << 20


class Shards(Sequence):
    """The shards of a cohort, as ids of clients.

    Attributes:
      submitted: called when their tasks are submitted, so that the next cohort is read while this
        process makes noise and writes files.
    """

    def __init__(self, reader, template, members, submitted):
        self._reader = reader
        self._template = template
        self._members = members
        self.submitted = submitted

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: Any) -> Any:
        return self._members[index]

    def of_shard(self, put: Put) -> Callable[[int], tuple[Any, ...]]:
        """The task of a shard: its name, and arguments after program and message."""
        reader = self._reader.put(put)
        return lambda index: ('update_of', reader, self._template, self._members[index])


class Cohorts:
    """Iterator over the shards of cohorts, read a round ahead.

    Args:
      rounds: what submits tasks.
      cohorts, client_data, num_shards, observe, describe: as in `shards.sharded_cohorts`.
    """

    def __init__(
        self,
        rounds: Rounds,
        cohorts: Iterable[Sequence[Any]],
        client_data: Callable[[Any], Any],
        num_shards: int,
        observe: Callable[[list[Any]], None],
        describe: Callable[[list[Any]], Any],
    ):
        self._rounds = rounds
        self._cohorts = iter(cohorts)
        self._of_here = client_data, num_shards, observe, describe
        self._num_shards = num_shards
        self._observe = observe
        self._reader = _reader(client_data, describe)
        # The next cohort, and the tasks that read it.
        self._next: tuple[Sequence[Any], Tasks] | None = None
        self._here: Any = None
        if self._reader is None:
            self._read_here(())

    def __iter__(self) -> 'Cohorts':
        return self

    def __next__(self) -> Any:
        if self._here is not None:
            return next(self._here)
        self.begin()
        if self._next is None:
            raise StopIteration
        cohort, tasks = self._next
        self._next = None
        try:
            parts = tasks.results()
        except (RuntimeError, ValueError) as error:
            is_lost = isinstance(error, RayError) and not isinstance(error, TaskError)
            if self._rounds.stop.is_set() or is_lost:
                raise
            # Such as a file that this process has and other nodes do not.
            _log.warning('this process reads the data of clients, for Ray cannot: %s', error)
            return next(self._read_here([cohort]))
        rows, descriptions = [], []
        for of_part in parts:
            rows += of_part.rows
            descriptions += of_part.descriptions
        self._observe(descriptions)
        template = next((part.template for part in parts if part.template is not None), None)
        divided = [] if template is None else shards_lib.balanced(rows, self._num_shards)
        members = [
            [(cohort[index], descriptions[index]) for index in of_shard] for of_shard in divided
        ]
        return Shards(self._reader, template, members, self.begin)

    def begin(self) -> None:
        """Begins to read the next cohort."""
        reader = self._reader
        if self._next is not None or self._here is not None or reader is None:
            return
        cohort = next(self._cohorts, None)
        if cohort is None:
            return
        parts = min(len(cohort), max(1, self._rounds.num_cores() or 1))
        bounds = [len(cohort) * part // max(1, parts) for part in range(parts + 1)]

        def submit_all(put: Put) -> Callable[[int], Any]:
            kept = reader.put(put)
            return lambda part: self._rounds.submit(
                'describe', kept, list(cohort[bounds[part] : bounds[part + 1]])
            )

        self._next = cohort, Tasks(self._rounds, submit_all, range(parts))

    def _read_here(self, first: Sequence[Sequence[Any]]) -> Any:
        client_data, num_shards, observe, describe = self._of_here
        cohorts = itertools.chain(first, self._cohorts)
        self._here = shards_lib.sharded_cohorts(cohorts, client_data, num_shards, observe, describe)
        return self._here

    def close(self) -> None:
        """Ends what reads the next cohort."""
        if self._here is not None:
            self._here.close()
        if self._next is not None:
            self._next[1].cancel()


def _reader(client_data, describe) -> Kept | None:
    """Both functions in a form that other processes take; None if there is none."""
    try:
        data = ray.cloudpickle.dumps((client_data, describe))
    except Exception as error:  # Pickling calls methods of any class.
        _log.info('the data of clients cannot be read by other processes: %s', error)
        return None
    return Kept(data) if len(data) <= _MOST_READER_BYTES else None
