"""What the training loop needs for a run."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tensorflow_federated as tff

from dpfl import _validate, accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.auditing import one_shot
from dpfl.simulation import sampling
from dpfl.simulation.training.config import ExecutionConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that a run needs.

    Attributes:
      process: the learning process that trains one round; built from the plan.
      record: plan, delta, accountant, and the other statements of the report that are known before
        the run begins. Metrics of the training clients are recorded if they are released.
      sampler: draws the cohorts in the way that the plan's guarantee requires.
      client_data: returns the batches of a client, as `learning.shard` takes them. It must return
        the same batches every time. It is called in a separate thread, one round ahead.
      drawn: maps (round from 0, client, batches of the client) to the batches that the client
        trains on in that round, a pure function; None for all of them in every round.
      execution: where the run trains, and how often it saves. The number of
        shards determines the order in which updates are added, so it cannot change during a run;
        otherwise the results do not depend on it, bit for bit.
      evaluate: metrics of a model on held-out clients, `loss` and `accuracy` among them.
      eval_every: rounds between two evaluations; the last round is always evaluated.
      reference_accuracies: accuracies drawn as lines in the plot, by name.
      noise_is_seeded: the noise comes from a known seed, so the run is only a simulation. Without
        one, the keys of the noise follow from the root of the run's keys. The record also counts
        the noise of earlier runs.
      noise_storage: where past noise is kept. If that is outside of TFF, the process must have been
        built with `supplied_noise`. None keeps it in the state of the process.
      finish: called with the directory of the run when training is done, to write further files
        made from the model.
      test: metrics of the final model on clients that are neither trained on nor held out; None
        for no test.
      progress: show a progress bar on standard error.
      configuration: the settings that the run was made from, as JSON values. A run can only be
        continued with the same ones.
      audit: the audit of the run, whose canaries the process adds; None without one.

    Raises:
      ValueError: if a value is out of its range, if the accountant does not know the plan, or if
        the sampler does not match the plan.
    """

    process: tff.learning.templates.LearningProcess
    record: archive.PlanRecord
    sampler: sampling.Sampler
    client_data: Callable[[int], Any]
    drawn: Callable[[int, int, Any], Any] | None = None
    evaluate: Callable[[tff.learning.models.ModelWeights], Mapping[str, float]]
    eval_every: int = 1
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    noise_is_seeded: bool = False
    noise_storage: mechanisms.NoiseStorage | None = None
    execution: ExecutionConfig = ExecutionConfig()
    finish: Callable[[pathlib.Path], None] | None = None
    test: Callable[[tff.learning.models.ModelWeights], Mapping[str, float]] | None = None
    progress: bool = True
    configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    audit: one_shot.OneShotAudit | None = None

    def __post_init__(self):
        _validate.number('delta', self.delta, above=0, below=1)
        _validate.choice('accountant', self.accountant, accounting.ACCOUNTANTS)
        _validate.integer('eval_every', self.eval_every, minimum=1)
        if self.accountant not in self.plan.accountants:
            self.plan.epsilon(self.delta, self.accountant)  # Raises an error that says why.
        sampling.check(self.sampler, self.plan)

    @property
    def plan(self) -> accounting.PrivacyPlan:
        """The privacy plan."""
        return self.record.plan

    @property
    def delta(self) -> float:
        """The delta at which epsilon is shown and reported, strictly between 0 and 1."""
        return self.record.deltas[0]

    @property
    def accountant(self) -> str:
        """The accountant with which the report computes epsilon."""
        return self.record.accountant

    def turns(self, rounds: Iterable[int]) -> Iterator[list[tuple[int, int]]]:
        """For each of the rounds, its number and the client for each client of its cohort."""
        return ([(t, client) for client in self.sampler.cohort(t)] for t in rounds)

    @property
    def data_in_turn(self) -> 'DataInTurn':
        """Maps an entry of `turns` to the batches that the client trains on in that round."""
        return DataInTurn(self.client_data, self.drawn)


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
