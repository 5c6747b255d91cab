"""Plays faults of Ray in rounds of training, and compares the results bit for bit.

  python scripts/ray_faults.py                # the table of faults of rounds; some minutes
  python scripts/ray_faults.py --ends         # runs that are ended, with a Ray of their own
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
import functools
import os
import pathlib
import random
import re
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

from dpfl.runtime import contexts, ray_rounds  # noqa: E402
from dpfl.simulation import program, run_directory  # noqa: E402
from scripts.fault_runs import Outcome  # noqa: E402
from scripts.ray_scene import NODES, TIMEOUT, Data, Fault, Gate, Scene  # noqa: E402
from tests import runs  # noqa: E402
from tests.binaries import Process  # noqa: E402
from tests.runtime import ray_nodes, sharded_rounds  # noqa: E402
from tests.simulation import toy_experiment  # noqa: E402

_SHARDS, _CLIENTS = 3, 6
_CLIENTS_OF_A_SHARD = _CLIENTS // _SHARDS
# When a driver is killed, agents of its Ray end within this time. They first try to reach their
# head, which ended with the driver, and no process of dpfl is left that could end them.
_AGENTS_LEAVE = 240.0
# Limits of the runtime while faults are played, in seconds.
_WITHOUT_NODES, _WITHOUT_HEAD = 12.0, 6.0
# Rounds of a run with random kills, and the number of such runs on one Ray.
_ROUNDS_WITH_KILLS, _RUNS_OF_A_RAY = 3, 10
_LOST, _ENDED = 'an object of the store was lost', 'a process ended'
_NODE = f'{_ENDED}|a node ended|{_LOST}'
_DISK_ERROR = OSError('a disk does not answer')
_DISK = f'a task failed: OSError: {_DISK_ERROR}'
_AGAIN = 'Ray: 3 times in one round, for one shard: '
_NO_NODES = f'Ray: the cluster has had no node with a processor core for {_WITHOUT_NODES:g}'
_NO_HEAD = f'Ray: the head of the cluster has not answered for {_WITHOUT_HEAD:g} seconds'


def _kill(number: int) -> Callable[[Scene], None]:
    """A signal to the processes that wait."""
    return lambda scene: ray_nodes.kill(*scene.waiting, number=number)


def _order(*orders: Any) -> Callable[[Scene], None]:
    """A fault that a process plays itself."""
    return lambda scene: scene.orders.extend(orders)


def _add(scene: Scene) -> None:
    scene.nodes.add()


def _await_new_node(scene: Scene) -> None:
    """Lets nobody train until the node that was added last does."""
    scene.wait_until(lambda: scene.nodes.nodes[-1].node_id in scene.waiting.values())


def _end_raylet(scene: Scene) -> None:
    scene.nodes.take(scene.node).kill_raylet(check_alive=False)


def _remove(scene: Scene) -> None:
    scene.nodes.remove(scene.node)


def _remove_done(scene: Scene) -> None:
    """Removes the node on which all updates are computed but that of the process that waits."""
    rest = _CLIENTS - (_CLIENTS_OF_A_SHARD - 1)
    scene.wait_until(lambda: len(scene.trained) == rest)
    scene.wait_until(lambda: set(ray_nodes.processes('ray::dpfl')) <= scene.waiting.keys())
    time.sleep(1.0)
    scene.nodes.remove(next(one.node_id for one in scene.nodes.nodes if one.node_id != scene.node))


def _remove_all(scene: Scene) -> None:
    scene.nodes.resize(0)


def _in_turn(*plays: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Several plays, one after the other."""

    def play(scene):
        for each in plays:
            each(scene)

    return play


def _kill_gcs(scene: Scene) -> None:
    head = scene.nodes.cluster.head_node
    ray_nodes.kill(head.all_processes['gcs_server'][0].process.pid)


FAULTS = (
    Fault('all processes', 'reads', {1: _kill(signal.SIGKILL)}, says=_ENDED),
    Fault('all processes', 'trains', {1: _kill(signal.SIGKILL)}, says=_ENDED),
    Fault('a process, by SIGSEGV', 'trains', {1: _order(signal.SIGSEGV)}, says=_ENDED),
    Fault(
        'memory of a task', 'trains', {1: _order(MemoryError())}, says='a task was out of memory'
    ),
    Fault('a read', 'reads', {1: _order(_DISK_ERROR)}, says=_DISK),
    Fault('a read', 'trains', {1: _order(_DISK_ERROR)}, says=_DISK),
    Fault('a raylet', 'trains', {1: _end_raylet}, says=_NODE),
    Fault('a node', 'reads', {1: _remove}, says=_NODE),
    Fault(
        'a node, with the updates in its store',
        'trains',
        {1: _remove_done},
        is_alone=True,
        says=_LOST,
    ),
    Fault('a node; another is added', 'trains', {1: _in_turn(_remove, _add)}, says=_NODE),
    Fault(
        'one of three nodes in round 5; one is added in round 8',
        'trains',
        {4: _remove, 7: _add, 8: _await_new_node},
        says=_NODE,
        nodes=3,
    ),
    Fault(
        'all nodes for 2 seconds',
        'trains',
        {1: _in_turn(_remove_all, lambda scene: time.sleep(2), _add)},
        says=_NODE,
    ),
    Fault('each read', 'trains', {1: _order(*[_DISK_ERROR] * 99)}, says=_AGAIN + _DISK),
    Fault(
        'the answers of processes (SIGSTOP)',
        'trains',
        {1: _kill(signal.SIGSTOP)},
        says='Ray: no shard has arrived for 15 seconds',
        timeout=15.0,
    ),
    Fault('all nodes, for good', 'trains', {1: _remove_all}, says=_NO_NODES),
    Fault(
        "the head's GCS",
        'trains',
        {1: _kill_gcs},
        says=_NO_HEAD,
        ends_cluster=True,
    ),
)


def _is_end(said: str) -> bool:
    """Whether a message has ended the run."""
    return said.startswith('Ray: ')


def _row(outcome: Outcome) -> str:
    """A row of the table."""
    ended = 'ended' if _is_end(outcome.said) else 'equal'
    bits = f'WRONG: {outcome.worse}' if outcome.worse else ended
    cells = [outcome.fault, outcome.place, f'{outcome.seconds:.1f}', outcome.said, bits]
    return f'| {" | ".join(cells)} |'


def train(
    runtime: contexts.Runtime,
    data: Callable[[Any], Any],
    rounds: int,
    ends: list[float] | None = None,
) -> Any:
    """The bits of a run; `ends` gets the moments at which its rounds end."""
    turns = [[(t, client) for client in range(t, t + _CLIENTS)] for t in range(rounds)]
    return sharded_rounds.train(runtime, data, turns, _SHARDS, ends)


@functools.cache
def _expected(rounds: int) -> Any:
    with contexts.runtime(None) as runtime:
        return train(runtime, lambda turn: toy_experiment.rows(turn[1]), rounds)


def play(fault: Fault, nodes: ray_nodes.Nodes, gate: Gate) -> Outcome:
    """Plays a fault."""
    import ray

    rounds = max(fault.plays) + 2
    expected = _expected(rounds)
    nodes.resize(fault.nodes)
    scene = gate.scene = Scene(fault, nodes)
    address = 'auto' if ray.is_initialized() else nodes.cluster.address
    result, said, ends = None, '', []
    with contexts.ray_runtime(address, timeout=fault.timeout) as runtime:
        try:
            result = train(runtime, Data(gate.address), rounds, ends)
        except contexts.RayError as error:
            said = str(error)
            ends.append(time.monotonic())
        losses = dict(runtime.losses)
    gate.scene = None
    said = said or ', '.join(f'{what}: {count}' for what, count in losses.items()) or '-'
    wrong = ''
    if scene.failed or not scene.played:
        wrong = f'was not played: {scene.failed!r}'
    elif not re.search(fault.says, said) or _is_end(said) != _is_end(fault.says):
        wrong = 'nothing was lost' if said == '-' else 'something else happened'
    elif result != expected and not _is_end(said):
        wrong = 'bits differ'
    end = ends[min(*fault.plays, len(ends) - 1)]
    return Outcome(fault.what, fault.when, said, wrong, end - scene.played)


def _held(path: pathlib.Path) -> pathlib.Path:
    """A file beside a run's directory. While it is there, reading a client does not end."""
    return path.with_suffix('.held')


def _slow_rows(held: pathlib.Path, client: int) -> Any:
    time.sleep(0.1)
    while held.exists():
        time.sleep(0.1)
    return toy_experiment.rows(client)


def run(path: pathlib.Path, address: str | None) -> None:
    """Begins a run, or continues it."""
    experiment = toy_experiment.experiment(
        rounds=8,
        checkpoint_every=3,
        client_data=functools.partial(_slow_rows, _held(path)),
        **({} if address is None else {'ray': address, 'ray_timeout': TIMEOUT}),
    )
    program.run_training(experiment, run_directory.RunDirectory(path, resume=True))


def _begin(path: pathlib.Path, address: str | None) -> Process:
    """A process of `run`."""
    command = [sys.executable, __file__, f'--run={path}']
    return Process(path, command + [f'--address={address}'] * (address is not None))


def _wrong(ended: Process) -> str:
    """What is wrong with a run, or '', when its process has ended."""
    status, lines = ended.end()
    if status:
        return ' / '.join(lines)[-1000:]
    names = runs.differences(ended.path, ended.path.with_name('reference'))
    # The report counts what was lost.
    return ', '.join(name for name in names if name != 'privacy_report.json')


def ended_run(
    what: str,
    end: Callable[[subprocess.Popen], None],
    status: int,
    folder: pathlib.Path,
    resume_at: str | None,
) -> Outcome:
    """A run with a Ray of its own ends with some status, and is resumed, on Ray or without."""
    begun = _begin(folder / what, 'local')
    begun.wait_for_rounds(3)
    held = _held(begun.path)
    held.touch()  # The run cannot reach its last round before it has noticed.
    end(begun.process)
    started = time.monotonic()
    (ended, lines), remaining = begun.end(), ray_nodes.remaining(_AGENTS_LEAVE)
    seconds = time.monotonic() - started
    held.unlink()
    wrong = _wrong(_begin(begun.path, resume_at))
    wrong += ' Ray tells of the signal' * any(' received at ' in line for line in lines)
    if ended != status or remaining:
        wrong += f' status {ended} ({lines[-1:]}), processes {remaining} are left'
    said = f'status {ended}, no process after {seconds:.1f} s; equal when resumed'
    return Outcome(what, 'trains', said, wrong, seconds)


def _kill_executable(name: str) -> Callable[[subprocess.Popen], None]:
    def kill(process):
        from ray._private import services

        del process
        ray_nodes.kill(*ray_nodes.processes(getattr(services, name)))

    return kill


# What ends, how, and the exit status of the run.
ENDS: tuple[tuple[str, Callable[[subprocess.Popen], None], int], ...] = (
    ('the driver (SIGKILL)', lambda process: process.kill(), -signal.SIGKILL),
    ('the driver (SIGTERM)', lambda process: process.terminate(), 128 + signal.SIGTERM),
    ('the driver (SIGINT)', lambda process: process.send_signal(signal.SIGINT), -signal.SIGINT),
    ('the GCS of --ray=local', _kill_executable('GCS_SERVER_EXECUTABLE'), 1),
    # Ray itself ends the driver then, without a message.
    ('the raylet of --ray=local', _kill_executable('RAYLET_EXECUTABLE'), 1),
)


def two_runs(nodes: ray_nodes.Nodes, folder: pathlib.Path) -> Outcome:
    """Two runs on one cluster at once, and a process of Ray is killed."""
    nodes.resize(NODES)
    pair = [_begin(folder / name, nodes.cluster.address) for name in 'ab']
    for each in pair:
        each.wait_for_rounds(2)
    killed = time.monotonic()
    said = f'process {_kill_one(random.Random(0))} killed'
    wrong = ' '.join(map(_wrong, pair)).strip()
    what = 'a process, of two runs at once on one cluster'
    return Outcome(what, 'trains', said, wrong, time.monotonic() - killed)


def faults(folder: pathlib.Path, only: str) -> Iterator[Outcome]:
    """Plays the faults of rounds whose names contain a word."""
    with contextlib.closing(Gate(folder)) as gate, ray_nodes.cluster(NODES) as nodes:
        # One connection, so that the processes of Ray start once.
        with contexts.ray_runtime(nodes.cluster.address):
            for fault in FAULTS:
                if not fault.ends_cluster and only in fault.what:
                    yield play(fault, nodes, gate)
            if only in 'two runs':
                yield two_runs(nodes, folder)
        for fault in FAULTS:
            if fault.ends_cluster and only in fault.what:
                yield play(fault, nodes, gate)


def ends(folder: pathlib.Path, only: str) -> Iterator[Outcome]:
    """Ends runs that have a Ray of their own, and resumes them."""
    resume_at = 'local'
    for what, end, status in ENDS:
        if only in what:
            yield ended_run(what, end, status, folder, resume_at)
            resume_at = None  # Each start of Ray takes a quarter of a minute.


def _kill_one(generator: random.Random) -> int:
    """Kills a process of Ray at random, one with a task if there is any; returns its id, or 0."""
    for title in ('ray::dpfl', 'ray::IDLE'):
        if ids := ray_nodes.processes(title):
            process = generator.choice(ids)
            ray_nodes.kill(process)
            return process
    return 0


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


def random_kills(number: int, seed: int) -> int:
    """Runs in which random processes of Ray are killed at random moments; how many are wrong."""
    generator = random.Random(seed)
    expected = _expected(_ROUNDS_WITH_KILLS)
    counts: collections.Counter[str] = collections.Counter()

    def rows(turn):
        time.sleep(0.1)
        return toy_experiment.rows(turn[1])

    while counts['runs'] < number:
        try:
            with contexts.ray_runtime('local', timeout=TIMEOUT) as runtime:
                ends: list[float] = []
                train(runtime, rows, _ROUNDS_WITH_KILLS, ends)
                seconds = _ROUNDS_WITH_KILLS * (ends[-1] - ends[-2])
                for _ in range(min(_RUNS_OF_A_RAY, number - counts['runs'])):
                    counts['runs'] += 1
                    before = sum(runtime.losses.values())
                    with _killing(generator, seconds) as killed:
                        result = train(runtime, rows, _ROUNDS_WITH_KILLS)
                    lost = sum(runtime.losses.values()) - before
                    counts.update(kills=len(killed), losses=lost, differ=result != expected)
                    moments = ', '.join(f'{moment:.1f} s' for moment in killed) or '-'
                    bits = 'equal' if result == expected else 'DIFFER'
                    print(
                        f'{counts["runs"]}: kills at {moments}; {lost} losses; {bits}', flush=True
                    )
        except contexts.RayError as error:
            counts['end'] += 1
            print(f'WRONG: {error}', flush=True)
            number = counts['runs']
        if remaining := ray_nodes.remaining():
            counts['leave a process'] += 1
            print(f'WRONG: processes {remaining} are left', flush=True)
    print(
        f'{counts["runs"]} runs, {counts["kills"]} kills, {counts["losses"]} losses: '
        f'{counts["differ"]} differ, {counts["end"]} end or hang, '
        f'{counts["leave a process"]} leave a process'
    )
    wrong = counts['differ'] + counts['end'] + counts['leave a process']
    return wrong or not counts['losses']


def main() -> int:
    """Plays the faults; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--kills', type=int, default=0, help='runs with random kills instead')
    parser.add_argument('--ends', action='store_true', help='runs that are ended instead')
    parser.add_argument('--only', default='', help='faults whose names contain this')
    parser.add_argument('--seed', type=int, default=0, help='of the random kills')
    parser.add_argument('--run', type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument('--address', help=argparse.SUPPRESS)
    given = parser.parse_args()
    ray_rounds._SECONDS_WITHOUT_NODES = _WITHOUT_NODES
    ray_rounds._SECONDS_WITHOUT_HEAD = _WITHOUT_HEAD
    if given.run is not None:
        run(given.run, given.address)
        return 0
    # A background job of a shell ignores SIGINT, and so would all processes that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ray_nodes.mark()
    os.environ['RAY_worker_niceness'] = '0'
    ray_rounds._MOST_BYTES, ray_rounds._PART_BYTES = 0, 1
    # Results of any size go to the store, as those of large models do.
    os.environ['RAY_max_direct_call_object_size'] = '0'
    if given.kills:
        return int(bool(random_kills(given.kills, given.seed)))
    outcomes = []
    print('| lost | when | seconds | counted or said | bits |\n|---|---|---|---|---|', flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        run(folder / 'reference', None)
        for outcome in (ends if given.ends else faults)(folder, given.only):
            print(_row(outcome), flush=True)
            outcomes.append(outcome)
    remaining = ray_nodes.remaining()
    num_wrong = sum(bool(outcome.worse) for outcome in outcomes)
    print(f'{len(outcomes)} faults, {num_wrong} wrong, {len(remaining)} processes left')
    return int(bool(num_wrong or remaining))


if __name__ == '__main__':
    sys.exit(main())
