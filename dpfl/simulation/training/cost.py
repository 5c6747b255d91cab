"""Cost of a run on this machine, measured on a few clients: `dry_run`."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpfl import _random, accounting, mechanisms
from dpfl.errors import ArgumentError, DataError
from dpfl.planning import feasibility
from dpfl.simulation.training import execution, fedavg
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.config import PRIVATE_VOCABULARY
from dpfl.tasks.federated_task import FederatedTask

# Clients whose data are counted; some of them are trained.
_SAMPLED = 20
_FROM_A_FILE = 'past noise, which is kept in a file'
_RAY = 'sending model and data to the processes of Ray; all shards were trained in this process'
HOW = (
    'Times and memory are estimates. memory_gigabytes is process_gigabytes (largest memory of this '
    'process after rounds with all shards and an evaluation) + cohort_gigabytes (data of two '
    'cohorts, twice) + checkpoint_gigabytes (a copy of the state). round_seconds is slowdown * '
    '(server_seconds + client_seconds for each client of a shard), the latter two measured on one '
    'shard with few and with more clients, the first on all shards; or data_seconds for each '
    'client of a round, if that is longer. hours is that of all rounds and evaluations, without '
    'start and checkpoints.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of a run on this machine, from `dry_run`.

    Times and memory are estimates. The measurements of the clients' data have no noise: they are
    for the person who has the data.

    Attributes:
      parameters: number of trainable parameters of the model.
      rounds, clients_per_round, population: of the run; the cohort size is the planned one.
      clients_sampled: number of clients that the three averages below are of.
      batches_per_client, rows_per_client: average batches and examples that a client trains on in
        a round, all its epochs together.
      tokens_per_client: average predicted tokens, without padding; None if the task has no words.
      mechanism: name of the mechanism.
      noise_multiplier, clip_norm: of the plan.
      noise_stddev: standard deviation of each entry of z, which is added to a sum as `C^-1 z`.
      mean_noise_stddev: the same for the mean, the sum divided by the plan's denominator.
      epsilon, delta, rho: the guarantee of all rounds; epsilon and rho are None if there is none.
      feasible, noise_to_signal, advice: as in `feasibility.Feasibility`.
      noise_place: where the noise of past rounds is kept: 'state', 'regenerated', 'memory', 'file'.
      noise_gigabytes: its size.
      process_gigabytes: largest resident memory of this process so far, after rounds with the
        shards that the run trains at a time, and an evaluation: it includes the model, its
        optimizer, past noise in memory, and the work of the shards.
      cohort_gigabytes: data of two cohorts, the one that is trained on and the next one, each read
        and then copied into shards.
      checkpoint_gigabytes: a copy of the state, while a checkpoint is written.
      memory_gigabytes: the sum of these three: the estimated largest memory of the run.
      shards: number of shards that are trained at a time: no more than this host has cores, unless
        the processes of Ray train them.
      client_seconds: of an average client, on one shard: the seconds of a batch, from rounds of
        few and of more clients, times `batches_per_client`.
      server_seconds: of a round without clients, from the same rounds.
      slowdown: how many times longer a round takes when all shards are trained at the same time.
      data_seconds: to read the data of an average client, which happens beside training.
      evaluation_seconds: of one evaluation on held-out clients.
      round_seconds: of a round without its evaluation: `server_seconds` and the clients of a shard,
        times `slowdown`; or reading the data of a cohort, if that takes longer.
      hours: of all rounds and evaluations, without the start of the program and checkpoints.
      not_measured: other parts of the run that take time, a phrase each.
    """

    parameters: int
    rounds: int
    clients_per_round: int
    population: int
    clients_sampled: int
    batches_per_client: float
    rows_per_client: float
    tokens_per_client: float | None
    mechanism: str
    noise_multiplier: float
    clip_norm: float
    noise_stddev: float
    mean_noise_stddev: float
    epsilon: float | None
    delta: float
    rho: float | None
    feasible: str
    noise_to_signal: float | None
    advice: tuple[str, ...]
    noise_place: str
    noise_gigabytes: float
    process_gigabytes: float
    cohort_gigabytes: float
    checkpoint_gigabytes: float
    memory_gigabytes: float
    shards: int
    client_seconds: float
    server_seconds: float
    slowdown: float
    data_seconds: float
    evaluation_seconds: float
    round_seconds: float
    hours: float
    not_measured: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as JSON values, and under 'how' how the estimates are made."""
        return {
            **dataclasses.asdict(self),
            'advice': list(self.advice),
            'not_measured': list(self.not_measured),
            'how': HOW,
        }


def dry_run(
    config: TrainConfig,
    *,
    task: FederatedTask | None = None,
    progress: bool = True,
) -> Cost:
    """Estimates the cost on this machine of `train` with the same configuration.

    It trains a few clients from the initial model, and drops the results. The noise of these
    rounds has keys of its own from the operating system, whatever `noise_seed` is, so a run never
    has the noise of its dry run. No file is written, except those in the cache directory that
    `train` writes as well.

    Args:
      config, task: as in `train`.
      progress: show messages on standard error.

    Raises:
      ArgumentError: as in `train`.
      DataError: if the data cannot be read, or none of the clients looked at has any.
    """
    if config.task.text.vocabulary == PRIVATE_VOCABULARY:
        raise ArgumentError(
            'vocabulary', PRIVATE_VOCABULARY, 'cannot be used in a dry run, which would release it'
        )
    from dpfl.runtime.shards import default_num_shards
    from dpfl.simulation.training import timing  # Loads TensorFlow.
    from dpfl.tasks import own_data

    if task is not None:
        config = config.of_own_task()
    prepared = fedavg.prepare(config, task, tell=execution.teller(progress))
    plan = prepared.plan
    loaded, population = prepared.load()
    storage = prepared.noise_storage(loaded)
    measured_run = dataclasses.replace(
        prepared,
        config=dataclasses.replace(config, noise_seed=None),
        plan=_without_past_noise(plan) if storage.name == 'file' else plan,
    )
    # Counting words for the baselines can take longer than all that is measured here.
    experiment = measured_run.experiment(dataclasses.replace(loaded, baselines=None), population)
    data = _sample(
        lambda client: experiment.data_in_turn((0, client)),
        config.seed,
        population,
        prepared.opened.language_model() is not None,
    )
    shards = _at_a_time(config)
    measured = timing.measure(experiment, data.clients, min(shards, default_num_shards()))
    rounds, clients = plan.participation.rounds, plan.clients_per_round
    client_seconds = measured.batch_seconds * data.batches
    one_shard = measured.server_seconds + client_seconds * -(-clients // shards)
    round_seconds = max(one_shard * measured.slowdown, data.seconds * clients)
    evaluations = -(-rounds // config.evaluation.eval_every)
    # A client of the test costs as much as one of an evaluation.
    tests = config.evaluation.test_clients / config.evaluation.eval_clients
    seconds = rounds * round_seconds + (evaluations + tests) * measured.evaluation_seconds
    # Two cohorts, each read and then copied into shards.
    cohort_gigabytes = 2 * 2 * clients * data.bytes / 1e9
    memory = (measured.process_gigabytes, cohort_gigabytes, measured.state_gigabytes)
    parameters = own_data.num_parameters(loaded.model)
    delta, method = config.privacy.delta, config.privacy.accountant_of(plan)
    guarantee = accounting.PrivacyReport.from_plan(plan, (delta,), None, method).guarantee
    return Cost(
        parameters=parameters,
        rounds=rounds,
        clients_per_round=clients,
        population=population,
        clients_sampled=data.sampled,
        batches_per_client=data.batches,
        rows_per_client=data.rows,
        tokens_per_client=data.tokens,
        mechanism=plan.mechanism.name,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip_norm,
        noise_stddev=plan.stddev,
        mean_noise_stddev=plan.stddev / plan.denominator,
        epsilon=guarantee.epsilons[0],
        delta=delta,
        rho=guarantee.rho,
        **dataclasses.asdict(feasibility.estimate(plan, parameters, delta, method)),
        noise_place=storage.name,
        noise_gigabytes=storage.gigabytes,
        process_gigabytes=measured.process_gigabytes,
        cohort_gigabytes=cohort_gigabytes,
        checkpoint_gigabytes=measured.state_gigabytes,
        memory_gigabytes=sum(memory),
        shards=shards,
        client_seconds=client_seconds,
        server_seconds=measured.server_seconds,
        slowdown=measured.slowdown,
        data_seconds=data.seconds,
        evaluation_seconds=measured.evaluation_seconds,
        round_seconds=round_seconds,
        hours=seconds / 3600,
        not_measured=(
            *([_FROM_A_FILE] if storage.name == 'file' else []),
            *([_RAY] if config.execution.ray else []),
        ),
    )


@dataclasses.dataclass(frozen=True)
class _Data:
    """Data of a sample of the clients: the batches of those that have any, and averages over all.

    `bytes` and `seconds` are those of reading a client.
    """

    clients: Sequence[Sequence[Any]]
    sampled: int
    batches: float
    rows: float
    tokens: float | None
    bytes: float
    seconds: float


def _sample(
    client_data: Callable[[int], Any], seed: int, population: int, has_words: bool
) -> _Data:
    import tensorflow as tf

    rng = _random.generator('dry_run.clients', seed)
    count = min(_SAMPLED, population)
    started = time.monotonic()
    read = [list(client_data(client)) for client in rng.choice(population, count, replace=False)]
    seconds = (time.monotonic() - started) / count
    clients = [batches for batches in read if batches]
    if not clients:
        raise DataError(f'none of the {count} clients that were looked at has data to train on')
    batches = [batch for client in clients for batch in client]
    leaves = [[np.asarray(leaf) for leaf in tf.nest.flatten(batch)] for batch in batches]
    tokens = sum(np.count_nonzero(batch['y']) for batch in batches) if has_words else None
    return _Data(
        clients=clients,
        sampled=count,
        batches=len(batches) / count,
        rows=sum(len(parts[0]) for parts in leaves) / count,
        tokens=None if tokens is None else tokens / count,
        bytes=sum(part.nbytes for parts in leaves for part in parts) / count,
        seconds=seconds,
    )


def _at_a_time(config: TrainConfig) -> int:
    """Number of shards that are trained at the same time."""
    from dpfl.runtime import shards

    clients = config.sampling.clients_per_round
    most = min(config.execution.shards, clients)
    return most if config.execution.ray else min(most, shards.default_num_shards())


def _without_past_noise(plan: accounting.PrivacyPlan) -> accounting.PrivacyPlan:
    """The plan with independent noise of the same size, which needs no past noise."""
    mechanism: mechanisms.Mechanism = mechanisms.Identity(plan.participation.rounds)
    if isinstance(plan.mechanism, mechanisms.Restarted):
        mechanism = dataclasses.replace(plan.mechanism, base=mechanism)
    return dataclasses.replace(plan, mechanism=mechanism)
