"""What a run needs, and what it ends with."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow_federated as tff

from dpfl import _validate, accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.auditing import one_shot
from dpfl.runtime import contexts
from dpfl.simulation import profile as profile_lib
from dpfl.simulation import sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that a run needs.

    Attributes:
      process: the learning process that trains one round; built from `plan`.
      plan: the privacy plan.
      delta: the delta at which epsilon is shown and reported, strictly between 0 and 1.
      accountant: the accountant with which the report computes epsilon.
      sampler: draws the cohorts in the way that the plan's guarantee requires.
      client_data: returns the batches of a client, as `learning.shard` takes them. It must return
        the same batches every time. It is called in a separate thread, one round ahead.
      drawn: maps (round from 0, client, batches of the client) to the batches that the client
        trains on in that round, a pure function; None for all of them in every round.
      num_shards: number of parts of a cohort that are trained at a time. It determines the order
        in which updates are added, so it cannot change during a run.
      evaluate: metrics of a model on held-out clients, `loss` and `accuracy` among them.
      eval_every: rounds between two evaluations; the last round is always evaluated.
      release_train_metrics: also record the metrics of the training clients. They have no noise,
        and the guarantee does not cover them.
      reference_accuracies: accuracies drawn as lines in the plot, by name.
      uniform_loss: held-out loss of a model that finds every answer equally likely, drawn as a line
        in the plot; None if that is not known.
      watch_loss: warn at the end if the held-out loss is far above its start.
      noise_is_seeded: the noise comes from a known seed, so the run is only a simulation. Without
        one, the keys of the noise follow from the root of the run's keys.
      noise_storage: where past noise is kept. If that is outside of TFF, the process must have been
        built with `supplied_noise`. None keeps it in the state of the process.
      checkpoint_every: rounds between two checkpoints.
      keep_checkpoints: number of the latest checkpoints that are kept.
      about: which run it is, for the report; None if that is not known.
      remarks: what the report says besides the guarantee, a sentence each.
      not_covered: parts of the data that the guarantee does not cover, a sentence each.
      ray: where shards are trained, an address as in `contexts.ray_runtime`; None for this process.
        The results do not depend on it, bit for bit.
      ray_timeout: seconds within which some shard of a round must arrive from Ray.
      finish: called with the directory of the run when training is done, to write further files
        made from the model.
      test: metrics of the final model on clients that are neither trained on nor held out; None
        for no test.
      profile: also measure where the time goes.
      progress: show a progress bar on standard error.
      configuration: the settings that the run was made from, as JSON values. A run can only be
        continued with the same ones.
      stop_at_accuracy: stop at the first evaluation with at least this accuracy; None to train all
        rounds. The rule reads the data of the evaluation, and the report says so.
      audit: the audit of the run, whose canaries the process adds; None without one.
      earlier_noise_is_seeded: whether a run that this one continues from was such a simulation.
      earlier_noise_key_digests: of the runs that this one continues from.
      warm_start_is_public: as in `archive.PlanRecord`.

    Raises:
      ValueError: if a value is out of its range, if the accountant does not know the plan, or if
        the sampler does not match the plan.
    """

    process: tff.learning.templates.LearningProcess
    plan: accounting.PrivacyPlan
    delta: float
    accountant: str = 'pld'
    sampler: sampling.Sampler
    client_data: Callable[[int], Any]
    drawn: Callable[[int, int, Any], Any] | None = None
    evaluate: Callable[[tff.learning.models.ModelWeights], Mapping[str, float]]
    eval_every: int = 1
    release_train_metrics: bool = False
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    uniform_loss: float | None = None
    watch_loss: bool = False
    noise_is_seeded: bool = False
    noise_storage: mechanisms.NoiseStorage | None = None
    num_shards: int = 2
    checkpoint_every: int = 10
    keep_checkpoints: int = 3
    not_covered: tuple[str, ...] = ()
    about: accounting.About | None = None
    remarks: tuple[str, ...] = ()
    ray: str | None = None
    ray_timeout: float = contexts.RAY_TIMEOUT
    finish: Callable[[pathlib.Path], None] | None = None
    test: Callable[[tff.learning.models.ModelWeights], Mapping[str, float]] | None = None
    profile: bool = False
    progress: bool = True
    configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stop_at_accuracy: float | None = None
    audit: one_shot.OneShotAudit | None = None
    earlier_noise_is_seeded: bool = False
    earlier_noise_key_digests: tuple[str, ...] = ()
    warm_start_is_public: bool = False

    def __post_init__(self):
        _validate.number('delta', self.delta, above=0, below=1)
        _validate.choice('accountant', self.accountant, accounting.ACCOUNTANTS)
        _validate.integer('eval_every', self.eval_every, minimum=1)
        _validate.integer('checkpoint_every', self.checkpoint_every, minimum=1)
        _validate.integer('num_shards', self.num_shards, minimum=1)
        _validate.integer('keep_checkpoints', self.keep_checkpoints, minimum=1)
        if self.accountant not in self.plan.accountants:
            self.plan.epsilon(self.delta, self.accountant)  # Raises an error that says why.
        sampling.check(self.sampler, self.plan)

    def turns(self, rounds: Iterable[int]) -> Iterator[list[tuple[int, int]]]:
        """For each of the rounds, its number and the client for each client of its cohort."""
        return ([(t, client) for client in self.sampler.cohort(t)] for t in rounds)

    @property
    def data_in_turn(self) -> 'DataInTurn':
        """Maps an entry of `turns` to the batches that the client trains on in that round."""
        return DataInTurn(self.client_data, self.drawn)

    @property
    def record(self) -> archive.PlanRecord:
        """What the report needs but the log, and what is known once the run begins."""
        return archive.PlanRecord(
            self.plan,
            (self.delta,),
            self.accountant,
            self.noise_is_seeded or self.earlier_noise_is_seeded,
            # All samplers draw their cohorts from a seed.
            sampling_is_seeded=self.plan.sampling is not None,
            also_not_covered=self.not_covered,
            train_metrics_released=self.release_train_metrics,
            stop_at_accuracy=self.stop_at_accuracy,
            remarks=self.remarks,
            about=self.about,
            earlier_noise_key_digests=self.earlier_noise_key_digests,
            warm_start_is_public=self.warm_start_is_public,
        )


@dataclasses.dataclass(frozen=True)
class DataInTurn:
    """As `Experiment.data_in_turn`: all that another process needs to read the data."""

    client_data: Callable[[int], Any]
    drawn: Callable[[int, int, Any], Any] | None

    def __call__(self, turn: tuple[int, int]) -> Any:
        """The batches of a round and a client."""
        t, client = turn
        batches = self.client_data(client)
        return batches if self.drawn is None else self.drawn(t, client, batches)


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
      report: the privacy report over all rounds.
      rows: the metrics of each round, `round` first.
      profile: where the time went; None unless it was measured.
    """

    report: accounting.PrivacyReport
    rows: Sequence[Mapping[str, float]]
    profile: profile_lib.Profile | None = None
