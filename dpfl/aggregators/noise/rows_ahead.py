"""What `NoiseRing` and `HardenedRing` share: a thread computes noise rows one round ahead of TFF.

They differ in what a row holds and how it is computed.
"""

import abc
import concurrent.futures
import os
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, Protocol

import numpy as np
import tree

from dpfl import accounting, errors
from dpfl.aggregators.noise import correlated


def run_all(
    threads: concurrent.futures.Executor, work: Callable[[Any], None], parts: Iterable[Any]
) -> None:
    """Calls `work` for all parts, in threads; returns or raises when none of them works any more.

    The caller begins anew with the same arrays after an error, so no thread may still write them.

    Raises:
      Exception: the first error, in the order of the parts; parts that have not begun are dropped.
    """
    futures = [threads.submit(work, part) for part in parts]
    try:
        for future in futures:
            future.result()
    finally:
        for future in futures:
            future.cancel()
        concurrent.futures.wait(futures)


class Stream(Protocol):
    """Noise rows of a run, in any order; those in order are the fastest."""

    def row(self, t: int, show_progress: bool) -> np.ndarray:
        """Row `t`, [size]."""

    def close(self) -> None:
        """Ends its threads and frees its memory."""


class RowsAhead(abc.ABC):
    """Supplies states with noise rows. While a round trains, a thread computes the next row.

    A context manager; leaving it ends the threads and frees the memory.

    Args:
      plan: says how many rounds there are, and how to stream the noise.
      directory: where to keep past noise in a file; None for memory.
      show_progress: shows a bar on standard error when many rounds are recomputed.
    """

    _row_type: ClassVar[type]  # Type of the part of a state that holds the row.
    _noises: ClassVar[str]  # What messages call several states of such noise.

    def __init__(
        self,
        plan: accounting.PrivacyPlan,
        directory: str | os.PathLike | None = None,
        *,
        show_progress: bool = True,
    ):
        self._rounds = plan.participation.rounds
        self._kernel = plan.mechanism.with_rounds(self._rounds).kernel()
        self._directory = directory
        self._show_progress = show_progress
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._streams: dict[str, Stream] = {}  # The thread owns them.
        self._streams_source: Hashable = None
        self._source: Hashable = None  # Key and sizes of the rows.
        self._ahead = concurrent.futures.ThreadPoolExecutor(1, 'noise')
        self._rows: dict[int, concurrent.futures.Future] = {}  # Of this round and the next one.

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self) -> None:
        """Waits for the row that is being computed, and frees everything.

        Does nothing in a forked process: the threads belong to its parent.
        """
        if self._process != os.getpid():
            return
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._rows.clear()
        self._close_streams()

    @abc.abstractmethod
    def _after_fork(self) -> None:
        """Called in a forked process, which has none of the threads: starts anew or raises."""

    @abc.abstractmethod
    def _source_of(self, state: correlated.NoiseState) -> Hashable:
        """What determines the rows: the key and the sizes in a state."""

    @abc.abstractmethod
    def _make_streams(self, source: Any) -> dict[str, Stream]:
        """A stream for each field of `_row_type` that holds noise."""

    def supply(self, state: Any) -> Any:
        """The state with the noise of its round.

        Rounds that do not follow the last one, such as the first round of a resumed run, are
        computed from the first round on.

        Args:
          state: of a TFF process or query whose noise is supplied, or any structure around it.

        Raises:
          RuntimeError: if this process was forked after the ring was made and the ring cannot
            start anew.
          ValueError: if the state does not hold exactly one noise of this kind.
          OSError: if there is no space for the file.
        """
        if self._process != os.getpid():
            self._after_fork()
        found = []

        def find(part):
            if self._is_supplied(part):
                found.append(part)

        tree.traverse(find, state)
        if len(found) != 1:
            raise errors.ArgumentError(
                'state', errors.NOT_SHOWN, f'holds {len(found)} {self._noises}, must hold one'
            )
        with_row = self._with_row(*found)
        return tree.traverse(lambda part: with_row if self._is_supplied(part) else None, state)

    def _is_supplied(self, part) -> bool:
        return isinstance(part, correlated.NoiseState) and isinstance(part.past, self._row_type)

    def _with_row(self, state: correlated.NoiseState) -> correlated.NoiseState:
        t = int(state.round)
        if t >= self._rounds:
            return state  # The computation says what is wrong.
        source = self._source_of(state)
        if source != self._source:
            self._rows, self._source = {}, source
        # In this order: the one thread computes round t, if it has to, before the next one.
        rows = {
            wanted: self._rows.get(wanted) or self._ahead.submit(self._row, source, wanted)
            for wanted in range(t, min(t + 2, self._rounds))
        }
        self._rows = rows
        try:
            row = rows[t].result()
        except BaseException:
            self._rows = {}  # Another call tries again.
            raise
        return state._replace(past=state.past._replace(round=np.int64(t), **row))

    def _row(self, source: Hashable, t: int) -> dict[str, np.ndarray]:
        """Row `t` by field of `_row_type`. Runs in the one thread, the owner of the streams."""
        if self._streams_source != source:
            self._close_streams()
            self._streams = self._make_streams(source)
            self._streams_source = source
        return {
            field: stream.row(t, self._show_progress) for field, stream in self._streams.items()
        }

    def _close_streams(self) -> None:
        for stream in self._streams.values():
            stream.close()
        # Making others can fail for lack of space.
        self._streams, self._streams_source = {}, None
