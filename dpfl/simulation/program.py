"""The training loop: one run from its first round to its privacy report."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow_federated as tff

from dpfl import _validate, accounting
from dpfl.participation import ParticipationLog
from dpfl.simulation import outputs, runtime, sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that a run needs.

    Attributes:
      process: trains one round; made from `plan`.
      plan: the privacy plan.
      delta: at which epsilon is shown and reported, strictly between 0 and 1.
      accountant: by which the report computes epsilon.
      sampler: the cohorts; keeps the schema of the plan.
      client_data: data of a client, as the process takes it.
      evaluate: metrics of a model on held-out clients, `loss` and `accuracy` among them.
      eval_every: rounds between two evaluations; the last round is always evaluated.
      release_train_metrics: also record the metrics of the training clients, which have no noise
        and are not covered by the guarantee.
      reference_accuracies: lines in the plot, by name.
      noise_is_seeded: the noise comes from a known seed: the run is a simulation.
    """

    process: tff.learning.templates.LearningProcess
    plan: accounting.PrivacyPlan
    delta: float
    accountant: str = 'pld'
    sampler: sampling.MinSeparationSampler
    client_data: Callable[[int], Any]
    evaluate: Callable[[tff.learning.models.ModelWeights], Mapping[str, float]]
    eval_every: int = 1
    release_train_metrics: bool = False
    reference_accuracies: Mapping[str, float] = dataclasses.field(default_factory=dict)
    noise_is_seeded: bool = False

    def __post_init__(self):
        _validate.number('delta', self.delta, above=0, below=1)
        _validate.choice('accountant', self.accountant, accounting.ACCOUNTANTS)
        _validate.integer('eval_every', self.eval_every, minimum=1)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run ended with: its report, and the last value of each metric."""

    report: accounting.PrivacyReport
    metrics: Mapping[str, float]


def run_training(experiment: Experiment, directory: outputs.RunDirectory) -> Result:
    """Trains all rounds, and writes metrics, participation log, model, plots and report.

    The log and the report are written however the run ends, for the rounds that were begun.

    """
    log = ParticipationLog()
    try:
        with runtime.local_runtime():
            metrics = _train(experiment, directory, log)
    finally:
        report = accounting.PrivacyReport.from_plan(
            experiment.plan, [experiment.delta], log=log, accountant=experiment.accountant,
            noise_is_seeded=experiment.noise_is_seeded,
        )
        directory.write_log(log)
        directory.write_report(report)
    return Result(report, metrics)


def _train(
    experiment: Experiment, directory: outputs.RunDirectory, log: ParticipationLog
) -> dict[str, float]:
    rounds = experiment.plan.participation.rounds
    state = experiment.process.initialize()
    with outputs.Metrics(directory, rounds, experiment.reference_accuracies) as metrics:
        for t in range(rounds):
            started = time.monotonic()
            cohort = experiment.sampler.cohort(t)
            # Recorded before its release: the log never has less than what was released.
            log.append(cohort)
            output = experiment.process.next(state, [experiment.client_data(c) for c in cohort])
            state = output.state
            metrics.release(t + 1, _round_metrics(experiment, output, t + 1, started))
    directory.write_model(experiment.process.get_model_weights(state))
    return metrics.last


def _round_metrics(experiment: Experiment, output, done: int, started: float) -> dict[str, float]:
    plan = experiment.plan
    values = {}
    if done % experiment.eval_every == 0 or done == plan.participation.rounds:
        weights = experiment.process.get_model_weights(output.state)
        values.update(experiment.evaluate(weights))
    if experiment.release_train_metrics:
        for name, value in output.metrics['client_work']['train'].items():
            values[f'train_{name}'] = float(value)
    # The exact curve: the report's accountant may be looser, and slower for every round.
    so_far = plan.over(plan.participation.within(done))
    values['epsilon'] = so_far.epsilon(experiment.delta, 'analytic_gaussian')
    values['seconds'] = time.monotonic() - started
    return values
