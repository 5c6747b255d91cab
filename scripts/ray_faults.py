"""Plays faults of Ray in rounds of training, and compares the results bit for bit.

  python scripts/ray_faults.py                # the table of faults; some minutes
  python scripts/ray_faults.py --kills=50     # runs in which random processes are killed

The faults are played on one machine, on a cluster of several nodes, each with a working folder of
its own. Prints a row for each: what was lost, when, the seconds that the round took longer than the
one before it, what the runtime counted, and whether all bits are those of a run without Ray. Exits
with status 1 if bits differ, if a run ends otherwise than it should, or if a process is left.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np  # noqa: E402
import tree  # noqa: E402

from dpfl.runtime import contexts, ray_rounds  # noqa: E402
from dpfl.simulation import data_digest  # noqa: E402
from tests.simulation import toy_experiment  # noqa: E402

_SHARDS, _CLIENTS, _ROUNDS = 2, 6, 3
# In this round of a run, counted from 0, the fault is played.
_ROUND = 1


class Data:
    """The data of clients, which take a while to read in the round of the fault.

    Args:
      folder: with the files that tell processes what to do.
      seconds: that a client of that round takes.
    """

    def __init__(self, folder: pathlib.Path, seconds: float = 0.1):
        self._folder = folder
        self._seconds = seconds

    def __call__(self, turn: tuple[int, int]) -> Any:
        t, client = turn
        if t == _ROUND:
            time.sleep(self._seconds)
            order = self._folder / 'order'
            # The first that finds the order follows it.
            with contextlib.suppress(FileNotFoundError):
                what = order.read_text()
                order.unlink()
                if what == 'end':
                    os.kill(os.getpid(), signal.SIGSEGV)
                if what == 'memory':
                    raise MemoryError
                if what == 'fail':
                    raise OSError('a disk does not answer')
            if (self._folder / 'always').exists():
                raise OSError('a disk does not answer')
        return toy_experiment.rows(client)


@dataclasses.dataclass
class Scene:
    """Where a fault is played.

    Attributes:
      cluster: of `ray.cluster_utils`.
      folder: as in `Data`, with a working folder for each node.
      nodes: of the cluster, without the head, which computes nothing.
    """

    cluster: Any
    folder: pathlib.Path
    nodes: list[Any]

    def add_node(self) -> None:
        """Adds a node with one processor core."""
        place = self.folder / f'node{time.monotonic_ns()}'
        place.mkdir()
        with contextlib.chdir(place):
            self.nodes.append(self.cluster.add_node(num_cpus=1, object_store_memory=100 << 20))

    def remove_node(self) -> None:
        """Removes a node."""
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def end_raylet(self) -> None:
        """Kills the raylet of a node, which is a node less for Ray."""
        self.nodes.pop().kill_raylet(check_alive=False)

    def order(self, what: str, name: str = 'order') -> None:
        """Leaves an order for the process that reads the next client."""
        (self.folder / name).write_text(what)


def processes(*words: str) -> list[int]:
    """Ids of processes whose titles have one of the words."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            title = path.joinpath('cmdline').read_bytes().decode(errors='replace')
            parent = path.joinpath('stat').read_text().rsplit(')', 1)[1].split()
            if any(word in title for word in words) and parent[0] != 'Z' and _is_ours(path):
                found.append(int(path.name))
    return found


def _is_ours(path: pathlib.Path) -> bool:
    """Whether the process has the session name of this run in its environment or arguments."""
    mark = f'RAY_FAULTS={os.getpid()}'.encode()
    return mark in path.joinpath('environ').read_bytes().split(b'\0')


def kill(word: str, most: int = 99, number: int = signal.SIGKILL) -> Callable[[Scene], None]:
    """A fault: a signal to processes whose titles have a word."""

    def play(scene):
        del scene
        for process in processes(word)[:most]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    return play


def free_objects(scene: Scene) -> None:
    """Removes all objects of this process from the store."""
    import ray

    del scene
    references = [ray.ObjectRef.from_hex(each) for each in _references()]
    ray._private.internal_api.free(references)


def _references() -> list[str]:
    import ray

    worker = ray._private.worker.global_worker.core_worker
    return [key.hex() for key in worker.get_all_reference_counts()]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
      what: is lost.
      when: in words.
      play: plays it.
      delay: seconds after the beginning of the round; None for before it.
      error: how the message of the error begins that ends the run; '' if it goes on.
      repair: is called when the run has ended.
      timeout: seconds of `ray_runtime`.
    """

    what: str
    when: str
    play: Callable[[Scene], None]
    delay: float | None = 0.3
    error: str = ''
    repair: Callable[[Scene], None] = lambda scene: None
    timeout: float = 300.0


def _add(scene):
    scene.add_node()


def _both(scene):
    scene.remove_node()
    scene.add_node()


def _none_for_a_while(scene):
    while scene.nodes:
        scene.remove_node()
    time.sleep(8)
    scene.add_node()


def _none(scene):
    while scene.nodes:
        scene.remove_node()


FAULTS = (
    Fault('nothing', '', lambda scene: None),
    Fault('idle processes', 'between rounds', kill('ray::IDLE'), None),
    Fault('a process', 'while it reads', kill('ray::dpfl', 1), 0.2),
    Fault('a process', 'while it trains', kill('ray::dpfl update', 1), 0.6),
    Fault('all processes', 'in a round', kill('ray::dpfl'), 0.5),
    Fault('a process, by SIGSEGV', 'in a round', lambda scene: scene.order('end'), 0.0),
    Fault('memory of a task', 'in a round', lambda scene: scene.order('memory'), 0.0),
    Fault('a read of a task', 'in a round', lambda scene: scene.order('fail'), 0.0),
    Fault('all objects of the store', 'in a round', free_objects, 0.4),
    Fault('a raylet', 'in a round', Scene.end_raylet, 0.4, repair=_add),
    Fault('a node', 'in a round', Scene.remove_node, 0.4, repair=_add),
    Fault('a node, and one is added', 'in a round', _both, 0.4),
    Fault('no node; one is added', 'in a round', Scene.add_node, 0.4, repair=Scene.remove_node),
    Fault('all nodes for a while', 'in a round', _none_for_a_while, 0.4, repair=_add),
    Fault(
        'the answer of a process (SIGSTOP)',
        'in a round',
        kill('ray::dpfl', number=signal.SIGSTOP),
        0.3,
        'Ray: no shard has arrived for 20 seconds (ray_timeout)',
        kill('ray::dpfl', number=signal.SIGCONT),
        20.0,
    ),
    Fault(
        'all nodes, for good',
        'in a round',
        _none,
        0.4,
        'Ray: the cluster has had no node with a processor core for',
        lambda scene: (scene.add_node(), scene.add_node()),
    ),
)


def train(runtime: contexts.Runtime, data: Data, before_round: Callable[[int], None]) -> Any:
    """The bits of a run, and the seconds of its rounds."""
    process = toy_experiment.experiment().process
    turns = [[(t, client) for client in range(t, t + _CLIENTS)] for t in range(_ROUNDS)]
    seen: list[Any] = []
    cohorts = runtime.sharded_cohorts(turns, data, _SHARDS, seen.append, data_digest.of_client)
    state, outputs, seconds = process.initialize(), [], []
    with contextlib.closing(cohorts):
        for t in range(_ROUNDS):
            before_round(t)
            started = time.monotonic()
            output = process.next(state, next(cohorts))
            seconds.append(time.monotonic() - started)
            state = output.state
            outputs.append(output)
    bits = [np.asarray(value).tobytes() for value in tree.flatten(outputs)]
    return (bits, seen), seconds


@contextlib.contextmanager
def scene(num_nodes: int) -> Iterator[Scene]:
    """A cluster on this machine, to which this process is connected."""
    import ray
    from ray import cluster_utils

    os.environ['RAY_FAULTS'] = str(os.getpid())
    folder = pathlib.Path(tempfile.mkdtemp(prefix='faults-'))
    os.environ['RAY_AUTH_TOKEN_PATH'] = str(folder / 'token')
    os.environ['RAY_AUTH_MODE'] = 'disabled'
    os.environ['RAY_health_check_period_ms'] = '500'
    head = {'num_cpus': 0, 'include_dashboard': False, 'object_store_memory': 100 << 20}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    try:
        made = Scene(cluster, folder, [])
        for _ in range(num_nodes):
            made.add_node()
        yield made
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def play(fault: Fault, made: Scene, expected: Any) -> dict[str, str]:
    """Plays a fault; returns its row of the table. `wrong` is '' if all is as it should be."""
    for name in ('order', 'always'):
        (made.folder / name).unlink(missing_ok=True)
    timers: list[threading.Timer] = []

    def before_round(t):
        if t == _ROUND and fault.delay is None:
            fault.play(made)
        if t == _ROUND and fault.delay is not None:
            timers.append(threading.Timer(fault.delay, fault.play, [made]))
            timers[-1].start()

    result, seconds, said = None, [0.0] * _ROUNDS, ''
    with contexts.ray_runtime(made.cluster.address, timeout=fault.timeout) as runtime:
        started = time.monotonic()
        try:
            result, seconds = train(runtime, Data(made.folder), before_round)
        except contexts.RayError as error:
            said = str(error)
            seconds[_ROUND] = time.monotonic() - started
        for timer in timers:
            timer.join()
        lost = dict(runtime.losses)
    fault.repair(made)
    wrong = ''
    if fault.error:
        wrong = '' if said.startswith(fault.error) else f'ended with {said!r}'
    elif said or result != expected:
        wrong = said or 'bits differ'
    return {
        'lost': fault.what,
        'when': fault.when,
        'seconds lost': f'{max(0.0, seconds[_ROUND] - seconds[-1]):.1f}',
        'counted': ', '.join(f'{what}: {count}' for what, count in lost.items()) or '-',
        'bits': f'"{said}"' if said else 'equal' if result == expected else 'DIFFER',
        'wrong': wrong,
    }


def main(arguments: list[str] | None = None) -> int:
    """Plays the faults; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--kills', type=int, default=0, help='runs with random kills instead')
    parser.add_argument('--only', default='', help='faults whose names contain this')
    parser.add_argument('--seed', type=int, default=0, help='of the random kills')
    given = parser.parse_args(arguments)
    ray_rounds._SECONDS_WITHOUT_NODES = 20.0
    with tempfile.TemporaryDirectory() as folder, contexts.runtime(None) as runtime:
        expected, _ = train(runtime, Data(pathlib.Path(folder), 0.0), lambda t: None)
    with scene(2) as made:
        if given.kills:
            num_wrong = _random_kills(given.kills, given.seed, made, expected)
        else:
            num_wrong = _table(given.only, made, expected)
    time.sleep(2)
    left = processes('ray', 'raylet', 'gcs_server')
    left = [each for each in left if each != os.getpid()]
    print(f'{num_wrong} wrong, {len(left)} processes left', flush=True)
    return int(bool(num_wrong or left))


def _table(only: str, made: Scene, expected: Any) -> int:
    num_wrong = 0
    print('| lost | when | seconds lost | counted | bits |\n|---|---|---|---|---|')
    for fault in FAULTS:
        if only in fault.what:
            row = play(fault, made, expected)
            wrong = row.pop('wrong')
            print('| ' + ' | '.join(row.values()) + ' |' + f' WRONG: {wrong}' * bool(wrong))
            sys.stdout.flush()
            num_wrong += bool(wrong)
    return num_wrong


def _random_kills(number: int, seed: int, made: Scene, expected: Any) -> int:
    """Runs with kills at random moments of random processes; the number of wrong ones."""
    generator = random.Random(seed)
    num_wrong = killed = 0

    def one(scene):
        nonlocal killed
        found = processes('ray::dpfl', 'ray::IDLE')
        if found:
            killed += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(generator.choice(found), signal.SIGKILL)

    for index in range(number):
        fault = Fault(f'kill {index}', '', one, generator.uniform(0.0, 1.0))
        row = play(fault, made, expected)
        print(f'{index + 1}: {row}', flush=True)
        num_wrong += bool(row['wrong'])
    print(f'{number} runs, {killed} kills: {num_wrong} differ or hang')
    return num_wrong


if __name__ == '__main__':
    sys.exit(main())
