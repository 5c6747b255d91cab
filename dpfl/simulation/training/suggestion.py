"""Proposes the settings of a run from the data of its clients, with a reason for each.

The rules are rules of thumb. They look at the private data, and so does the short trial that
chooses a learning rate: no guarantee covers what a proposal reveals.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.config import REAL_TASKS, TaskConfig
from dpfl.tasks.text import real_task, vocabulary
from dpfl.tasks.text.text_statistics import TextStatistics

NOT_PRIVATE = (
    'Not private: the proposal was made by looking at the text of the clients, without noise. The '
    'guarantee of a run does not cover how its settings were chosen, and --chosen_without_noise '
    'makes its report say so. Choose them on other data, or on clients that do not take part, '
    'where that matters.'
)
# Share of the words that a proposed vocabulary covers, and of the sentences that are not cut.
_COVERED, _UNCUT = 0.95, 0.9
# Local steps per client to aim for, and how large a batch may become.
_STEPS, _LARGEST_BATCH = 4, 16
_RATES = (0.5, 1.0, 2.0)
_COHORT_WITHOUT_NOISE, _LARGEST_COHORT, _LEAST_COHORT = 50, 1000, 10
_HELDOUT = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuggestConfig(Settings):
    """What a proposal is asked for."""

    rounds: int = setting(150, 'Rounds of the run.', minimum=1)
    target_epsilon: float | None = setting(
        None,
        'Epsilon that the run should have; by default it has no noise, to see first whether it '
        'learns anything.',
        above=0,
    )
    sample_clients: int = setting(
        1000, 'How many clients are looked at; they are a random sample.', minimum=1
    )


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


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """The proposal for a data set.

    Attributes:
      data: facts about the data, by name; exact, and not private.
      proposals: one for each setting that is proposed.
      config: the configuration of the run.
    """

    data: dict[str, Any]
    proposals: tuple[Proposal, ...]
    config: TrainConfig


def suggest(
    task: TaskConfig, wishes: SuggestConfig, seed: int = 0, tell: Callable[[str], None] = print
) -> Suggestion:
    """Proposes the settings of a run with text of one's own.

    Args:
      task: the data, with a vocabulary as training needs it.
      wishes: what is asked for.
      seed: of the run.
      tell: gets sentences about the data that were found.

    Raises:
      ArgumentError: if a value is not allowed, or the data cannot be used.
    """
    if task.task not in REAL_TASKS:
        raise ArgumentError('task', task.task, f'must be one of {", ".join(REAL_TASKS)}')
    words = task.text.client_max_tokens or None
    source = real_task.RealTextTask(task, seed, tell)
    clients = source.data.task.training
    looked_at = min(wishes.sample_clients, clients.count)
    statistics = TextStatistics.of(
        map(clients.sentences, range(looked_at)), source.data.task.vocabulary, words
    )
    data = _facts(statistics, clients.count, source.data.baselines(_HELDOUT))
    proposals = _of_text(task, statistics, _added_marks(task, source.data.task.vocabulary))
    proposals += of_schema(wishes, clients.count)
    proposals += _of_local_training(statistics)
    values = {each.name: each.value for each in proposals}
    config = TrainConfig(task=task, seed=seed).with_values(values)
    proposals += _of_trial(config, tell)
    values = {each.name: each.value for each in proposals}
    values['chosen_without_noise'] = tuple(each.name for each in proposals if each.is_from_data)
    return Suggestion(data, tuple(proposals), config.with_values(values))


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
    added = task.text.vocabulary_file and task.text.vocabulary_marks
    if not added or len(words.words) <= len(marks):
        return 0
    return len(marks) if tuple(words.words[-len(marks) :]) == tuple(marks) else 0


def _of_text(task: TaskConfig, statistics: TextStatistics, marks: int) -> list[Proposal]:
    length = min(max(5 * math.ceil(statistics.length_that_covers(_UNCUT) / 5), 10), 40)
    found = [
        Proposal(
            'sentence_length',
            length,
            f'{_UNCUT:.0%} of the sentences have at most '
            f'{statistics.length_that_covers(_UNCUT)} words',
        )
    ]
    size = statistics.words_that_cover(_COVERED, marks)
    if task.text.vocabulary_size is None:
        covered = statistics.covered_beside(marks)
        most = covered.size - 1
        rounded = most if size is None else min(100 * math.ceil(max(size, 1) / 100), most)
        share = covered[rounded]
        found.append(
            Proposal('vocabulary_size', rounded, f'covers {share:.1%} of the words of the clients')
        )
    return found


def of_schema(wishes: SuggestConfig, population: int) -> list[Proposal]:
    """Rounds, cohorts, separation and noise for a number of clients."""
    rounds = wishes.rounds
    if wishes.target_epsilon is None:
        cohort = min(_COHORT_WITHOUT_NOISE, population)
        why = 'enough for a steady mean without noise; with noise, more clients hide it better'
        mechanism = Proposal(
            'mechanism',
            'none',
            'no noise and no guarantee: a run that does not learn without noise does not with it',
            is_from_data=False,
        )
        noise = [mechanism]
    else:
        cohort = max(min(population // rounds, _LARGEST_COHORT), _LEAST_COHORT)
        cohort = min(cohort, population)
        why = (
            f'{population} clients / {rounds} rounds: as many as can take part without returning '
            'too often; the noise of the mean is divided by this number'
        )
        delta = 10.0 ** -math.ceil(1.1 * math.log10(max(population, 10)))
        noise = [
            Proposal(
                'mechanism',
                'auto',
                'the mechanism with the least noise for the schema',
                is_from_data=False,
            ),
            Proposal('target_epsilon', wishes.target_epsilon, 'as asked for', is_from_data=False),
            Proposal('delta', delta, f'below 1 / {population} ** 1.1'),
        ]
    apart = max(min(population // cohort, rounds), 1)
    times = -(-rounds // apart)
    return [
        Proposal(
            'rounds', rounds, 'as asked for, or the default of this proposal', is_from_data=False
        ),
        Proposal('clients_per_round', cohort, why),
        Proposal(
            'min_separation',
            apart,
            f'{population} clients / {cohort} per round: a client returns after so many rounds',
        ),
        Proposal('max_participations', times, f'{rounds} rounds / {apart} between two, rounded up'),
        *noise,
        Proposal('eval_every', max(rounds // 10, 1), 'ten points of the curve', is_from_data=False),
    ]


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
            'server_learning_rate', 1.0, 'applies the mean update as it is', is_from_data=False
        ),
        Proposal(
            'server_momentum',
            0.9,
            'sums about ten updates: faster, and steadier',
            is_from_data=False,
        ),
    ]


def _of_trial(config: TrainConfig, tell: Callable[[str], None]) -> list[Proposal]:
    """Learning rate and clip norm, from a short trial with the settings so far."""
    import numpy as np

    from dpfl.simulation.training import trial

    loaded = real_task.RealTextTask(config.task, config.seed, lambda text: None).load()
    how = config.optimization
    assert loaded.population is not None
    tell('trying learning rates on a few clients')
    trials = trial.compare(
        loaded.model,
        lambda client: loaded.client_batches(client, how.client_batch_size, how.client_epochs, 32),
        list(loaded.heldout(_HELDOUT, 64).as_numpy_iterator()),
        _RATES,
        loaded.population,
    )
    best = min(trials, key=lambda each: each.loss)
    losses = ', '.join(f'{each.loss:.3g} with {each.learning_rate:g}' for each in trials)
    has_noise = config.privacy.mechanism != 'none'
    share = 0.5 if has_noise else 0.9
    norm = float(np.quantile(best.norms, share))
    clip = float(f'{norm if norm > 0 else 1.0:.2g}')
    return [
        Proposal(
            'client_learning_rate',
            best.learning_rate,
            f'least loss on held-out clients after a short trial without noise: {losses}',
        ),
        Proposal(
            'clip_norm',
            clip,
            f'{share:.0%} of the updates of the trial are shorter'
            + ('; a larger norm brings more noise' if has_noise else '; clips only the longest'),
        ),
    ]
