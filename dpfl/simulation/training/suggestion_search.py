"""Searches model, cohort, rounds and rates by trials with the noise that the run would have."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl import accounting
from dpfl.planning import feasibility
from dpfl.simulation.training import trial
from dpfl.simulation.training.config import TrainConfig
from dpfl.simulation.training.plan import build_plan
from dpfl.simulation.training.suggestion import Goal, Proposal
from dpfl.tasks.text import text_task
from dpfl.tasks.text.models import saved_models
from dpfl.tasks.text.vocabulary import Vocabulary

_HELDOUT, _HELDOUT_BATCH = 50, 64
_CLIENT_RATES, _SERVER_RATES = (0.5, 1.0, 2.0, 4.0), (0.03, 0.1, 0.3, 1.0, 3.0)
# Clip norms to try, as parts of the median norm of an update.
_CLIPS = (0.1, 0.3, 1.0)
# Of the updates of a trial, that are not clipped without noise.
_UNCLIPPED = 0.9
# The server's rate depends on the other settings, so it is varied at the end again.
_ORDER = (
    'server_learning_rate',
    'clip_norm',
    'model',
    'vocabulary_size',
    'participations',
    'rounds',
    'server_learning_rate',
)
# Above this part of the accuracy of the most frequent word, a trial has learned without doubt.
_CLEAR_GAIN = 1.1
# How much less noise is tried where nothing learns.
_NOISE_DIVISORS = (2, 4, 8, 16, 32)


@dataclasses.dataclass(frozen=True)
class Climbed:
    """Result of `climb`.

    Attributes:
      best: the best value of each setting, by name.
      scores: by name, the score of each value of the setting that was tried, with the values that
        the other settings had when it was last varied.
      ends: 'smallest' or 'largest' by name, for settings whose best value is at that end of the
        values that were tried, so that one beyond may be better.
    """

    best: dict[str, Any]
    scores: dict[str, dict[Any, Any]]
    ends: dict[str, str]


def climb(
    options: Mapping[str, Sequence[Any]],
    start: Mapping[str, Any],
    score: Callable[[dict[str, Any]], Any],
    order: Sequence[str],
) -> Climbed:
    """Varies one setting after the other, and goes on in a direction while the score increases.

    Args:
      options: values of each setting, increasing.
      start: a value of each setting.
      score: of values by name; anything that can be compared. Called once for the same values.
      order: names in the order in which they are varied; a name may occur twice.

    Example:
      >>> climbed = climb({'x': [1, 2, 3], 'y': [1, 2]}, {'x': 1, 'y': 1},
      ...                 lambda values: values['y'] - (values['x'] - 2) ** 2, ['x', 'y'])
      >>> climbed.best, climbed.ends
      ({'x': 2, 'y': 2}, {'y': 'largest'})
    """
    known: dict[tuple, Any] = {}

    def scored(values: dict[str, Any]) -> Any:
        key = tuple(values[name] for name in options)
        if key not in known:
            known[key] = score(values)
        return known[key]

    best = dict(start)
    scores: dict[str, dict[Any, Any]] = {}
    for name in order:
        places = {value: i for i, value in enumerate(options[name])}
        first, tried = places[best[name]], {best[name]: scored(best)}
        for step in (1, -1):
            place = places[best[name]] + step
            while 0 <= place < len(places):
                other = {**best, name: options[name][place]}
                tried[other[name]] = scored(other)
                if not tried[other[name]] > tried[best[name]]:
                    break
                best, place = other, place + step
            if places[best[name]] != first:
                break
        scores[name] = {value: tried[value] for value in sorted(tried, key=places.__getitem__)}
    ends = {}
    for name in scores:
        values = options[name]
        if len(values) > 1 and best[name] in (values[0], values[-1]):
            ends[name] = 'smallest' if best[name] == values[0] else 'largest'
    return Climbed(best, scores, ends)


@dataclasses.dataclass(frozen=True)
class Searched:
    """Result of `search`.

    Attributes:
      proposals: settings with reasons.
      feasibility: verdict on the best of them.
      baselines: measures of predictors that count, with the vocabulary that was found.
    """

    proposals: tuple[Proposal, ...]
    feasibility: feasibility.Feasibility
    baselines: dict[str, float]


def search(
    config: TrainConfig,
    data: text_task.WordTask,
    goal: Goal,
    *,
    models: Sequence[str],
    vocabularies: Mapping[int, tuple[Vocabulary, float]],
    rounds: int | None,
    clients: int,
    tell: Callable[[str], None],
) -> Searched:
    """Finds settings by trials, and estimates whether a run with them would learn.

    Args:
      config: the settings that are decided: task, rows and local training.
      data: the text.
      goal: the guarantee.
      models: names of models, the smallest first.
      vocabularies: vocabularies and the share of the words that each covers, by size.
      rounds: rounds of the run; None to try some.
      clients: how many clients take part in trials.
      tell: gets a sentence for each trial.
    """
    bench = _Bench(config, data, vocabularies, clients)
    options: dict[str, Sequence[Any]] = {
        'server_learning_rate': _SERVER_RATES,
        'model': tuple(models),
        'vocabulary_size': tuple(vocabularies),
        **goal.options(rounds),
    }
    start = {name: values[len(values) // 2] for name, values in options.items()}
    start |= _largest(goal, bench, options, start)
    tell('trying learning rates of clients, without noise')
    free = {rate: bench.trials(start).free(rate) for rate in _CLIENT_RATES}
    client_rate = min(free, key=lambda rate: free[rate].loss)
    norms = free[client_rate].norms
    shares = (_UNCLIPPED,) if goal.epsilon is None else (0.5,)
    norm = float(np.quantile(norms, shares[0])) or 1.0
    parts = (1.0,) if goal.epsilon is None else _CLIPS
    options['clip_norm'] = tuple(float(f'{part * norm:.2g}') for part in parts)
    start['clip_norm'] = options['clip_norm'][len(parts) // 2]
    limit = max(feasibility.FAILS, bench.noise_in_model(goal, start))
    started = time.monotonic()

    def score(values: dict[str, Any]) -> tuple[float, float]:
        noise = bench.noise_in_model(goal, values)
        if noise > limit:  # The largest models of the worst schemas: the noise hides everything.
            return -1.0, -math.inf
        tried = bench.planned(goal, values, client_rate)
        shown = ', '.join(f'{name} {value}' for name, value in _shown(goal, values).items())
        tell(
            f'{time.monotonic() - started:.0f} s: accuracy {tried.accuracy_with_oov:.3g} of all '
            f'words with {shown}'
        )
        return round(tried.accuracy_with_oov, 3), -tried.loss

    climbed = climb(options, start, score, _ORDER)
    best = climbed.best
    vocabulary, share = vocabularies[best['vocabulary_size']]
    baselines = bench.data(vocabulary).baselines(_HELDOUT)
    proposals = _proposals(goal, config, climbed, rounds, share)
    proposals += [
        Proposal(
            'client_learning_rate',
            client_rate,
            'least loss after a few rounds without noise: '
            + ', '.join(f'{tried.loss:.3g} with {rate:g}' for rate, tried in free.items())
            + _end(client_rate, _CLIENT_RATES),
        ),
    ]
    complete = config.with_values({proposal.name: proposal.value for proposal in proposals})
    dimension = bench.dimension(best)
    plan = build_plan(
        complete.privacy,
        complete.sampling,
        population=lambda: goal.population,
        dimension=lambda: dimension,
        before=goal.before,
    )
    # Other noise than in the search, whose result is fitted to its own noise.
    again = bench.planned(goal, best, client_rate, seed=1)
    known = {**baselines, 'accuracy': again.accuracy}

    def with_less(factor: int) -> float:
        return bench.planned(goal, best, client_rate, seed=1, quieter=factor).accuracy

    verdict = judged(plan, dimension, goal, known, with_less, complete.privacy.accountant_of(plan))
    return Searched(tuple(proposals), verdict, baselines)


def judged(
    plan: accounting.PrivacyPlan,
    dimension: int,
    goal: Goal,
    measures: Mapping[str, float],
    with_less: Callable[[int], float],
    accountant: str,
) -> feasibility.Feasibility:
    """The estimate for a plan, corrected by the accuracy of a trial.

    Args:
      plan: of the run.
      dimension: parameters of the model.
      goal: its guarantee.
      measures: `accuracy` of the trial; accuracies of predictors that count, if there are any.
      with_less: the accuracy of a trial with the noise divided by a factor.
      accountant: of epsilon.
    """
    estimate = feasibility.estimate(plan, dimension, goal.delta, accountant)
    accuracy, unigram = measures['accuracy'], measures.get('unigram_accuracy')
    shown = f'A trial of the proposal ended at accuracy {accuracy:.3g}; '
    if unigram is None:
        shown += 'there is too little other text to say what always the most frequent word has.'
    else:
        shown += (
            f'always the most frequent word has {unigram:.3g}, the most frequent word after the '
            f'last one {measures["bigram_accuracy"]:.3g}.'
        )
    least = unigram or 0.0
    if accuracy > least:
        is_clear = estimate.feasible == 'yes' and accuracy >= _CLEAR_GAIN * least
        is_clear = is_clear and unigram is not None
        verdict, advice = 'yes' if is_clear else 'doubtful', (shown, *estimate.advice)
    else:
        nothing = 'Nothing that was tried learns more than that.'
        verdict = 'no'
        advice = (shown, nothing, _what_would_do(plan, goal, least, with_less, accountant))
    return feasibility.Feasibility(verdict, estimate.noise_to_signal, advice)


def _what_would_do(
    plan: accounting.PrivacyPlan,
    goal: Goal,
    unigram: float,
    with_less: Callable[[int], float],
    accountant: str,
) -> str:
    """How many clients, or which epsilon, made a trial learn."""
    if goal.epsilon is None:
        return 'There was no noise: more text, more rounds or another model may help.'
    for factor in _NOISE_DIVISORS:
        if with_less(factor) > unigram:
            quieter = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier / factor)
            epsilon = accounting.round_up(quieter.epsilon(goal.delta, accountant))
            return (
                f'A trial with 1/{factor} of the noise learned: that takes about '
                f'{factor * goal.population:,} clients with {factor * plan.clients_per_round:,} '
                f'per round, or epsilon {epsilon} with the clients that there are.'
            )
    return (
        f'No trial learned with 1/{_NOISE_DIVISORS[-1]} of the noise either: the text of these '
        'clients is too little; a run without --target_epsilon shows what it can teach.'
    )


class _Bench:
    """Trials of any of the settings; models are compiled and clients encoded once."""

    def __init__(
        self,
        config: TrainConfig,
        data: text_task.WordTask,
        vocabularies: Mapping[int, tuple[Vocabulary, float]],
        clients: int,
    ):
        self._config = config
        self._data = data
        self._vocabularies = vocabularies
        self._clients = clients
        self._trials: dict[tuple[str, int], trial.Trials] = {}

    def data(self, vocabulary: Vocabulary) -> text_task.WordTask:
        """The text under another vocabulary, in rows of the proposed length."""
        return dataclasses.replace(self._data, vocabulary=vocabulary, text=self._config.task.text)

    def dimension(self, values: Mapping[str, Any]) -> int:
        """Number of parameters."""
        vocabulary, _ = self._vocabularies[values['vocabulary_size']]
        return saved_models.WORD_MODELS[values['model']].num_parameters(vocabulary.num_tokens)

    def noise_in_model(self, goal: Goal, values: Mapping[str, Any]) -> float:
        """As in `feasibility`."""
        plan = goal.plan({'clip_norm': 1.0, **values})
        return feasibility.noise_in_model(plan, self.dimension(values))

    def trials(self, values: Mapping[str, Any]) -> trial.Trials:
        """Trials of a model and a vocabulary."""
        key = values['model'], values['vocabulary_size']
        if key not in self._trials:
            local, (vocabulary, _) = self._config.optimization, self._vocabularies[key[1]]
            task = self.data(vocabulary)
            encoded: dict[int, Any] = {}

            def batches(client: int) -> Any:
                if client not in encoded:
                    encoded[client] = task.client_batches(
                        client,
                        local.client_batch_size,
                        local.client_epochs,
                        local.client_max_batches,
                    )
                return encoded[client]

            self._trials[key] = trial.Trials(
                saved_models.build(
                    key[0], vocabulary.num_tokens, task.text.sentence_length, self._config.seed
                ),
                batches,
                list(task.heldout_dataset(_HELDOUT, _HELDOUT_BATCH).as_numpy_iterator()),
                self._clients,
            )
        return self._trials[key]

    def planned(
        self,
        goal: Goal,
        values: Mapping[str, Any],
        client_rate: float,
        seed: int = 0,
        quieter: int = 1,
    ) -> trial.Trial:
        """A trial with the noise of the goal divided by `quieter`."""
        plan = goal.plan(values)
        plan = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier / quieter)
        return self.trials(values).planned(plan, client_rate, values['server_learning_rate'], seed)


def _largest(
    goal: Goal, bench: _Bench, options: Mapping[str, Sequence[Any]], start: Mapping[str, Any]
) -> dict[str, Any]:
    """The largest model and vocabulary for which the noise is small enough, or the smallest."""
    fitting = {
        (bench.dimension(values), model, size): values
        for model in options['model']
        for size in options['vocabulary_size']
        for values in [{**start, 'model': model, 'vocabulary_size': size}]
        if bench.noise_in_model(goal, values) <= feasibility.LEARNS
    }
    if fitting:
        values = fitting[max(fitting)]
        return {name: values[name] for name in ('model', 'vocabulary_size')}
    return {name: options[name][0] for name in ('model', 'vocabulary_size')}


def _shown(goal: Goal, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as a run has them, without limits of participation."""
    settings = {name: value for name, value in values.items() if name != 'participations'}
    size = goal.cohort(values['rounds'], values['participations'])
    return {**settings, 'clients_per_round': size}


def _end(value: Any, tried: Sequence[Any]) -> str:
    if len(tried) < 2 or value not in (tried[0], tried[-1]):
        return ''
    side = 'smallest' if value == tried[0] else 'largest'
    return f'; the {side} that was tried, so one beyond may be better'


def _proposals(
    goal: Goal,
    config: TrainConfig,
    climbed: Climbed,
    rounds: int | None,
    share: float,
) -> list[Proposal]:
    best = climbed.best

    def searched(name: str, shown: Callable[[Any], Any] = lambda value: value) -> str:
        if len(climbed.scores[name]) == 1:
            return 'no other was tried'
        tried = (
            f'{shown(value)} has {accuracy:.3g}' if accuracy >= 0 else f'{shown(value)} is hopeless'
            for value, (accuracy, _) in climbed.scores[name].items()
        )
        text = f'best accuracy in trials with the planned noise: {", ".join(tried)}'
        if name in climbed.ends:
            text += f'; the {climbed.ends[name]} that was tried, so one beyond may be better'
        return text

    chosen = goal.schema(best['rounds'], best['participations'])
    size, apart = chosen['clients_per_round'], chosen['min_separation']

    def cohort(participations: int) -> int:
        return goal.cohort(best['rounds'], participations)

    is_private = goal.epsilon is not None
    given = rounds is not None
    mechanism = (
        [
            Proposal('mechanism', 'auto', 'the least noise for the schema', False),
            Proposal('target_epsilon', goal.epsilon, 'as asked for', False),
        ]
        if is_private
        else [
            Proposal(
                'mechanism',
                'none',
                'no noise and no guarantee: what does not learn without noise does not with it',
                False,
            )
        ]
    )
    named = [] if config.task.model is not None else ['model']
    sized = [] if config.task.text.vocabulary_size is not None else ['vocabulary_size']
    notes = {'vocabulary_size': f'covers {share:.1%} of the words of the clients; '}
    return [
        *(
            Proposal(name, best[name], notes.get(name, '') + searched(name))
            for name in (*named, *sized)
        ),
        Proposal(
            'rounds',
            best['rounds'],
            'as asked for' if given else searched('rounds'),
            is_from_data=not given,
        ),
        Proposal('clients_per_round', size, searched('participations', cohort)),
        Proposal(
            'min_separation',
            apart,
            f'{goal.population} clients / {size} per round: a client returns after that many',
        ),
        *mechanism,
        Proposal('clip_norm', best['clip_norm'], searched('clip_norm')),
        Proposal(
            'server_learning_rate', best['server_learning_rate'], searched('server_learning_rate')
        ),
        Proposal(
            'eval_every',
            max(best['rounds'] // 10, 1),
            'ten points of the curve',
            is_from_data=False,
        ),
    ]
