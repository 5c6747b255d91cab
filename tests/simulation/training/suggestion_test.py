"""Proposals for own text: what they follow from, and that they are worth following."""

import dataclasses
import itertools
import pathlib

import numpy as np
import pytest

from dpfl import _random, accounting, mechanisms
from dpfl.errors import ArgumentError
from dpfl.planning import feasibility
from dpfl.simulation.training import (
    PrivacyConfig,
    SamplingConfig,
    TaskConfig,
    suggestion,
    suggestion_search,
    train,
    trial,
)
from dpfl.simulation.training.round_config import participation
from dpfl.simulation.training.suggestion import SuggestConfig, suggest
from dpfl.tasks.config import TextConfig
from dpfl.tasks.text import text_task
from dpfl.tasks.text.text_statistics import TextStatistics
from dpfl.tasks.text.vocabulary import Vocabulary
from tests import text_files
from tests.sizes import trains, trains_long


def test_statistics_are_those_of_the_words():
    clients = [[['a', 'b', 'a']], [['c'], ['a', 'x', 'y', 'z'], ['a']]]
    found = TextStatistics.of(clients, Vocabulary(('a', 'b', 'c')))
    assert found.words.tolist() == [3, 6] and found.sentences.tolist() == [1, 3]
    assert found.covered.tolist() == pytest.approx([0, 4 / 9, 5 / 9, 6 / 9])
    assert found.oov_share == pytest.approx(3 / 9)
    assert found.words_that_cover(0.5) == 2 and found.words_that_cover(0.9) is None
    assert found.covered_beside(1).tolist() == pytest.approx([1 / 9, 5 / 9, 6 / 9])
    assert found.words_that_cover(0.5, last=1) == 1 and found.words_that_cover(0.9, last=1) is None
    assert found.length_that_covers(0.5) == 1 and found.length_that_covers(0.9) == 4
    assert found.quantile_of_words(0.1) == 3
    few = TextStatistics.of(clients, Vocabulary(('a', 'b', 'c')), max_words=2)
    assert few.words.tolist() == [2, 2] and few.sentences.tolist() == [1, 2]


def _silent(schema, cohort):
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(schema.rounds),
        participation=schema,
        clip_norm=1.0,
        noise_multiplier=0.0,
        clients_per_round=cohort,
    )


@pytest.mark.parametrize('population', [12, 500, 40_000])
@pytest.mark.parametrize('epsilon', [None, 8.0])
def test_proposed_schemas_can_be_kept(population, epsilon):
    goal = suggestion.Goal(population, epsilon, suggestion.usual_delta(population))
    assert goal.delta < 1 / population
    options = goal.options(None)
    for rounds, participations in itertools.product(*options.values()):
        schema = goal.schema(rounds, participations)
        config = SamplingConfig(**schema)
        kept = participation(config)
        sampler = config.sampler(_silent(kept, config.clients_per_round), population, 0)
        seen = np.concatenate([sampler.cohort(t) for t in range(rounds)])
        assert max(np.unique(seen, return_counts=True)[1]) <= kept.count
        # The flag file may be followed by other rounds: participations follow them.
        fewer = dataclasses.replace(config, rounds=max(rounds // 5, config.min_separation))
        assert participation(fewer).count == -(-fewer.rounds // config.min_separation)
    values = {'rounds': rounds, 'participations': participations, 'clip_norm': 0.5}
    plan = goal.plan(values)
    assert plan.clients_per_round == schema['clients_per_round'] and plan.clip_norm == 0.5
    if epsilon is None:
        assert plan.noise_multiplier == 0 and len(options['rounds']) == 1
    else:
        found = plan.epsilon(goal.delta, 'analytic_gaussian')
        assert found == pytest.approx(epsilon, rel=1e-6)
        words = accounting.ReleaseBefore('words', 8.0, delta=goal.delta / 2)
        with_words = dataclasses.replace(goal, before=(words,)).plan(values)
        assert with_words.noise_multiplier > plan.noise_multiplier
        found = with_words.epsilon(goal.delta, 'analytic_gaussian')
        assert found == pytest.approx(epsilon, rel=1e-6)


def test_a_search_climbs_and_says_where_it_ends():
    tried = []

    def score(values):
        tried.append(tuple(values.values()))
        return -((values['x'] - 5) ** 2) - (values['y'] - 1) ** 2

    options = {'x': [1, 2, 3, 4], 'y': [0, 1, 2, 3], 'z': [7]}
    start = {'x': 2, 'y': 2, 'z': 7}
    found = suggestion_search.climb(options, start, score, ['x', 'y', 'z', 'x'])
    assert found.best == {'x': 4, 'y': 1, 'z': 7} and found.ends == {'x': 'largest'}
    assert set(found.scores['y']) == {0, 1, 2, 3} and found.scores['z'] == {7: -1}
    assert len(tried) == len(set(tried)) < 9


_PLAN = suggestion.Goal(360, 4.0, 1e-3).plan({'rounds': 50, 'participations': 5, 'clip_norm': 1.0})


@pytest.mark.parametrize(
    'accuracy, learns_at, dimension, feasible, words',
    [
        (0.3, 1, 1000, 'yes', 'always the most frequent word has 0.14'),
        (0.3, 1, 100_000, 'doubtful', 'it may hide'),  # The estimate of the noise says so.
        (0.15, 1, 1000, 'doubtful', 'little enough'),  # Hardly more than the most frequent word.
        (0.02, 4, 1000, 'no', '1/4 of the noise learned: that takes about 1,440 clients with 144'),
        (0.02, 99, 1000, 'no', 'the text of these clients is too little'),
    ],
)
def test_the_verdict_is_that_of_the_trial(accuracy, learns_at, dimension, feasible, words):
    goal = suggestion.Goal(360, 4.0, 1e-3)
    measures = {'accuracy': accuracy, 'unigram_accuracy': 0.14, 'bigram_accuracy': 0.6}
    found = suggestion_search.judged(
        _PLAN,
        dimension,
        goal,
        measures,
        lambda factor: 0.2 if factor >= learns_at else 0.1,
        'analytic_gaussian',
    )
    assert found.feasible == feasible and words in ' '.join(found.advice)
    assert found.noise_to_signal == pytest.approx(
        feasibility.estimate(_PLAN, dimension).noise_to_signal
    )


@pytest.mark.parametrize('accuracy, feasible', [(0.3, 'doubtful'), (0.0, 'no')])
def test_a_trial_without_other_text_has_nothing_to_compare_with(accuracy, feasible):
    goal, measures = suggestion.Goal(360, 4.0, 1e-3), {'accuracy': accuracy}
    found = suggestion_search.judged(
        _PLAN, 1000, goal, measures, lambda factor: 0.0, 'analytic_gaussian'
    )
    assert found.feasible == feasible and 'too little other text' in found.advice[0]


@pytest.fixture(scope='module', name='task')
def _task(tmp_path_factory):
    path = tmp_path_factory.mktemp('text')
    text_files.write_clients(path / 'a.jsonl', 120)
    text_files.write_words(path / 'words.txt')
    return TaskConfig(task='user_text', model='micro').with_values(
        {'data_path': str(path / 'a.jsonl'), 'vocabulary_file': str(path / 'words.txt')}
    )


@trains
def test_a_proposal_is_a_configuration_with_reasons_and_a_verdict(task):
    found = suggest(task, SuggestConfig(rounds=2, target_epsilon=0.01), tell=lambda text: None)
    values = {each.name: each.value for each in found.proposals}
    assert found.config.flat() == {**found.config.flat(), **values}
    assert {'clip_norm', 'server_learning_rate', 'clients_per_round', 'delta'} <= {*values}
    assert found.feasibility.feasible == 'no' and found.feasibility.noise_to_signal > 10
    assert {*found.config.chosen_without_noise} == {
        each.name for each in found.proposals if each.is_from_data
    }


@pytest.mark.parametrize(
    'settings, epsilon, expected',
    [
        ({}, 4.0, {'vocabulary': 'private', 'vocabulary_epsilon': 1.0}),
        ({}, None, {'vocabulary': 'data'}),
        ({'vocabulary_text': 'public.txt'}, 4.0, {}),
    ],
)
def test_words_that_nothing_gives_are_found_with_a_guarantee(settings, epsilon, expected):
    found = suggestion._vocabulary(TextConfig(**settings), epsilon)
    assert {each.name: each.value for each in found} == expected
    assert not any(each.is_from_data for each in found)


@trains
def test_a_proposal_without_words_is_that_of_a_run_that_finds_them(task, monkeypatch):
    # Calibration by 'pld' would take most of the time.
    monkeypatch.setattr(PrivacyConfig, 'accountant_of', lambda *_: 'analytic_gaussian')
    said = []
    private = task.with_values({'vocabulary_file': None})
    found = suggest(private, SuggestConfig(rounds=2, target_epsilon=40.0), tell=said.append)
    assert found.config.task.text.vocabulary_epsilon == 10.0
    (draw,) = [text for text in said if text.startswith('a trial of the draw: vocabulary: ')]
    words = int(draw.split()[6])
    assert 0 < found.config.task.text.vocabulary_size <= words <= 31


@trains_long
def test_a_run_as_proposed_beats_the_most_frequent_word(task, tmp_path):
    found = suggest(task, SuggestConfig(rounds=20, target_epsilon=50.0), tell=lambda text: None)
    values = {each.name: each.value for each in found.proposals}
    assert found.feasibility.feasible == 'yes'
    assert found.data['clients_to_train_on'] == 108
    assert values['sentence_length'] == 10 and values['vocabulary_size'] == 31
    assert found.config.flat() == {**found.config.flat(), **values}
    result = train(found.config, tmp_path / 'run', progress=False)
    unigram = result.reference_accuracies['unigram_accuracy']
    assert result.reference_accuracies['bigram_accuracy'] > 2 * unigram
    assert result.last['accuracy'] > 1.5 * unigram
    assert result.report.guarantee.epsilons[0] <= 50
    assert (tmp_path / 'run' / 'plots' / 'training.png').exists()


def test_marks_that_are_added_to_a_file_are_not_words_of_it(task, tmp_path):
    words = pathlib.Path(task.text.vocabulary_file).read_text().replace('.\n', '')
    (tmp_path / 'words.txt').write_text(words)
    path = str(tmp_path / 'words.txt')
    lacking = task.with_values({'vocabulary_file': path})
    data = text_task.TextTask(lacking, 0, lambda text: None).word_task
    statistics = TextStatistics.of([[['waa', 'wab', 'zzz']]], data.vocabulary)
    found = suggestion.vocabularies(lacking, statistics, data.vocabulary)
    assert [*found] == [30] and len(found[30][0].words) == 30 + 32


@trains
def test_a_trial_is_local_training_and_a_mean(task):
    """One client with one batch: a step of gradient descent by finite differences."""
    from dpfl.tasks.text.models import saved_models

    model = saved_models.build('micro', 12, 5, 0)
    batch = {
        'x': np.array([[1, 5, 6, 7, 8]], np.int32),
        'y': np.array([[5, 6, 7, 8, 2]], np.int32),
    }
    trials = trial.Trials(model, lambda client: [batch], [batch], 1)
    found = [trials.free(rate) for rate in (0.5, 1e-6, 1e9)]
    assert found[0].loss < found[1].loss < np.log(12) + 0.5 and not found[2].norms.any()
    weights = [np.array(weight) for weight in model.initial_weights[0]]

    def loss(bias):
        changed = (*weights[:-1], bias)
        output = model.predict_on_batch((changed, ()), batch['x'], training=True)
        return float(model.loss(output=output, label=batch['y']))

    gradient = [
        (loss(weights[-1] + step) - loss(weights[-1] - step)) / 0.02
        for step in 0.01 * np.eye(weights[-1].size, dtype=np.float32)
    ]
    # The bias has most of the gradient at first; the trial's last round has moved a little.
    assert found[1].norms[0] >= 0.9e-6 * np.linalg.norm(gradient)


@pytest.mark.tff
def test_a_trial_clips_and_has_the_noise_of_its_plan():
    plan = dataclasses.replace(_PLAN, clip_norm=0.01)
    zeros, size = [np.zeros([300, 5], np.float32)], 1500
    noise = trial._Noise(plan, size, 3)
    rows = np.array([noise.added(t, zeros)[0].ravel() for t in range(50)])
    z = _random.generator('suggest.noise', 3).standard_normal([50, size])
    exact = np.linalg.solve(plan.mechanism.strategy_matrix(), z)
    scale = 0.01 * plan.noise_multiplier / plan.clients_per_round
    np.testing.assert_allclose(rows, scale * exact, rtol=1e-4, atol=1e-7)


def test_only_own_text_of_several_clients_gets_proposals():
    absent = TaskConfig(task='user_text').with_values({'data_path': 'absent'})
    for make, arguments, message in (
        (suggestion.Goal, (360, 4.0, 0.003), 'delta=0.003: must be < 1 / 360.* 0.001 is taken'),
        (suggest, (TaskConfig(), SuggestConfig()), 'task=synthetic_text: must be one of stackov'),
        (suggest, (absent, SuggestConfig()), 'data_path=absent: must be a file'),
    ):
        with pytest.raises(ArgumentError, match=message):
            make(*arguments)
