r"""Attacks the membership of clients in a finished run; compares with what its guarantee allows.

Example:
  python -m experiments.studies.attack_membership --run_dir=runs/blt

For a run on text. An attacker who has the model and the text of a client guesses whether the client
trained the model: it did if its mean loss is small. With --reference_model the loss is compared
with that under a model of other text, with --reference_runs with those under models that the client
did not train ([Carlini22]). The table has the area under the curve, and true positive rates at
false positive rates of 0.001, 0.01 and 0.1 and at the largest advantage, with intervals, beside the
largest true positive rate that the guarantee of the run allows. Exits with status 1 if an attack is
better than that. Others than members are held-out clients; p-values say whether these are alike, in
their numbers of tokens and in their losses under the reference model, for which no attacked model
can be the reason. Secrets that were planted in the text of members are left out of it.

Without amplification by sampling, members are the clients that took part: the guarantee is one for
each of them. With it the guarantee holds on average over the cohorts, so members are drawn from all
training clients, whether they took part or not.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from dpfl import _json, _random
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import ArgumentError, renaming
from dpfl.reporting import plain_text
from dpfl.simulation.training import execution
from dpfl.tasks import federated_task
from dpfl.tasks.config import TEXT_TASKS
from dpfl.tasks.federated_task import FederatedTask
from experiments.studies.shared import finished_run, scores
from experiments.studies.shared.finished_run import FinishedRun

if TYPE_CHECKING:
    from dpfl.tasks.text.models import saved_models


@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipConfig(Settings):
    """Which clients are attacked, and what the attacker knows besides the model."""

    members: int = setting(
        1000, 'Limit on the training clients that are looked at; more are drawn from.', minimum=4
    )
    others: int = setting(1000, 'Limit on the held-out clients that are looked at.', minimum=4)
    reference_model: str | None = setting(
        None,
        'A language model of other text with the same vocabulary, such as that of '
        'dpfl pretrain: the attack then looks at how much the loss is below its loss.',
    )
    reference_runs: tuple[str, ...] = setting(
        (),
        'Directories of runs on the same data in which other clients took part, such as runs with '
        'other seeds; comma-separated. The attack then compares the loss of a client with those of '
        'the models that it did not train.',
    )
    confidence: float = setting(
        0.95, 'Confidence of all intervals of all attacks together.', above=0, below=1
    )
    attack_seed: int = setting(
        0, 'Seed of the clients that are looked at, and of the halves.', minimum=0
    )


_RUN = SettingsFlags(output_flags.RunDirConfig)
_CONFIG = SettingsFlags(MembershipConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_EXCEEDS = 1
_BATCH_SIZE = 256


def main() -> None:
    """Checks the flags, attacks the run, and prints what was found."""
    config = _CONFIG.read()
    directory = command_line.required(_RUN.read(), 'run_dir')
    with command_line.refusing_bad_values():
        result = attack(finished_run.open_run(directory), config)
    output_flags.show(_FORMAT, result.to_dict(), _text(result.to_dict()), allow_nan=False)
    if any(test.exceeds for outcome in result.outcomes.values() for test in outcome.tests):
        print(f'error: {directory}: an attack exceeds the guarantee', file=sys.stderr)
        sys.exit(_EXCEEDS)


def _text(values: dict[str, Any]) -> str:
    """The results as tables."""
    attacks = values.pop('attacks')
    alike = {f'p_value_of_{name}': value for name, value in values.pop('alike').items()}
    rows = [
        {
            'attack': name,
            'auc': outcome['auc'],
            'p_value': outcome['p_value'],
            'at_fpr': test['target_fpr'] or 'best',
            'fpr': test['fpr']['value'],
            'fpr_upper': test['fpr']['upper'],
            'tpr': test['tpr']['value'],
            'tpr_lower': test['tpr']['lower'],
            'advantage': test['advantage']['value'],
            'allowed_tpr': test['allowed_tpr'],
        }
        for name, outcome in attacks.items()
        for test in (*outcome['tests'], outcome['best'])
    ]
    return f'{plain_text.table({**values, **alike})}\n\n{plain_text.columns(rows)}'


@dataclasses.dataclass(frozen=True)
class Attacked:
    """Results of the attacks on the clients of a run.

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
    outcomes: dict[str, scores.Outcome]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; an infinite epsilon is None."""
        return {
            'members': self.members,
            'others': self.others,
            'members_are': self.members_are,
            'epsilon': _json.finite(self.epsilon),
            'delta': self.delta,
            'alike': self.alike,
            'attacks': {name: outcome.to_dict() for name, outcome in self.outcomes.items()},
        }


def attack(run: FinishedRun, config: MembershipConfig) -> Attacked:
    """Attacks the clients of a run on text.

    Raises:
      ArgumentError: if the run is not on text, or too few clients have any; if a reference model
        has another vocabulary, or a reference run has other data.
      DataError: if the data cannot be read.
      StorageError: if a file of a run cannot be read.
    """
    if run.task.task not in TEXT_TASKS:
        raise ArgumentError('run_dir', run.directory, 'must be a run on text')
    task, population = open_task(run)
    is_amplified = run.report.plan.sampling is not None
    rng = _random.generator('membership.in', config.attack_seed)
    everyone = np.arange(population) if is_amplified else run.log.by_client().clients
    chosen = rng.permutation(everyone)[: config.members].astype(np.int64)
    inside, with_text = ClientRows.of_training(task, chosen).with_text()
    outside, _ = ClientRows.of_heldout(task, config.others).with_text()
    chosen = chosen[with_text]
    for clients, name in ((inside, 'members'), (outside, 'others')):
        if clients.count < 4:
            raise ArgumentError(name, clients.count, 'must be at least 4 clients with text')

    def losses(model: 'saved_models.LanguageModel') -> tuple[np.ndarray, np.ndarray]:
        if model.vocabulary != run.model.vocabulary:
            name, value = 'reference_model', config.reference_model
            raise ArgumentError(name, value, 'must have the vocabulary of the run')
        return inside.mean_losses(model), outside.mean_losses(model)

    own_in, own_out = losses(run.model)
    pairs = {'loss': (-own_in, -own_out)}
    alike = {'tokens': _alike(inside.tokens, outside.tokens)}
    if config.reference_model is not None:
        from dpfl.tasks.text.models import saved_models

        with renaming(path='reference_model'):
            first_in, first_out = losses(saved_models.load(config.reference_model))
        alike['reference_model'] = _alike(first_in, first_out)
        pairs['reference_model'] = (first_in - own_in, first_out - own_out)
    if config.reference_runs:
        runs = [_reference_run(path, run) for path in config.reference_runs]
        others_in, others_out = zip(*(losses(one.model) for one in runs), strict=True)
        took_part = np.array([one.participations(chosen) > 0 for one in runs])
        nobody = np.zeros((len(runs), outside.count), bool)
        of_in = scores.against_references(own_in, np.array(others_in), took_part)
        of_out = scores.against_references(own_out, np.array(others_out), nobody)
        pairs['reference_runs'] = of_in[~np.isnan(of_in)], of_out
    evaluated = functools.partial(
        scores.evaluate,
        allowed=None if math.isinf(run.epsilon) else functools.partial(_allowed, run),
        confidence=1 - (1 - config.confidence) / len(pairs),
        seed=config.attack_seed,
    )
    return Attacked(
        members=inside.count,
        others=outside.count,
        members_are='population' if is_amplified else 'took part',
        epsilon=run.epsilon,
        delta=run.delta,
        alike=alike,
        outcomes={name: evaluated(*pair) for name, pair in pairs.items()},
    )


def open_task(run: FinishedRun) -> tuple[FederatedTask, int]:
    """The task of a run without its secrets, and the number of clients to train on."""
    from dpfl.simulation.training import prepared_task

    config = run.config
    before = prepared_task.of_run(config, kept=prepared_task.recorded(run.directory))
    opened = run.task.open(config.seed, execution.teller(False), before)
    return opened.load(), opened.population(config.sampling.population)


def _alike(inside: np.ndarray, outside: np.ndarray) -> float:
    """P-value of the hypothesis that both have one distribution (Mann and Whitney)."""
    return float(stats.mannwhitneyu(inside, outside, alternative='two-sided').pvalue)


def _allowed(run: FinishedRun, rate: float) -> float:
    """The largest true positive rate that the guarantee of a run allows."""
    return run.report.tradeoff_at((rate,)).points[0][1]


def _reference_run(path: str, run: FinishedRun) -> FinishedRun:
    """A run on the same data, whose clients have the same ids."""
    with renaming(run_dir='reference_runs'):
        reference = finished_run.open_run(path)
        seed = reference.config.seed
    same, other = run.task, reference.task
    is_synthetic = same.task == 'synthetic_text'
    if (same.task, same.data, same.text) != (other.task, other.data, other.text) or (
        is_synthetic and run.config.seed != seed
    ):
        raise ArgumentError('reference_runs', path, 'must be runs on the same data')
    return reference


@dataclasses.dataclass(frozen=True)
class ClientRows:
    """The text of clients.

    Attributes:
      x, y: inputs and targets, int32 [rows, L].
      owners: the client of each row, integers from 0, [rows].
      count: number of clients; those without rows have none.
    """

    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray
    count: int

    @classmethod
    def of_training(cls, task: FederatedTask, clients: Iterable[int]) -> 'ClientRows':
        """The text of training clients, as they train on it in one epoch."""
        data = [task.client_batches(int(client), _BATCH_SIZE, 1, None) for client in clients]
        sizes = [sum(len(batch['x']) for batch in batches) for batches in data]
        joined = [batch for batches in data for batch in batches]
        return cls._of_batches(joined, np.repeat(np.arange(len(data)), sizes), len(data))

    @classmethod
    def of_heldout(cls, task: FederatedTask, count: int) -> 'ClientRows':
        """The text of the first held-out clients."""
        assert task.heldout_owners is not None  # All tasks of text tell clients apart.
        owners = np.asarray(task.heldout_owners(count))
        batches = list(task.heldout(count, _BATCH_SIZE))
        return cls._of_batches(batches, owners, int(owners.max(initial=-1)) + 1)

    @classmethod
    def _of_batches(cls, batches: Sequence[Any], owners: np.ndarray, count: int) -> 'ClientRows':
        if not batches:
            nothing = np.zeros((0, 1), np.int32)
            return cls(nothing, nothing, owners, count)
        return cls(**federated_task.pooled(batches), owners=owners, count=count)

    @property
    def tokens(self) -> np.ndarray:
        """Number of targets of each client, int64 [clients]."""
        from dpfl.tasks.text.tokenization import PAD_ID

        return np.bincount(self.owners, (self.y != PAD_ID).sum(axis=1), self.count).astype(int)

    def with_text(self) -> tuple['ClientRows', np.ndarray]:
        """The clients that have a target, renumbered from 0; which clients these are, [clients]."""
        kept = self.tokens > 0
        rows, number = kept[self.owners], np.cumsum(kept) - 1
        owners, count = number[self.owners[rows]], int(np.count_nonzero(kept))
        return ClientRows(self.x[rows], self.y[rows], owners, count), kept

    def mean_losses(self, model: 'saved_models.LanguageModel') -> np.ndarray:
        """Mean cross entropy of each client over its targets, in nats, float64 [clients].

        Each client must have a target.
        """
        from dpfl.tasks.text.models import generation

        totals, _ = generation.scorer(model.architecture, model.weights)(self.x, self.y)
        return np.bincount(self.owners, totals, self.count) / self.tokens


if __name__ == '__main__':
    command_line.run(main)
