"""Times a few rounds of an experiment on data of few and of more clients. Writes nothing."""

import contextlib
import dataclasses
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dpfl import aggregators
from dpfl.runtime import contexts, shards
from dpfl.simulation import program
from dpfl.simulation import state as state_lib

# Clients of the rounds that are timed; both are multiplied until the longer round takes a while,
# but has no more clients than a round of the run.
_FEW, _MORE, _A_WHILE = 2, 6, 0.5
# Largest number of timed rounds of each kind, and the seconds after which no further one begins.
_MOST_ROUNDS, _ENOUGH_SECONDS = 5, 20.0
_KILOBYTE = 1024  # Of `ru_maxrss` on Linux.


@dataclasses.dataclass(frozen=True)
class Timing:
    """Measured times and memory.

    Attributes:
      batch_seconds: of a batch of a client, on one shard.
      server_seconds: of a round without clients.
      slowdown: seconds of a round on all shards divided by the prediction of the other two, at
        least 1: shards that are trained at the same time can hinder each other.
      evaluation_seconds: of an evaluation.
      process_gigabytes: largest resident memory of this process so far.
      state_gigabytes: size of the state of the process.
    """

    batch_seconds: float
    server_seconds: float
    slowdown: float
    evaluation_seconds: float
    process_gigabytes: float
    state_gigabytes: float


def measure(
    experiment: program.Experiment, clients: Sequence[Sequence[Any]], num_shards: int
) -> Timing:
    """Runs rounds from the initial model, on this host, and drops their releases.

    The first round has all shards, so the memory of the process is that of a round. Rounds of one
    shard follow, of few clients and of more: their difference is the time of the batches of the
    others, and the rest is the time of the server. Rounds of all shards are compared with these.

    Args:
      experiment: the run; its past noise is not kept in a file.
      clients: batches of clients, none empty, at least one client. They are used again if there are
        fewer than a round has.
      num_shards: number of shards that are trained at a time.
    """
    with contexts.local_runtime(), _noise(experiment) as with_noise:
        rounds = _Rounds(experiment, with_noise)
        rounds.seconds(_cycled(clients, max(_MORE, num_shards)), num_shards)
        rounds.seconds(_cycled(clients, _FEW), 1)
        once = rounds.seconds(_cycled(clients, _MORE), 1)
        times = max(1, min(int(_A_WHILE / once), experiment.plan.clients_per_round // _MORE))
        few, more = _cycled(clients, _FEW * times), _cycled(clients, _MORE * times)
        kinds = ((few, 1), (more, 1), (more, num_shards))
        seconds: tuple[list[float], ...] = ([], [], [])
        started = time.monotonic()
        while not seconds[0] or (
            len(seconds[0]) < _MOST_ROUNDS and time.monotonic() - started < _ENOUGH_SECONDS
        ):
            for times_of_kind, kind in zip(seconds, kinds, strict=True):
                times_of_kind.append(rounds.seconds(*kind))
        evaluation_seconds = rounds.evaluation_seconds()
        state_gigabytes = rounds.state_gigabytes()
    of_few, of_more, of_all = map(statistics.median, seconds)
    batch, server = split((_num_batches(few), of_few), (_num_batches(more), of_more))
    slowdown = max(1.0, of_all / (server + batch * _longest_shard(more, num_shards)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE
    return Timing(batch, server, slowdown, evaluation_seconds, peak / 1e9, state_gigabytes)


def split(few: tuple[int, float], more: tuple[int, float]) -> tuple[float, float]:
    """Seconds of a batch, and of a round without batches, from two rounds.

    Args:
      few: batches and seconds of a round.
      more: the same of a round with more batches.

    Returns:
      The slope and the intercept of the line through both, neither below 0. If the longer round was
      not slower, which happens when the times are tiny, all its seconds are those of its batches.
    """
    batch = (more[1] - few[1]) / (more[0] - few[0])
    if batch <= 0:
        return more[1] / more[0], 0.0
    server = few[1] - batch * few[0]
    return (batch, server) if server >= 0 else (more[1] / more[0], 0.0)


class _Rounds:
    """Rounds of a process, one after the other; a new run begins when its rounds are done."""

    def __init__(self, experiment: program.Experiment, with_noise: Callable[[Any], Any]):
        self._process = experiment.process
        self._evaluate = experiment.evaluate
        self._rounds = experiment.plan.participation.rounds
        self._with_noise = with_noise
        self._state = self._process.initialize()
        self._done = 0

    def seconds(self, clients: Sequence[Sequence[Any]], num_shards: int) -> float:
        """Seconds of a round."""
        if self._done == self._rounds:
            self._state, self._done = self._process.initialize(), 0
        cohort = shards.shard(clients, num_shards)
        started = time.monotonic()
        self._state = self._process.next(self._with_noise(self._state), cohort).state
        self._done += 1
        return time.monotonic() - started

    def evaluation_seconds(self) -> float:
        """Seconds of an evaluation, after a first one."""
        weights = self._process.get_model_weights(self._state)
        self._evaluate(weights)
        started = time.monotonic()
        self._evaluate(weights)
        return time.monotonic() - started

    def state_gigabytes(self) -> float:
        """Size of the state."""
        leaves = state_lib.leaves(self._state)
        return sum(len(leaf) if isinstance(leaf, bytes) else leaf.nbytes for leaf in leaves) / 1e9


@contextlib.contextmanager
def _noise(experiment: program.Experiment) -> Iterator[Callable[[Any], Any]]:
    """A function that adds to a state the past noise that is kept outside of TFF, in memory."""
    storage = experiment.noise_storage
    if storage is None or not storage.is_supplied:
        yield lambda state: state
        return
    plan = experiment.plan
    ring_type = aggregators.HardenedRing if plan.noise == 'hardened' else aggregators.NoiseRing
    with ring_type(plan, None, show_progress=False) as ring:
        yield ring.supply


def _cycled(clients: Sequence[Sequence[Any]], count: int) -> list[Sequence[Any]]:
    return [clients[number % len(clients)] for number in range(count)]


def _longest_shard(clients: Sequence[Sequence[Any]], num_shards: int) -> int:
    """Batches of the shard with the most of them."""
    divided = shards.balanced([shards.num_rows(client) for client in clients], num_shards)
    return max(_num_batches([clients[member] for member in members]) for members in divided)


def _num_batches(clients: Sequence[Sequence[Any]]) -> int:
    return int(np.sum([len(batches) for batches in clients]))
