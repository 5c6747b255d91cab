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

A score is larger for clients that more probably took part, such as minus the client's loss. A test
calls a client a member if its score is at least a threshold. Its true positive rate is the share of
members it finds, its false positive rate the share of other clients that it calls members.

Thresholds are chosen on one half of the clients, and rates are measured on the other half, so that
their intervals by Clopper and Pearson are valid for scores that are independent from client to
client. Scores under one model are not exactly so; the intervals do not cover that.
"""

import dataclasses
import functools
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from dpfl import _random, _validate
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import NOT_SHOWN, ArgumentError
from dpfl.reporting import plain_text
from dpfl.simulation.training import execution
from dpfl.tasks.config import TEXT_TASKS
from dpfl.tasks.federated_task import FederatedTask
from experiments.studies.shared import finished_run
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
# False positive rates at which attacks are compared ([Carlini22]).
RATES = (0.001, 0.01, 0.1)
# Least standard deviation of losses, so that equal ones do not divide by zero.
_LEAST_DEVIATION = 1e-6
_EXCEEDS = 1
_BATCH_SIZE = 256


def main() -> None:
    """Checks the flags, attacks the run, and prints what was found."""
    config = _CONFIG.read()
    directory = command_line.required(_RUN.read(), 'run_dir')
    with command_line.refusing_bad_values(path='run_dir'):
        result = attack(finished_run.open_run(directory), config)
    if _FORMAT.read().format == 'json':
        print(json.dumps(result.to_dict(), allow_nan=False))
    else:
        print(_text(result.to_dict()))
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
class Rate:
    """A share of clients, with the ends of its interval by Clopper and Pearson."""

    value: float
    lower: float
    upper: float

    @classmethod
    def of(cls, hits: int, count: int, confidence: float) -> 'Rate':
        """The share `hits / count`, with an interval of this confidence."""
        interval = stats.binomtest(hits, count).proportion_ci(confidence, method='exact')
        return cls(hits / count, float(interval.low), float(interval.high))


@dataclasses.dataclass(frozen=True)
class Test:
    """A test at a threshold.

    Attributes:
      target: false positive rate for which the threshold was chosen; None for the threshold with
        the largest advantage.
      threshold: the least score of clients that are called members.
      true_positives, false_positives: rates on the clients that did not choose the threshold.
      allowed: largest true positive rate that the guarantee allows at the upper end of the false
        positive rate; None without a guarantee.
    """

    target: float | None
    threshold: float
    true_positives: Rate
    false_positives: Rate
    allowed: float | None = None

    @property
    def exceeds(self) -> bool:
        """Whether the test is better than the guarantee allows, beyond the intervals."""
        return self.allowed is not None and self.true_positives.lower > self.allowed

    @property
    def advantage(self) -> Rate:
        """True less false positive rate, with the ends that their intervals give."""
        true, false = self.true_positives, self.false_positives
        return Rate(true.value - false.value, true.lower - false.upper, true.upper - false.lower)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            'target_fpr': self.target,
            'threshold': self.threshold if math.isfinite(self.threshold) else None,
            'tpr': dataclasses.asdict(self.true_positives),
            'fpr': dataclasses.asdict(self.false_positives),
            'advantage': dataclasses.asdict(self.advantage),
            'allowed_tpr': self.allowed,
            'exceeds': self.exceeds,
        }


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How well scores tell members from others.

    Attributes:
      auc: probability that a member has a larger score than another client, ties as one half.
      p_value: of the hypothesis that all clients have the same distribution, against larger scores
        of members (Mann and Whitney; exact for few clients without ties).
      tests: tests for false positive rates, and last that with the largest advantage.
    """

    auc: float
    p_value: float
    tests: tuple[Test, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        *tests, best = (test.to_dict() for test in self.tests)
        return {'auc': self.auc, 'p_value': self.p_value, 'tests': tests, 'best': best}


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
    outcomes: dict[str, Outcome]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; an infinite epsilon is None."""
        return {
            'members': self.members,
            'others': self.others,
            'members_are': self.members_are,
            'epsilon': None if math.isinf(self.epsilon) else self.epsilon,
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
    from dpfl.tasks.text.models import saved_models

    if run.task.task not in TEXT_TASKS:
        raise ArgumentError('run_dir', run.directory, 'must be a run on text')
    model = saved_models.load(run.directory)
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

    def losses(path: str | None) -> tuple[np.ndarray, np.ndarray]:
        of = model if path is None else _reference(path, model)
        return inside.mean_losses(of), outside.mean_losses(of)

    own_in, own_out = losses(None)
    scores = {'loss': (-own_in, -own_out)}
    alike = {'tokens': _alike(inside.tokens, outside.tokens)}
    if config.reference_model is not None:
        first_in, first_out = losses(config.reference_model)
        alike['reference_model'] = _alike(first_in, first_out)
        scores['reference_model'] = (first_in - own_in, first_out - own_out)
    if config.reference_runs:
        runs = [_reference_run(path, run) for path in config.reference_runs]
        others_in, others_out = zip(*(losses(str(one.directory)) for one in runs), strict=True)
        took_part = np.array([one.participations(chosen) > 0 for one in runs])
        nobody = np.zeros((len(runs), outside.count), bool)
        of_in = against_references(own_in, np.array(others_in), took_part)
        of_out = against_references(own_out, np.array(others_out), nobody)
        scores['reference_runs'] = of_in[~np.isnan(of_in)], of_out
    evaluated = functools.partial(
        evaluate,
        allowed=None if math.isinf(run.epsilon) else functools.partial(_allowed, run),
        confidence=1 - (1 - config.confidence) / len(scores),
        seed=config.attack_seed,
    )
    return Attacked(
        members=inside.count,
        others=outside.count,
        members_are='population' if is_amplified else 'took part',
        epsilon=run.epsilon,
        delta=run.delta,
        alike=alike,
        outcomes={name: evaluated(*pair) for name, pair in scores.items()},
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


def _reference(path: str, model: 'saved_models.LanguageModel') -> 'saved_models.LanguageModel':
    from dpfl.tasks.text.models import saved_models

    reference = saved_models.load(path)
    if reference.vocabulary != model.vocabulary:
        raise ArgumentError('reference_model', path, 'must have the vocabulary of the run')
    return reference


def _reference_run(path: str, run: FinishedRun) -> FinishedRun:
    """A run on the same data, whose clients have the same ids."""
    reference = finished_run.open_run(path)
    same, other = run.task, reference.task
    is_synthetic = same.task == 'synthetic_text'
    if (same.task, same.data, same.text) != (other.task, other.data, other.text) or (
        is_synthetic and run.config.seed != reference.config.seed
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
        joined = (batch for batches in data for batch in batches)
        return cls._of_batches(joined, np.repeat(np.arange(len(data)), sizes), len(data))

    @classmethod
    def of_heldout(cls, task: FederatedTask, count: int) -> 'ClientRows':
        """The text of the first held-out clients."""
        assert task.heldout_owners is not None  # All tasks of text tell clients apart.
        owners = np.asarray(task.heldout_owners(count))
        batches = task.heldout(count, _BATCH_SIZE)
        return cls._of_batches(batches, owners, int(owners.max(initial=-1)) + 1)

    @classmethod
    def _of_batches(cls, batches: Iterable, owners: np.ndarray, count: int) -> 'ClientRows':
        parts = [(np.asarray(batch['x']), np.asarray(batch['y'])) for batch in batches]
        if not parts:
            nothing = np.zeros((0, 1), np.int32)
            return cls(nothing, nothing, owners, count)
        x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(x, y, owners, count)

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
        from dpfl.tasks.text.models import saved_models

        totals, _ = saved_models.of_model(model)(self.x, self.y)
        return np.bincount(self.owners, totals, self.count) / self.tokens


def threshold(others: np.ndarray, rate: float) -> float:
    """Least threshold that at most this share of the scores reaches; infinity if none does."""
    reaching = int(math.floor(rate * others.size + 1e-9))
    descending = np.sort(others)[::-1]
    if reaching >= others.size:
        return float(-math.inf)
    # The next larger number keeps those that equal the first score that must not reach it out.
    return float(np.nextafter(descending[reaching], math.inf))


def best_threshold(members: np.ndarray, others: np.ndarray) -> float:
    """Threshold with the largest difference of true and false positive rate."""
    candidates = np.unique(np.concatenate([members, others]))
    true = 1 - np.searchsorted(np.sort(members), candidates) / members.size
    false = 1 - np.searchsorted(np.sort(others), candidates) / others.size
    return float(candidates[np.argmax(true - false)])


def evaluate(
    members: np.ndarray,
    others: np.ndarray,
    *,
    rates: Sequence[float] = RATES,
    allowed: Callable[[float], float] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Outcome:
    """Measures how well scores tell members from others.

    Args:
      members, others: scores of clients, at least two each; finite.
      rates: false positive rates for which thresholds are chosen.
      allowed: maps a false positive rate in (0, 1) to the largest true positive rate that a
        guarantee allows; None without a guarantee.
      confidence: of the intervals. All intervals of the outcome, two for each test, hold at the
        same time with this confidence (Bonferroni).
      seed: of the halves.

    Raises:
      ArgumentError: if there are too few scores, or one is not finite.
    """
    for name, values in (('members', members), ('others', others)):
        if values.ndim != 1 or values.size < 2 or not np.isfinite(values).all():
            raise ArgumentError(name, NOT_SHOWN, 'must be at least two finite scores')
    _validate.number('confidence', confidence, above=0, below=1)
    of_one = 1 - (1 - confidence) / (2 * (len(rates) + 1))
    (chosen_in, tested_in), (chosen_out, tested_out) = (
        _halves(values, seed, i) for i, values in enumerate((members, others))
    )
    thresholds: list[tuple[float | None, float]] = [
        (rate, threshold(chosen_out, rate)) for rate in rates
    ]
    thresholds.append((None, best_threshold(chosen_in, chosen_out)))
    tests = []
    for target, least in thresholds:
        true, false = (
            Rate.of(int(np.count_nonzero(values >= least)), values.size, of_one)
            for values in (tested_in, tested_out)
        )
        most = None
        if allowed is not None:
            most = allowed(false.upper) if false.upper < 1 else 1.0
        tests.append(Test(target, least, true, false, most))
    ordered = stats.mannwhitneyu(members, others, alternative='greater')
    auc = float(ordered.statistic) / members.size / others.size
    return Outcome(auc, float(ordered.pvalue), tuple(tests))


def against_references(
    losses: np.ndarray, reference: np.ndarray, took_part: np.ndarray
) -> np.ndarray:
    """Scores of clients by their losses under reference models that they did not train.

    The losses of a client under such models are taken as normal, with a mean of its own and one
    standard deviation for all clients; the score is by how many of these its loss is below the mean
    (the offline attack of [Carlini22]). Held-out clients train no model, so there is
    nothing to compare their losses with as members.

    Args:
      losses: of each client under the model, [clients].
      reference: of each client under each reference model, [models, clients].
      took_part: whether a client trained a reference model, bool [models, clients].

    Returns:
      Scores, NaN for clients that trained all reference models, [clients].
    """
    known = (~took_part).sum(axis=0)
    without = np.where(took_part, np.nan, reference)
    means = np.full(losses.shape, np.nan)
    np.divide(np.nansum(without, axis=0), known, out=means, where=known > 0)
    # One model alone says nothing of the deviation, which then only scales all scores.
    freedom = int(np.maximum(known - 1, 0).sum())
    squares = float(np.nansum((without - means) ** 2))
    deviation = math.sqrt(squares / freedom) if freedom else 1.0
    return (means - losses) / max(deviation, _LEAST_DEVIATION)


def _halves(values: np.ndarray, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    order = _random.generator('membership.half', seed, number).permutation(values.size)
    return values[order[: values.size // 2]], values[order[values.size // 2 :]]


if __name__ == '__main__':
    command_line.run(main)
