"""Attacks the membership of clients in a finished run, with its model and held-out clients.

Members are training clients, the others are held-out ones. An attack measures membership only if
both are drawn alike: for data in files the task splits them at random, and synthetic ones come from
one distribution. Two tests say if they differ in what no attacked model can be the reason for: in
their numbers of tokens, and in their losses under the reference model if there is one. Secrets that
were planted in the text of members are left out of it, since nothing is planted in that of others.

Without amplification by sampling, members are the clients that took part: the guarantee is one for
each of them. With it the guarantee holds on average over the cohorts, so members are drawn from all
training clients, whether they took part or not.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from scipy import stats

from dpfl import _random
from dpfl.errors import ArgumentError
from dpfl.simulation.training import execution, prepared_task
from dpfl.tasks import source
from dpfl.tasks.config import TEXT_TASKS
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text.models import saved_models
from experiments.studies.attacks import client_losses, finished_run, membership
from experiments.studies.attacks.finished_run import FinishedRun
from experiments.studies.attacks.membership_config import MembershipConfig


@dataclasses.dataclass(frozen=True)
class Attacked:
    """What attacks found out of the membership of clients.

    Attributes:
      members, others: numbers of clients.
      members_are: 'took part' or 'population', see the top of the module.
      epsilon, delta: guarantee of the run; infinity without one.
      alike: p-values of the hypotheses that members and others have the same distribution of what
        does not depend on the model, by name.
      outcomes: by attack: 'loss'; 'reference_model' and 'reference_runs' if they were given.
    """

    members: int
    others: int
    members_are: str
    epsilon: float
    delta: float
    alike: dict[str, float]
    outcomes: dict[str, membership.Outcome]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; an infinite epsilon is None."""
        return {
            'members': self.members,
            'others': self.others,
            'members_are': self.members_are,
            'epsilon': None if math.isinf(self.epsilon) else self.epsilon,
            'delta': self.delta,
            'alike': self.alike,
            'attacks': {name: found.to_dict() for name, found in self.outcomes.items()},
        }


def attack(run: FinishedRun, config: MembershipConfig) -> Attacked:
    """Attacks the clients of a run.

    Args:
      run: the run, on text.
      config: which clients, and what the attacker knows.

    Raises:
      ArgumentError: if the run is not on text, or too few clients have any; if a reference model
        has another vocabulary, or a reference run has other data.
      DataError: if the data cannot be read.
      StorageError: if a file of a run cannot be read.
    """
    if run.config.task.task not in TEXT_TASKS:
        raise ArgumentError('run_dir', run.directory, 'must be a run on text')
    model = saved_models.load(run.directory)
    task, population = _task(run)
    chosen = _members(run, population, config)
    inside = client_losses.of_training(task, chosen)
    with_text = inside.tokens > 0
    chosen, inside = chosen[with_text], inside.with_text()
    outside = client_losses.of_heldout(task, config.others).with_text()
    for clients, who in ((inside, 'members'), (outside, 'others')):
        if clients.count < 4:
            raise ArgumentError(who, clients.count, 'must be at least 4 clients with text')

    def losses(of: saved_models.LanguageModel) -> tuple[np.ndarray, np.ndarray]:
        return client_losses.mean_losses(of, inside), client_losses.mean_losses(of, outside)

    found_in, found_out = losses(model)
    scores = {'loss': (-found_in, -found_out)}
    alike = {'tokens': _alike(inside.tokens, outside.tokens)}
    if config.reference_model is not None:
        public = _reference(config.reference_model, model)
        first_in, first_out = losses(public)
        alike['reference_model'] = _alike(first_in, first_out)
        scores['reference_model'] = (first_in - found_in, first_out - found_out)
    if config.reference_runs:
        runs = [_reference_run(each, run) for each in config.reference_runs]
        pairs = [losses(_reference(str(each.directory), model)) for each in runs]
        took_part = np.array([each.participations(chosen) > 0 for each in runs])
        of_in = membership.against_references(
            found_in, np.array([pair[0] for pair in pairs]), took_part
        )
        of_out = membership.against_references(
            found_out,
            np.array([pair[1] for pair in pairs]),
            np.zeros((len(runs), outside.count), bool),
        )
        scores['reference_runs'] = of_in[~np.isnan(of_in)], of_out
    allowed = None
    if not math.isinf(run.epsilon):
        allowed = functools.partial(_allowed, run)
    return Attacked(
        members=inside.count,
        others=outside.count,
        members_are='population' if _is_amplified(run) else 'took part',
        epsilon=run.epsilon,
        delta=run.delta,
        alike=alike,
        outcomes={
            name: membership.evaluate(
                *pair, allowed=allowed, confidence=config.confidence, seed=config.attack_seed
            )
            for name, pair in scores.items()
        },
    )


def _task(run: FinishedRun) -> tuple[FederatedTask, int]:
    """The task of a run without its secrets, and the number of clients to train on."""
    config = run.config
    before = prepared_task.of_run(config, kept=prepared_task.recorded(run.directory))
    opened = source.open_task(config.task, config.seed, execution.teller(False), before)
    return opened.load(), source.population(config.sampling.population, opened.num_clients)


def _members(run: FinishedRun, population: int, config: MembershipConfig) -> np.ndarray:
    """Ids of the training clients that are attacked, in a random order."""
    rng = _random.generator('membership.in', config.attack_seed)
    everyone = np.arange(population) if _is_amplified(run) else run.log.by_client().clients
    return rng.permutation(everyone)[: config.members].astype(np.int64)


def _is_amplified(run: FinishedRun) -> bool:
    return run.report.plan.sampling is not None


def _alike(inside: np.ndarray, outside: np.ndarray) -> float:
    """P-value of the hypothesis that both have one distribution (Mann and Whitney)."""
    return float(stats.mannwhitneyu(inside, outside, alternative='two-sided').pvalue)


def _allowed(run: FinishedRun, rate: float) -> float:
    """The largest true positive rate that the guarantee of a run allows."""
    return run.report.tradeoff_at((rate,)).points[0][1]


def _reference(path: str, model: saved_models.LanguageModel) -> saved_models.LanguageModel:
    found = saved_models.load(path)
    if found.vocabulary != model.vocabulary:
        raise ArgumentError('reference_model', path, 'must have the vocabulary of the run')
    return found


def _reference_run(path: str, run: FinishedRun) -> FinishedRun:
    """A run on the same data, whose clients have the same ids."""
    found = finished_run.open_run(path)
    same, other = run.config.task, found.config.task
    is_synthetic = same.task == 'synthetic_text'
    if (same.task, same.data, same.text) != (other.task, other.data, other.text) or (
        is_synthetic and run.config.seed != found.config.seed
    ):
        raise ArgumentError('reference_runs', path, 'must be runs on the same data')
    return found
