"""A cluster of Ray whose nodes are on this machine, and the processes of Ray of this process."""

import contextlib
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

_MARK = 'RAY_NODES_OF'
_STARTS = 5
_LEAVING_SECONDS = 30.0


def mark() -> None:
    """Marks what this process starts from now on, so that `processes` finds it."""
    os.environ[_MARK] = str(os.getpid())


def processes(*titles: str) -> list[int]:
    """Ids of the processes that this process has started since `mark`, directly or not.

    Args:
      *titles: beginnings of titles, such as `ray::IDLE`, to return only processes with one of them.
    """
    marked, ids = f'{_MARK}={os.getpid()}'.encode(), []
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            is_alive = path.joinpath('stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
            title = path.joinpath('cmdline').read_bytes().decode(errors='replace')
            if is_alive and marked in path.joinpath('environ').read_bytes().split(b'\0'):
                ids += [int(path.name)] * title.startswith(titles or '')
    return [process for process in ids if process != os.getpid()]


def remaining(seconds: float = _LEAVING_SECONDS) -> list[int]:
    """Processes that this process has started and that do not end within some time."""
    deadline = time.monotonic() + seconds
    while (ids := processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return ids


def kill(*ids: int, number: int = signal.SIGKILL) -> None:
    """Sends a signal to processes, some of which may have ended."""
    for process in ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


class Nodes:
    """Nodes with one processor core each, and a head that computes nothing.

    Attributes:
      cluster: of `ray.cluster_utils`.
      nodes: of the cluster, without the head.
    """

    def __init__(self, folder: pathlib.Path, store_bytes: int):
        from ray import cluster_utils

        self._folder = folder
        self._store_bytes = store_bytes
        self.nodes: list[Any] = []
        head = {'num_cpus': 0, 'include_dashboard': False, 'object_store_memory': store_bytes}
        # Without hooks of its own at the end: it installs them in the main thread alone.
        arguments = {'head_node_args': head, 'shutdown_at_exit': False}
        self.cluster = _started(lambda: cluster_utils.Cluster(initialize_head=True, **arguments))

    def add(self) -> None:
        """Adds a node, with a working folder of its own."""
        folder = self._folder / f'node{time.monotonic_ns()}'
        folder.mkdir()
        size = {'num_cpus': 1, 'object_store_memory': self._store_bytes}
        with contextlib.chdir(folder):
            self.nodes.append(_started(lambda: self.cluster.add_node(**size)))

    def take(self, node_id: str | None = None) -> Any:
        """The node with an id, or any, which does not count any more."""
        node = next(node for node in self.nodes if node_id in (None, node.node_id))
        self.nodes.remove(node)
        return node

    def remove(self, node_id: str | None = None) -> None:
        """Ends the node with an id, or any, as if its machine had lost its power."""
        self.cluster.remove_node(self.take(node_id), allow_graceful=False)

    def resize(self, number: int) -> None:
        """Adds or removes nodes."""
        while len(self.nodes) < number:
            self.add()
        while len(self.nodes) > number:
            self.remove()


def _started(make: Callable[[], Any]) -> Any:
    """The result of `make`, which starts a node.

    Ray gives it 30 seconds. On a busy machine another attempt may succeed.
    """
    for attempt in range(1, _STARTS + 1):
        before = processes()
        try:
            return make()
        except Exception as error:
            if 'timed out during startup' not in str(error) or attempt == _STARTS:
                raise
        kill(*set(processes()) - set(before))
    raise AssertionError


@contextlib.contextmanager
def cluster(number: int, store_bytes: int = 100 << 20) -> Iterator[Nodes]:
    """A cluster of nodes on this machine, without authentication.

    Args:
      number: of the nodes.
      store_bytes: size of the object store of each.
    """
    import ray

    settings = {
        'RAY_AUTH_MODE': 'disabled',
        'RAY_USAGE_STATS_ENABLED': '0',
        # A lost node is noticed sooner than by default.
        'RAY_health_check_period_ms': '500',
        # Of two runs, each keeps its processes: Ray would end idle ones beyond one a core.
        'RAY_num_workers_soft_limit': '8',
    }
    with (
        mock.patch.dict(os.environ, settings),
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        nodes = Nodes(pathlib.Path(folder), store_bytes)
        try:
            nodes.resize(number)
            yield nodes
        finally:
            ray.shutdown()
            nodes.cluster.shutdown()
            # Without a head these try for minutes to tell it that their node has ended.
            kill(*processes('ray::DashboardAgent', 'ray::RuntimeEnvAgent'))
