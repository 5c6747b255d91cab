"""What a run would be, before anything is trained: `dry_run`."""

import dataclasses
from typing import Any

from dpfl import _json, accounting
from dpfl.errors import ArgumentError
from dpfl.planning import feasibility
from dpfl.simulation.training import execution
from dpfl.simulation.training.config import GanConfig, TrainConfig
from dpfl.tasks.config import PRIVATE_VOCABULARY
from dpfl.tasks.federated_task import FederatedTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Size, noise and guarantee of a run, from `dry_run`.

    Attributes:
      parameters: number of trainable parameters of the model.
      rounds, clients_per_round, population: of the run; the cohort size is the planned one.
      mechanism: name of the mechanism.
      noise_multiplier, clip_norm: of the plan.
      epsilon, delta, rho: the guarantee of all rounds; epsilon and rho are None if there is none.
      feasible, noise_to_signal, advice: as in `feasibility.Feasibility`.
      noise_place: where the noise of past rounds is kept: 'state', 'regenerated', 'memory', 'file'.
      noise_gigabytes: its size.

    Example:
      >>> config = TrainConfig(
      ...     task=TaskConfig(task='synthetic_glyphs', model='tiny'),
      ...     privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=2.0, delta=1e-3),
      ...     sampling=SamplingConfig(rounds=2, population=20, clients_per_round=2))
      >>> cost: Cost = dry_run(config, progress=False)
      >>> round(cost.rho, 3)
      0.25
    """

    parameters: int
    rounds: int
    clients_per_round: int
    population: int
    mechanism: str
    noise_multiplier: float
    clip_norm: float
    epsilon: float | None
    delta: float
    rho: float | None
    feasible: str
    noise_to_signal: float | None
    advice: tuple[str, ...]
    noise_place: str
    noise_gigabytes: float

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as JSON values."""
        return _json.fields_of(self)


def dry_run(
    config: TrainConfig | GanConfig,
    *,
    task: FederatedTask | None = None,
    progress: bool = True,
) -> Cost:
    """Says what `train` with the same configuration would do, and refuses what it refuses.

    Nothing is trained. No file is written, except those in the cache directory that `train` writes
    as well.

    Args:
      config, task: as in `train`.
      progress: show messages on standard error.

    Raises:
      ArgumentError: as in `train`.
      DataError: if the data cannot be read.

    Example:
      >>> config = TrainConfig(
      ...     task=TaskConfig(task='synthetic_glyphs', model='tiny'),
      ...     privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=2.0, delta=1e-3),
      ...     sampling=SamplingConfig(rounds=2, population=20, clients_per_round=2))
      >>> dry_run(config, progress=False).rounds
      2
    """
    if config.flat().get('vocabulary') == PRIVATE_VOCABULARY:
        raise ArgumentError(
            'vocabulary', PRIVATE_VOCABULARY, 'cannot be used in a dry run, which would release it'
        )
    if task is not None:
        config = config.of_own_task()
    run = execution.Run(config=config, own_task=task, progress=progress)
    plan = run.plan
    loaded, population = run.load()
    # Counting words for the baselines can take long.
    run.experiment(dataclasses.replace(loaded, baselines=None), population)  # May refuse.
    parameters, storage = run.source.num_parameters(), run.noise_storage()
    delta, method = config.privacy.delta, config.privacy.accountant_of(plan)
    guarantee = accounting.PrivacyReport.from_plan(plan, (delta,), None, method).guarantee
    return Cost(
        parameters=parameters,
        rounds=plan.participation.rounds,
        clients_per_round=plan.clients_per_round,
        population=population,
        mechanism=plan.mechanism.name,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip_norm,
        epsilon=guarantee.epsilons[0],
        delta=delta,
        rho=guarantee.rho,
        **dataclasses.asdict(feasibility.estimate(plan, parameters, delta, method)),
        noise_place=storage.name,
        noise_gigabytes=storage.gigabytes,
    )
