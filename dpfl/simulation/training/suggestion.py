"""Proposes the settings of a run from the data of its clients, with a reason for each.

Sentences and clients decide the rows and the local training by rules of thumb. Model, cohort,
rounds, clip norm and server rate are searched by trials with the noise that the run would have.
Both look at the private data: no guarantee covers a proposal.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl import Participation, accounting, mechanisms
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError, one_of
from dpfl.planning.feasibility import Feasibility
from dpfl.simulation.training import prepared_task
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import (
    DATA_VOCABULARY,
    PRIVATE_VOCABULARY,
    REAL_TASKS,
    VOCABULARY_SOURCES,
    TaskConfig,
    TextConfig,
)
from dpfl.tasks.text import text_task, vocabulary
from dpfl.tasks.text.text_statistics import TextStatistics

_ROUNDS, _ROUNDS_WITHOUT_NOISE = (50, 100, 200), 150
# Rounds in which a client takes part, on average, that are tried. More of them make the cohorts
# larger: without correlated noise, that of the final model falls with the square root.
_PARTICIPATIONS = (1, 2, 5, 10, 20, 50, 100)
_LEAST_COHORT, _LARGEST_COHORT, _COHORT_WITHOUT_NOISE = 10, 1000, 50
# Updates of clients in a run that takes minutes on two cores; more of them only where every client
# takes part once.
_FEW_UPDATES = 12_000
# The noise of a trial needs no better accountant, and there are many trials.
_ACCOUNTANT = 'analytic_gaussian'
NOT_PRIVATE = (
    'Not private: the proposal was made by looking at the text of the clients, without noise. The '
    'guarantee of a run does not cover how its settings were chosen, and --chosen_without_noise '
    'makes its report say so. Choose them on other data, or on clients that do not take part, '
    'where that matters.'
)
# Models to try, the smallest first.
MODELS = ('micro', 'tiny', 'small')
# Shares of the words that vocabularies cover which are tried, and of the sentences not cut.
_COVERED, _UNCUT = (0.7, 0.85, 0.95), 0.9
# The clients that are looked at; they are a random sample.
_MOST_CLIENTS = 1000
# Part of epsilon for finding the words of a private vocabulary.
_VOCABULARY_SHARE = 0.25
# Local steps per client to aim for, the most, and how large a batch may become.
_STEPS, _MOST_STEPS, _LARGEST_BATCH = 2, 3, 32


@dataclasses.dataclass(frozen=True)
class Goal:
    """The guarantee that a run should have.

    Attributes:
      population: number of clients to train on.
      epsilon: of the run; None for a run without noise.
      delta: of the run.
      before: the releases of the run before its first round.

    Raises:
      ArgumentError: if delta is not below 1 / population; a mechanism that publishes a random
        client would keep such a guarantee.
    """

    population: int
    epsilon: float | None
    delta: float
    before: tuple[accounting.ReleaseBefore, ...] = ()

    def __post_init__(self):
        if self.epsilon is not None and self.delta * self.population >= 1:
            raise ArgumentError(
                'delta',
                self.delta,
                f'must be < 1 / {self.population}, the number of clients; without it '
                f'{usual_delta(self.population):g} is taken',
            )

    def cohort(self, rounds: int, participations: int) -> int:
        """Clients per round, if each client takes part in `participations` of `rounds` rounds."""
        if self.epsilon is None:
            return min(_COHORT_WITHOUT_NOISE, self.population)
        wanted = round(self.population * participations / rounds)
        return min(max(wanted, _LEAST_COHORT), _LARGEST_COHORT, self.population)

    def options(self, rounds: int | None) -> dict[str, tuple[int, ...]]:
        """Numbers of `rounds` and of `participations` to try, each with another cohort."""
        if rounds is not None:
            all_rounds: tuple[int, ...] = (rounds,)
        else:
            all_rounds = (_ROUNDS_WITHOUT_NOISE,) if self.epsilon is None else _ROUNDS
        usual = all_rounds[len(all_rounds) // 2]
        cohorts = {
            self.cohort(usual, participations): participations
            for participations in reversed(_PARTICIPATIONS)
        }
        least = min(cohorts)
        kept = sorted(
            participations
            for size, participations in cohorts.items()
            if size == least or size * usual <= _FEW_UPDATES
        )
        return {'rounds': all_rounds, 'participations': tuple(kept)}

    def schema(self, rounds: int, participations: int) -> dict[str, int]:
        """Settings of rounds and cohorts, which all clients can keep."""
        size = self.cohort(rounds, participations)
        separation = max(min(self.population // size, rounds), 1)
        return {'rounds': rounds, 'clients_per_round': size, 'min_separation': separation}

    def plan(self, values: Mapping[str, Any]) -> accounting.PrivacyPlan:
        """The plan of a trial: noise of BandFHU, which needs no optimiser and is nearly the best.

        Args:
          values: `rounds`, `participations` and `clip_norm`.
        """
        chosen = self.schema(values['rounds'], values['participations'])
        rounds, separation = chosen['rounds'], chosen['min_separation']
        participation = Participation(rounds, separation)
        fields: dict[str, Any] = dict(
            participation=participation,
            clip_norm=values['clip_norm'],
            clients_per_round=chosen['clients_per_round'],
        )
        if self.epsilon is None:
            mechanism: mechanisms.Mechanism = mechanisms.Identity(rounds)
            return accounting.PrivacyPlan(mechanism=mechanism, noise_multiplier=0.0, **fields)
        return accounting.PrivacyPlan.calibrated(
            mechanism=mechanisms.BandedToeplitz.fichtenberger(rounds, separation),
            epsilon=self.epsilon,
            delta=self.delta,
            accountant=_ACCOUNTANT,
            before=self.before,
            **fields,
        )


def usual_delta(population: int) -> float:
    """The largest power of ten that is at most `1 / population ** 1.1`."""
    return 10.0 ** -math.ceil(1.1 * math.log10(max(population, 10)))


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A setting, its proposed value, and why.

    Attributes:
      name: name of the setting.
      value: proposed value.
      reason: why, in a clause.
      is_from_data: whether the value depends on the data of clients, without noise.
    """

    name: str
    value: Any
    reason: str
    is_from_data: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuggestConfig(Settings):
    """What a proposal is asked for."""

    rounds: int | None = setting(
        None, 'Rounds of the run; by default some numbers are tried.', minimum=1
    )
    target_epsilon: float | None = setting(
        None,
        'Epsilon that the run should have; by default it has no noise, to see first whether it '
        'learns anything.',
        above=0,
    )
    delta: float | None = setting(
        None,
        'Delta of the guarantee, below 1 / clients; by default the power of ten below 1 / clients '
        '** 1.1.',
        above=0,
        below=1,
    )


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """The proposal for a data set.

    Attributes:
      data: facts about the data, by name; exact, and not private.
      proposals: one for each setting that is proposed.
      config: the configuration of the run.
      feasibility: whether the run would learn, and advice.
    """

    data: dict[str, Any]
    proposals: tuple[Proposal, ...]
    config: TrainConfig
    feasibility: Feasibility


def suggest(
    task: TaskConfig, wishes: SuggestConfig, seed: int = 0, tell: Callable[[str], None] = print
) -> Suggestion:
    """Proposes the settings of a run with text of one's own.

    Args:
      task: the data. If it names no vocabulary, a run finds one privately, or counts words if it
        has no guarantee. A trial of that draw gives the vocabulary that is looked at.
      wishes: the guarantee and the limits of the search.
      seed: of the run.
      tell: gets sentences about the data that were found, and about each trial.

    Raises:
      ArgumentError: if a value is not allowed, or the data cannot be used.
    """
    if task.task not in REAL_TASKS:
        raise ArgumentError('task', task.task, one_of(task.task, REAL_TASKS))
    if wishes.delta is not None and wishes.target_epsilon is None:
        raise ArgumentError('delta', wishes.delta, 'needs target_epsilon')
    fixed = _vocabulary(task.text, wishes.target_epsilon)
    task = task.with_values({proposal.name: proposal.value for proposal in fixed})
    source = text_task.TextTask(task, seed, tell)
    population = source.clients.training.count
    delta = usual_delta(population) if wishes.delta is None else wishes.delta
    release = prepared_task.word_release(task.text, delta, 'zero_out')

    before = BeforeTraining(
        words=release,
        draw=lambda what, intent, data, find, noise_seed: find(np.random.default_rng(seed)),
    )
    goal = Goal(population, wishes.target_epsilon, delta, before.releases)

    def tell_of_words(text: str) -> None:
        tell(text if release is None else f'a trial of the draw: {text}')

    loaded = source.with_vocabulary(before, tell_of_words)
    clients = loaded.data.training
    looked_at = min(_MOST_CLIENTS, clients.count)
    statistics = TextStatistics.of(
        map(clients.sentences, range(looked_at)),
        loaded.vocabulary,
        task.text.client_max_tokens or None,
    )
    fixed += [_sentence_length(statistics), *_of_local_training(statistics)]
    if wishes.target_epsilon is not None:
        is_given = wishes.delta is not None
        reason = 'as asked for' if is_given else f'below 1 / {clients.count} clients ** 1.1'
        fixed.append(Proposal('delta', goal.delta, reason, is_from_data=not is_given))
    config = TrainConfig(task=task, seed=seed).with_values(
        {proposal.name: proposal.value for proposal in fixed}
    )
    from dpfl.simulation.training import suggestion_search  # Loads TensorFlow.

    searched = suggestion_search.search(
        config,
        loaded,
        goal,
        models=MODELS if task.model is None else (task.model,),
        vocabularies=vocabularies(task, statistics, loaded.vocabulary),
        rounds=wishes.rounds,
        clients=looked_at,
        tell=tell,
    )
    proposals = [*searched.proposals, *fixed]
    values = {proposal.name: proposal.value for proposal in proposals}
    values['chosen_without_noise'] = tuple(
        proposal.name for proposal in proposals if proposal.is_from_data
    )
    data = _facts(statistics, clients.count, searched.baselines)
    return Suggestion(data, tuple(proposals), config.with_values(values), searched.feasibility)


def _facts(
    statistics: TextStatistics, population: int, baselines: dict[str, float]
) -> dict[str, Any]:
    return {
        'clients_to_train_on': population,
        'clients_looked_at': statistics.clients,
        'words_per_client_10': statistics.quantile_of_words(0.1),
        'words_per_client_50': statistics.quantile_of_words(0.5),
        'words_per_client_90': statistics.quantile_of_words(0.9),
        'sentences_per_client_mean': float(statistics.sentences.mean()),
        'share_outside_of_vocabulary': statistics.oov_share,
        **baselines,
    }


def _added_marks(task: TaskConfig, words: vocabulary.Vocabulary) -> int:
    """How many words at the end are marks that every size of `vocabulary_file` has besides."""
    marks = vocabulary.MARKS
    if not task.text.vocabulary_file or len(words.words) <= len(marks):
        return 0
    return len(marks) if tuple(words.words[-len(marks) :]) == tuple(marks) else 0


def _vocabulary(text: TextConfig, epsilon: float | None) -> list[Proposal]:
    """Where the words come from, if nothing says so."""
    if any(getattr(text, name) for name in VOCABULARY_SOURCES):
        return []
    if epsilon is None:
        reason = 'counted on the data, which is not private; this run has no guarantee'
        return [Proposal('vocabulary', DATA_VOCABULARY, reason, is_from_data=False)]
    return [
        Proposal(
            'vocabulary',
            PRIVATE_VOCABULARY,
            'found with a guarantee, as no public words are given',
            is_from_data=False,
        ),
        Proposal(
            'vocabulary_epsilon',
            _VOCABULARY_SHARE * epsilon,
            'a quarter of the epsilon of the run, which counts it',
            is_from_data=False,
        ),
    ]


def _sentence_length(statistics: TextStatistics) -> Proposal:
    covering = statistics.length_that_covers(_UNCUT)
    return Proposal(
        'sentence_length',
        min(max(5 * math.ceil(covering / 5), 10), 40),
        f'{_UNCUT:.0%} of the sentences have at most {covering} words',
    )


def vocabularies(
    task: TaskConfig, statistics: TextStatistics, words: vocabulary.Vocabulary
) -> dict[int, tuple[vocabulary.Vocabulary, float]]:
    """Vocabularies to try, and the shares of the words that they cover, by `vocabulary_size`."""
    marks = _added_marks(task, words)
    covered = statistics.covered_beside(marks)
    most = covered.size - 1
    sizes = {most}
    if task.text.vocabulary_size is None:
        least = (statistics.words_that_cover(share, marks) for share in _COVERED)
        sizes = {
            most if size is None else min(100 * math.ceil(max(size, 1) / 100), most)
            for size in least
        }
    added = words.words[len(words.words) - marks :]
    return {
        size: (vocabulary.Vocabulary((*words.words[:size], *added)), float(covered[size]))
        for size in sorted(sizes)
    }


def _of_local_training(statistics: TextStatistics) -> list[Proposal]:
    mean, median = (
        float(statistics.sentences.mean()),
        float(sorted(statistics.sentences)[statistics.clients // 2]),
    )
    batch = 2 ** max(round(math.log2(max(mean / _STEPS, 1))), 0)
    batch = min(batch, _LARGEST_BATCH)
    epochs = 2 if median < 2 * batch else 1
    return [
        Proposal(
            'client_batch_size',
            batch,
            f'{mean:.1f} sentences per client give about {_STEPS} steps in a pass; one large step '
            'would hardly move the model',
        ),
        Proposal(
            'client_epochs',
            epochs,
            f'half of the clients have at most {median:.0f} sentences'
            + (': two passes, so that they make several steps' if epochs > 1 else ''),
        ),
        Proposal(
            'client_max_batches',
            _MOST_STEPS,
            'the clients with the most text take no longer',
            is_from_data=False,
        ),
        Proposal(
            'server_momentum',
            0.9,
            'sums about ten updates: faster, and steadier',
            is_from_data=False,
        ),
    ]
