"""The stage of `ray_faults.py`: processes of Ray wait at a gate while a fault is played."""

import contextlib
import dataclasses
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import connection
from typing import Any

from tests.runtime import ray_nodes
from tests.simulation import toy_experiment

NODES = 2
# Seconds within which some shard of a round must arrive, and a fault must be played.
TIMEOUT = 900.0


class Data:
    """The data of clients. A process asks the gate before it reads one.

    Args:
      gate: address of the gate.
    """

    def __init__(self, gate: str):
        self._gate = gate

    def __call__(self, turn: tuple[int, int]) -> Any:
        import ray

        with connection.Client(self._gate) as gate:
            gate.send((os.getpid(), ray.get_runtime_context().get_node_id(), turn))
            order = gate.recv()
        if isinstance(order, Exception):
            raise order
        if order is not None:
            os.kill(os.getpid(), order)
        return toy_experiment.rows(turn[1])


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
      what: is lost.
      when: processes wait at the gate: when it 'reads' a cohort to describe it, or 'trains'.
      plays: what happens while they wait, by round, counted from 0. The run ends a round later.
      says: a regular expression of what the runtime counts, or of the message that ends the run.
      is_alone: whether a single process waits, and the others go on.
      ends_cluster: whether the cluster ends with it; it is played last.
      timeout: seconds of `ray_runtime`.
      nodes: number of nodes in the beginning.
    """

    what: str
    when: str
    plays: Mapping[int, Callable[['Scene'], None]]
    says: str = ''
    is_alone: bool = False
    ends_cluster: bool = False
    timeout: float = TIMEOUT
    nodes: int = NODES


class Scene:
    """Where a fault is played, and the gate at which processes wait for it.

    Attributes:
      fault: the fault.
      nodes: of the cluster.
      waiting: by the id of each process that has waited in the round, its node.
      trained: clients of the round whose data were read for training.
      orders: for the first processes that go on: an exception to raise, or a signal to end with.
      played: when the first fault was played.
      failed: why a fault could not be played; None if all were.
    """

    def __init__(self, fault: Fault, nodes: ray_nodes.Nodes):
        self.fault = fault
        self.nodes = nodes
        self.waiting: dict[int, str] = {}
        self.trained: set[int] = set()
        self.orders: list[Any] = []
        self.played = 0.0
        self.failed: Exception | None = None
        self._described: set[tuple[int, int]] = set()
        self._opened: dict[int, threading.Event] = {}
        self._lock = threading.Lock()

    def enter(self, process: int, node: str, turn: tuple[int, int]) -> Any:
        """The order for a process that reads a client, when it may go on."""
        t, client = turn
        with self._lock:
            phase = 'trains' if turn in self._described else 'reads'
            self._described.add(turn)
            if t not in self.fault.plays or phase != self.fault.when:
                return None
            is_first = t not in self._opened
            if is_first:
                self._opened[t] = threading.Event()
                self.waiting, self.trained = {}, set()
            self.trained.add(client)
            if self.fault.is_alone and not is_first:
                return None
            self.waiting[process] = node
        if is_first:
            self._play(t)
        self._opened[t].wait()
        with self._lock:
            return self.orders.pop() if self.orders else None

    def _play(self, t: int) -> None:
        time.sleep(0.5)  # For the others.
        self.played = self.played or time.monotonic()
        try:
            self.fault.plays[t](self)
        except Exception as error:
            self.failed = error
        if not self.fault.ends_cluster:  # Else the run would be over before anybody notices.
            self._opened[t].set()

    @property
    def node(self) -> str:
        """A node on which a process waits."""
        return next(iter(self.waiting.values()))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + TIMEOUT
        while not is_so():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.1)


class Gate:
    """Lets processes of Ray enter the scene.

    Close it in the end.

    Attributes:
      scene: of the fault that is played.
      address: what `Data` takes.
    """

    def __init__(self, folder: pathlib.Path):
        self.scene: Scene | None = None
        self.address = str(folder / 'gate')
        self._listener = connection.Listener(self.address, backlog=64)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Lets nobody enter any more."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            visitor = self._listener.accept()
            threading.Thread(target=self._answer, args=(visitor,), daemon=True).start()

    def _answer(self, visitor: connection.Connection) -> None:
        scene = self.scene
        with visitor, contextlib.suppress(EOFError, OSError):  # It was killed.
            visitor.send(scene.enter(*visitor.recv()) if scene is not None else None)


if __name__ == '__main__':
    sys.exit('error: this is a part of scripts/ray_faults.py')
