"""Plays faults of Ray in rounds of training, and compares the results bit for bit.

  python scripts/ray_faults.py                # the table of faults; some minutes
  python scripts/ray_faults.py --kills=50     # runs in which random processes are killed

The faults are played on one machine, on a cluster of several nodes, each with a working folder of
its own. Updates are added on Ray, as those of large models are. Prints a row for each fault: what
was lost, when, the seconds that it took, what the runtime counted or said, and whether all bits are
those of a run without Ray. Exits with status 1 if bits differ, if a fault has lost nothing, if a
run ends otherwise than it should, or if a process is left.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np  # noqa: E402
import tree  # noqa: E402

from dpfl.runtime import contexts, ray_rounds  # noqa: E402
from dpfl.simulation import data_digest, program, run_directory  # noqa: E402
from tests import runs  # noqa: E402
from tests.simulation import toy_experiment  # noqa: E402

_SHARDS, _CLIENTS, _ROUNDS, _NODES = 3, 6, 3, 2
# In this round of a run, counted from 0, the fault is played.
_ROUND = 1
# Limits of the runtime while faults are played, in seconds.
_WITHOUT_NODES, _WITHOUT_HEAD, _TIMEOUT = 20.0, 15.0, 300.0
_MARK = 'RAY_FAULTS'
# Runs with random kills that one Ray has.
_RUNS_OF_A_RAY = 10
_STARTS = 4
_LOST, _ENDED = 'an object of the store was lost', 'a process ended'
_AGAIN = 'Ray: 3 times in one round, for one shard: '


class Data:
    """The data of clients. In the round of the fault, processes wait at a gate for the fault.

    Args:
      folder: where processes and the script leave files for each other: `gate` says which processes
        wait, `waiting/PID` names the node of a process that does, `go` opens the gate, and the
        first process that finds an `order` follows it.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def __call__(self, turn: tuple[int, int]) -> Any:
        t, client = turn
        gate = self._folder / 'gate'
        if t == _ROUND and gate.exists():
            phase, _, alone = gate.read_text().partition(' ')
            if phase == self._phase(turn):
                self._wait(bool(alone))
            if (self._folder / 'always').exists():
                raise OSError('a disk does not answer')
        if t > _ROUND and (self._folder / 'nodes').exists():
            time.sleep(0.3)
            (self._folder / 'nodes' / _node()).touch()
        return toy_experiment.rows(client)

    def _phase(self, turn: tuple[int, int]) -> str:
        """Whether a client is read for the first time, to be described, or to be trained on."""
        try:
            (self._folder / f'{turn}').touch(exist_ok=False)
        except FileExistsError:
            return 'trains'
        return 'reads'

    def _wait(self, is_alone: bool) -> None:
        place = self._folder / 'waiting' / str(os.getpid())
        if place.exists():
            return
        if is_alone:
            try:
                place.with_name('alone.new').touch(exist_ok=False)
            except FileExistsError:
                return
        place.with_suffix('.new').write_text(_node())
        place.with_suffix('.new').rename(place)
        while not (self._folder / 'go').exists():
            time.sleep(0.02)
        with contextlib.suppress(FileNotFoundError):
            order = self._folder / 'order'
            what = order.read_text()
            order.unlink()
            if what == 'end':
                os.kill(os.getpid(), signal.SIGSEGV)
            if what == 'memory':
                raise MemoryError
            raise OSError('a disk does not answer')


def _node() -> str:
    import ray

    return ray.get_runtime_context().get_node_id()


@dataclasses.dataclass
class Scene:
    """Where a fault is played.

    Attributes:
      cluster: of `ray.cluster_utils`.
      folder: as in `Data`, with a working folder for each node.
      nodes: of the cluster, without the head, which computes nothing.
      updates: references to the first result of each task that computes an update.
    """

    cluster: Any
    folder: pathlib.Path
    nodes: list[Any] = dataclasses.field(default_factory=list)
    updates: list[Any] = dataclasses.field(default_factory=list)

    @property
    def address(self) -> str:
        """The address to connect to."""
        import ray

        return 'auto' if ray.is_initialized() else self.cluster.address

    def add_node(self) -> None:
        """Adds a node with one processor core."""
        place = self.folder / f'node{time.monotonic_ns()}'
        place.mkdir()
        with contextlib.chdir(place):
            size = {'num_cpus': 1, 'object_store_memory': 100 << 20}
            self.nodes.append(started(lambda: self.cluster.add_node(**size)))

    def remove_node(self, node_id: str | None = None) -> None:
        """Removes a node; without an id, any."""
        node = next(one for one in self.nodes if node_id in (None, one.node_id))
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)

    def repair(self) -> None:
        """Adds or removes nodes until there are as many as in the beginning."""
        while len(self.nodes) < _NODES:
            self.add_node()
        while len(self.nodes) > _NODES:
            self.remove_node()

    def waiting(self) -> dict[int, str]:
        """Ids of the processes that wait at the gate, and of their nodes."""
        paths = [path for path in (self.folder / 'waiting').iterdir() if not path.suffix]
        return {int(path.name): path.read_text() for path in paths}

    def prepare(self, gate: str) -> None:
        """Removes the files of an earlier run, and closes the gate."""
        for path in self.folder.iterdir():
            if path.name.startswith('('):
                path.unlink()
        for name in ('gate', 'go', 'order', 'always'):
            (self.folder / name).unlink(missing_ok=True)
        for name in ('waiting', 'nodes'):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        self.updates.clear()
        if gate:
            (self.folder / 'gate').write_text(gate)

    def wait_for_update(self) -> None:
        """Waits until an update of the round is done, and all others but those at the gate."""
        import ray

        ray.wait(self.updates[-_SHARDS:], timeout=_TIMEOUT)
        time.sleep(1.0)


@contextlib.contextmanager
def noting_updates(scene: Scene) -> Iterator[None]:
    """Notes the tasks that compute updates."""
    submit = ray_rounds.Rounds.submit

    def noted(rounds, name, *arguments, **named):
        references = submit(rounds, name, *arguments, **named)
        if name == 'update_of':
            scene.updates.append(references[0])
        return references

    ray_rounds.Rounds.submit = noted
    try:
        yield
    finally:
        ray_rounds.Rounds.submit = submit


def processes() -> list[int]:
    """Ids of the processes that this script has started, directly or not."""
    mark, found = f'{_MARK}={os.getpid()}'.encode(), []
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            is_alive = path.joinpath('stat').read_text().rsplit(')', 1)[1].split()[0] != 'Z'
            if is_alive and mark in path.joinpath('environ').read_bytes().split(b'\0'):
                found.append(int(path.name))
    return [process for process in found if process != os.getpid()]


def started(make: Callable[[], Any]) -> Any:
    """What `make` returns, which starts a node of Ray.

    Ray gives it 30 seconds. On a busy machine another attempt may succeed.
    """
    for _ in range(_STARTS):
        before = processes()
        try:
            return make()
        except Exception as error:
            if 'timed out during startup' not in str(error):
                raise
        for process in set(processes()) - set(before):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    return make()


def left(seconds: float = 30.0) -> list[int]:
    """Processes that this script has started and that do not end within some time."""
    deadline = time.monotonic() + seconds
    while (found := processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def workers(*titles: str) -> list[int]:
    """Ids of the processes of Ray that have one of these titles."""
    found = []
    for process in processes():
        with contextlib.suppress(OSError):
            title = pathlib.Path(f'/proc/{process}/cmdline').read_bytes().decode(errors='replace')
            if title.startswith(titles):
                found.append(process)
    return found


def _kill(number: int, most: int = 99) -> Callable[[Scene], None]:
    """A fault: a signal to processes that wait at the gate."""

    def play(scene):
        for process in [*scene.waiting()][:most]:
            os.kill(process, number)

    return play


def _order(what: str, name: str = 'order') -> Callable[[Scene], None]:
    """A fault that a process plays itself."""
    return lambda scene: (scene.folder / name).write_text(what)


def _end_raylet(scene):
    node_id = next(iter(scene.waiting().values()))
    node = next(one for one in scene.nodes if one.node_id == node_id)
    scene.nodes.remove(node)
    node.kill_raylet(check_alive=False)


def _remove(scene):
    scene.remove_node(next(iter(scene.waiting().values())))


def _remove_done(scene):
    scene.wait_for_update()
    waiting = scene.waiting().values()
    scene.remove_node(next(node.node_id for node in scene.nodes if node.node_id not in waiting))


def _remove_and_add(scene):
    _remove(scene)
    scene.add_node()


def _remove_all(scene):
    while scene.nodes:
        scene.remove_node()


def _remove_all_for_a_while(scene):
    _remove_all(scene)
    time.sleep(8)
    scene.add_node()


def _kill_head(name: str) -> Callable[[Scene], None]:
    def play(scene):
        os.kill(scene.cluster.head_node.all_processes[name][0].process.pid, signal.SIGKILL)

    return play


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
      what: is lost.
      when: processes wait at the gate: when it 'reads' a cohort to describe it, or 'trains'.
      play: plays it while they wait.
      is_alone: whether a single process waits, and the others go on.
      counts: what the runtime must count; one of these.
      error: how the message of the error begins that ends the run; '' if it goes on.
      uses_node: whether a node that was added must compute in the next round.
      ends_cluster: whether it needs a cluster of its own.
      timeout: seconds of `ray_runtime`.
    """

    what: str
    when: str
    play: Callable[[Scene], Any]
    is_alone: bool = False
    counts: tuple[str, ...] = ()
    error: str = ''
    uses_node: bool = False
    ends_cluster: bool = False
    timeout: float = _TIMEOUT


_NODE = (_ENDED, 'a node ended', _LOST)
_DISK = 'a task failed: OSError: a disk does not answer'
FAULTS = (
    Fault('a process', 'reads', _kill(signal.SIGKILL, 1), counts=(_ENDED,)),
    Fault('a process', 'trains', _kill(signal.SIGKILL, 1), counts=(_ENDED,)),
    Fault('all processes', 'reads', _kill(signal.SIGKILL), counts=(_ENDED,)),
    Fault('all processes', 'trains', _kill(signal.SIGKILL), counts=(_ENDED,)),
    Fault('a process, by SIGSEGV', 'trains', _order('end'), counts=(_ENDED,)),
    Fault('memory of a task', 'trains', _order('memory'), counts=('a task was out of memory',)),
    Fault('a read', 'reads', _order('fail'), counts=(_DISK,)),
    Fault('a read', 'trains', _order('fail'), counts=(_DISK,)),
    Fault('a raylet', 'trains', _end_raylet, counts=_NODE),
    Fault('a node', 'reads', _remove, counts=_NODE),
    Fault('a node', 'trains', _remove, counts=_NODE),
    Fault('a node, with the updates in its store', 'trains', _remove_done, True, (_LOST,)),
    Fault('a node; another is added', 'trains', _remove_and_add, counts=_NODE),
    Fault('nothing; a node is added', 'trains', Scene.add_node, uses_node=True),
    Fault('all nodes for 8 seconds', 'trains', _remove_all_for_a_while, counts=_NODE),
    Fault('each read of a client', 'trains', _order('', 'always'), error=_AGAIN + _DISK),
    Fault(
        'the answers of processes (SIGSTOP)',
        'trains',
        _kill(signal.SIGSTOP),
        error='Ray: no shard has arrived for 15 seconds (ray_timeout)',
        timeout=15.0,
    ),
    Fault(
        'all nodes, for good',
        'trains',
        _remove_all,
        error=f'Ray: the cluster has had no node with a processor core for {_WITHOUT_NODES:g}',
    ),
    Fault(
        "the head's GCS",
        'trains',
        _kill_head('gcs_server'),
        error=f'Ray: the head of the cluster has not answered for {_WITHOUT_HEAD:g} seconds',
        ends_cluster=True,
    ),
    Fault(
        "the raylet of the driver's machine",
        'trains',
        _kill_head('raylet'),
        error=_AGAIN + 'the raylet of the machine of this process ended',
        ends_cluster=True,
    ),
)


@functools.cache
def _process(rounds: int) -> Any:
    return toy_experiment.experiment(rounds=rounds).process


def train(
    runtime: contexts.Runtime,
    data: Callable[[Any], Any],
    before_round: Callable[[int], None] = lambda t: None,
    rounds: int = _ROUNDS,
) -> Any:
    """The bits of a run, and the seconds of its rounds."""
    process = _process(rounds)
    turns = [[(t, client) for client in range(t, t + _CLIENTS)] for t in range(rounds)]
    seen: list[Any] = []
    cohorts = runtime.sharded_cohorts(turns, data, _SHARDS, seen.append, data_digest.of_client)
    state, outputs_, seconds = process.initialize(), [], []
    with contextlib.closing(cohorts):
        for t in range(rounds):
            before_round(t)
            started = time.monotonic()
            output = process.next(state, next(cohorts))
            seconds.append(time.monotonic() - started)
            state = output.state
            outputs_.append(output)
    bits = [np.asarray(value).tobytes() for value in tree.flatten(outputs_)]
    return (bits, seen), seconds


@contextlib.contextmanager
def cluster(num_nodes: int) -> Iterator[Scene]:
    """A cluster on this machine."""
    import ray
    from ray import cluster_utils

    folder = pathlib.Path(tempfile.mkdtemp(prefix='faults-'))
    head = {'num_cpus': 0, 'include_dashboard': False, 'object_store_memory': 100 << 20}
    # Without hooks of its own at the end: it installs them in the main thread alone.
    arguments = {'head_node_args': head, 'shutdown_at_exit': False}
    made = started(lambda: cluster_utils.Cluster(initialize_head=True, **arguments))
    try:
        scene = Scene(made, folder)
        for _ in range(num_nodes):
            scene.add_node()
        yield scene
    finally:
        ray.shutdown()
        made.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def play(fault: Fault, scene: Scene, expected: Any) -> list[str]:
    """Plays a fault; returns its row of the table, and last what is wrong or ''."""
    scene.prepare(fault.when + ' alone' * fault.is_alone)
    played: list[float] = []
    failed: list[Exception] = []

    def when_they_wait():
        deadline = time.monotonic() + _TIMEOUT
        while not scene.waiting() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # For the others.
        played.append(time.monotonic())
        try:
            fault.play(scene)
        except Exception as error:
            failed.append(error)
        if not fault.ends_cluster:  # Else the run would be over before anybody notices.
            (scene.folder / 'go').touch()

    player = threading.Thread(target=when_they_wait)
    result, seconds, said, done = None, 0.0, '', {}

    def before_round(t):
        done[t] = time.monotonic()

    with (
        noting_updates(scene),
        contexts.ray_runtime(scene.address, timeout=fault.timeout) as runtime,
    ):
        player.start()
        try:
            result, _ = train(runtime, Data(scene.folder), before_round)
        except contexts.RayError as error:
            said = str(error)
        ended = time.monotonic() if said else done[_ROUND + 1]
        player.join()
        seconds = ended - played[0]
        lost = dict(runtime.losses)
    new = scene.nodes[-1].node_id if scene.nodes else ''
    used = {path.name for path in (scene.folder / 'nodes').iterdir()}
    if not fault.ends_cluster:
        scene.repair()
    wrong = ''
    if failed:
        wrong = f'was not played: {failed[0]!r}'
    elif fault.error:
        wrong = '' if said.startswith(fault.error) else f'ended with {said!r}'
    elif said or result != expected:
        wrong = said or 'bits differ'
    elif fault.counts and not set(fault.counts) & set(lost):
        wrong = 'nothing was lost'
    elif fault.uses_node and new not in used:
        wrong = 'the node was not used'
    counted = ', '.join(f'{what}: {count}' for what, count in lost.items()) or '-'
    bits = 'ended' if said else 'equal' if result == expected else 'DIFFER'
    return [fault.what, fault.when, f'{seconds:.1f}', said or counted, bits, wrong]


def journey(scene: Scene) -> list[str]:
    """A run on three nodes, one of which is removed in round 5, and one added in round 8."""
    with contexts.runtime(None) as runtime:
        expected, _ = train(runtime, rows_of_turn, rounds=10)
    scene.add_node()
    scene.prepare('')

    def before_round(t):
        if t == 4:
            threading.Timer(0.05, scene.remove_node).start()
        if t == 7:
            scene.add_node()

    with contexts.ray_runtime(scene.address, timeout=_TIMEOUT) as runtime:
        result, seconds = train(runtime, slow_rows_of_turn, before_round, 10)
        lost = dict(runtime.losses)
    scene.repair()
    what = 'one of three nodes in round 5; one is added in round 8'
    counted = ', '.join(f'{what}: {count}' for what, count in lost.items()) or '-'
    wrong = 'bits differ' if result != expected else '' if lost else 'nothing was lost'
    took = f'{seconds[4] - min(seconds):.1f}'
    return [what, 'trains', took, counted, 'DIFFER' if result != expected else 'equal', wrong]


def rows_of_turn(turn: tuple[int, int]) -> Any:
    """The data of a client."""
    return toy_experiment.rows(turn[1])


def slow_rows_of_turn(turn: tuple[int, int]) -> Any:
    """The same, a while later."""
    time.sleep(0.3)
    return rows_of_turn(turn)


def slow_rows(client: int) -> Any:
    """As `toy_experiment.rows`, a while later."""
    time.sleep(0.1)
    return toy_experiment.rows(client)


class Run:
    """A process that begins a run in a directory, or continues it.

    Args:
      path: of the run.
      address: as of `ray_runtime`; None for a run without Ray.
    """

    def __init__(self, path: pathlib.Path, address: str | None):
        self._path = path
        self._log = path.with_suffix('.log')
        command = [sys.executable, __file__, f'--run={path}']
        environment = {**os.environ}
        if address is not None:
            command.append(f'--address={address}')
        if address == 'local':
            environment.pop('RAY_AUTH_MODE', None)
        with open(self._log, 'a') as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def wait_for_round(self, number: int) -> None:
        """Waits until a round is in progress."""
        ledger = self._path / 'ledger.jsonl'
        while not ledger.exists() or ledger.read_bytes().count(b'"event": "began"') < number:
            if self.process.poll() is not None:
                raise RuntimeError(f'the run has ended: {self._log.read_text()[-1000:]}')
            time.sleep(0.02)

    def end(self, reference: pathlib.Path) -> str:
        """Waits for the end; what is wrong with the run, or ''."""
        if self.process.wait(_TIMEOUT):
            return self._log.read_text()[-1000:]
        names = ('model.npz', 'participation.npz')
        files = [n for n in names if (self._path / n).read_bytes() != (reference / n).read_bytes()]
        differs = runs.released(self._path) != runs.released(reference)
        return ', '.join([*files, *['ledger.jsonl'] * differs])


def run(path: pathlib.Path, address: str | None) -> None:
    """Begins a run, or continues it."""
    experiment = toy_experiment.experiment(
        rounds=8, checkpoint_every=3, client_data=slow_rows, ray=address, ray_timeout=_TIMEOUT
    )
    program.run_training(experiment, run_directory.RunDirectory(path, resume=True))


def killed_driver(number: signal.Signals, status: int, folder: pathlib.Path) -> list[str]:
    """The process that runs a command is killed, and the run resumed."""
    path = folder / number.name
    started = Run(path, 'local')
    started.wait_for_round(3)
    started.process.send_signal(number)
    killed = time.monotonic()
    ended = started.process.wait(_TIMEOUT)
    remaining = left()
    seconds = time.monotonic() - killed
    wrong = Run(path, 'local').end(folder / 'reference')
    bits = 'DIFFER' if wrong else 'equal'
    if ended != status:
        wrong = f'status {ended}'
    if remaining:
        wrong = f'processes {remaining} are left'
    said = f'status {ended}, no process after {seconds:.1f} s'
    return [
        f'the driver ({number.name}), then resumed',
        'trains',
        f'{seconds:.1f}',
        said,
        bits,
        wrong,
    ]


def _kill_one(generator: random.Random) -> int:
    """Kills a process of Ray at random, one with a task if there is any; returns its id, or 0."""
    for title in ('ray::dpfl', 'ray::IDLE'):
        if found := workers(title):
            with contextlib.suppress(ProcessLookupError):
                process = generator.choice(found)
                os.kill(process, signal.SIGKILL)
                return process
    return 0


def two_runs(scene: Scene, folder: pathlib.Path) -> list[str]:
    """Two runs on one cluster at once, and a process of Ray is killed."""
    pair = [Run(folder / name, scene.cluster.address) for name in ('one', 'other')]
    for one in pair:
        one.wait_for_round(2)
    killed = _kill_one(random.Random(0))
    wrong = ' '.join(one.end(folder / 'reference') for one in pair).strip()
    what = 'a process, of two runs at once on one cluster'
    return [what, 'trains', '-', f'process {killed} killed', 'DIFFER' if wrong else 'equal', wrong]


def table(only: str) -> list[list[str]]:
    """Plays the faults, and prints their rows."""
    with contexts.runtime(None) as runtime:
        expected, _ = train(runtime, rows_of_turn)
    rows: list[list[str]] = []

    def add(what, function, *arguments):
        if only in what:
            rows.append(function(*arguments))
            print(_line(rows[-1]), flush=True)

    print('| lost | when | seconds | counted or said | bits |\n|---|---|---|---|---|', flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        reference = Run(folder / 'reference', None)
        # One connection, so that the processes of Ray start once.
        with cluster(_NODES) as scene, contexts.ray_runtime(scene.address):
            for fault in FAULTS:
                if not fault.ends_cluster:
                    add(fault.what, play, fault, scene, expected)
            add('one of three nodes', journey, scene)
            if reference.process.wait(_TIMEOUT):
                raise RuntimeError((folder / 'reference.log').read_text())
            add('two runs', two_runs, scene, folder)
        for number, status in (
            (signal.SIGKILL, -signal.SIGKILL),
            (signal.SIGTERM, 128 + signal.SIGTERM),
            (signal.SIGINT, -signal.SIGINT),
        ):
            add('the driver', killed_driver, number, status, folder)
    for fault in FAULTS:
        if fault.ends_cluster and only in fault.what:
            with cluster(_NODES) as scene:
                add(fault.what, play, fault, scene, expected)
    return rows


def _line(row: list[str]) -> str:
    *cells, wrong = row
    return '| ' + ' | '.join(cells) + ' |' + f' WRONG: {wrong}' * bool(wrong)


def random_kills(number: int, seed: int) -> int:
    """Runs in which random processes of Ray are killed at random moments; how many are wrong."""
    generator = random.Random(seed)
    with contexts.runtime(None) as runtime:
        expected, _ = train(runtime, rows_of_turn)
    counts: collections.Counter[str] = collections.Counter()
    while counts['runs'] < number:
        try:
            with contexts.ray_runtime('local', timeout=_TIMEOUT) as runtime:
                seconds = train(runtime, slow_rows_of_turn)[1][-1]  # Of a round without a start.
                for _ in range(min(_RUNS_OF_A_RAY, number - counts['runs'])):
                    counts['runs'] += 1
                    before = dict(runtime.losses)
                    with _killing(generator, _ROUNDS * seconds) as killed:
                        result, _ = train(runtime, slow_rows_of_turn)
                    lost = sum(runtime.losses.values()) - sum(before.values())
                    counts.update(kills=len(killed), losses=lost)
                    counts['differ'] += result != expected
                    moments = ', '.join(f'{moment:.1f} s' for moment in killed) or '-'
                    bits = 'equal' if result == expected else 'DIFFER'
                    print(
                        f'{counts["runs"]}: kills at {moments}; {lost} losses; {bits}', flush=True
                    )
        except contexts.RayError as error:
            counts['end'] += 1
            print(f'WRONG: {error}', flush=True)
            number = counts['runs']
        if remaining := left():
            counts['leave a process'] += 1
            print(f'WRONG: processes {remaining} are left', flush=True)
    print(
        f'{counts["runs"]} runs, {counts["kills"]} kills, {counts["losses"]} losses: '
        f'{counts["differ"]} differ, {counts["end"]} end or hang, '
        f'{counts["leave a process"]} leave a process'
    )
    wrong = counts['differ'] + counts['end'] + counts['leave a process']
    return wrong or not counts['losses']


@contextlib.contextmanager
def _killing(generator: random.Random, seconds: float) -> Iterator[list[float]]:
    """Kills one or two processes of Ray within some seconds; yields the moments."""
    moments = sorted(generator.uniform(0, seconds) for _ in range(generator.randint(1, 2)))
    ended, killed = threading.Event(), []

    def kill():
        started = time.monotonic()
        for moment in moments:
            ended.wait(max(0.0, started + moment - time.monotonic()))
            if not ended.is_set() and _kill_one(generator):
                killed.append(moment)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        ended.set()
        killer.join()


def main() -> int:
    """Plays the faults; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--kills', type=int, default=0, help='runs with random kills instead')
    parser.add_argument('--only', default='', help='faults whose names contain this')
    parser.add_argument('--seed', type=int, default=0, help='of the random kills')
    parser.add_argument('--run', type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument('--address', help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run is not None:
        run(given.run, given.address)
        return 0
    os.environ |= {_MARK: str(os.getpid()), 'RAY_USAGE_STATS_ENABLED': '0'}
    os.environ['RAY_worker_niceness'] = '0'
    ray_rounds._MOST_BYTES, ray_rounds._PART_BYTES = 0, 1
    ray_rounds._SECONDS_WITHOUT_NODES = _WITHOUT_NODES
    ray_rounds._SECONDS_WITHOUT_HEAD = _WITHOUT_HEAD
    # Results of any size go to the store, as those of large models do.
    os.environ['RAY_max_direct_call_object_size'] = '0'
    if given.kills:
        return int(bool(random_kills(given.kills, given.seed)))
    os.environ |= {'RAY_AUTH_MODE': 'disabled', 'RAY_health_check_period_ms': '500'}
    rows = table(given.only)
    num_wrong, remaining = sum(bool(row[-1]) for row in rows), left()
    print(f'{len(rows)} faults, {num_wrong} wrong, {len(remaining)} processes left')
    return int(bool(num_wrong or remaining))


if __name__ == '__main__':
    sys.exit(main())
