"""`dry_run`: what a run would cost on this machine, measured on a few clients."""

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
from dpfl.simulation.training.cost import Cost
from dpfl.simulation.training.plan import accountant
from dpfl.tasks.config import PRIVATE_VOCABULARY
from dpfl.tasks.federated_task import FederatedTask

# Clients whose data are counted; some of them are trained.
_SAMPLED = 20
_FROM_A_FILE = 'past noise, which is kept in a file'
_RAY = 'sending model and data to the processes of Ray; all shards were trained in this process'


def dry_run(
    config: TrainConfig,
    *,
    task: FederatedTask | None = None,
    progress: bool = True,
) -> Cost:
    """What a run of `train` with the same configuration would cost on this machine.

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
    if quantiles := config.task.selection.quantiles:
        name, _, shown = next(iter(quantiles)).partition(':')
        raise ArgumentError(name, shown, 'cannot be used in a dry run, which would release it')
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
    delta, method = config.privacy.delta, accountant(config.privacy, plan)
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
    leaves = [[np.asarray(leaf) for leaf in tf.nest.flatten(b)] for each in clients for b in each]
    tokens = sum(np.count_nonzero(b['y']) for each in clients for b in each) if has_words else None
    return _Data(
        clients=clients,
        sampled=count,
        batches=len(leaves) / count,
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
