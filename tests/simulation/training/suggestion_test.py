"""Proposals for own text: what they follow from, and that they are worth following."""

import pathlib

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.simulation.training import TaskConfig, suggestion, train, trial
from dpfl.simulation.training.suggestion import SuggestConfig, suggest
from dpfl.tasks.text import real_task
from dpfl.tasks.text.text_statistics import TextStatistics
from dpfl.tasks.text.vocabulary import Vocabulary
from tests import text_files


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


@pytest.mark.parametrize('population', [12, 500, 40_000])
@pytest.mark.parametrize('epsilon', [None, 8.0])
def test_a_proposed_schema_can_be_kept(population, epsilon):
    from dpfl.simulation.training import SamplingConfig
    from dpfl.simulation.training.sampling_config import participation

    proposals = suggestion.of_schema(SuggestConfig(rounds=80, target_epsilon=epsilon), population)
    values = {each.name: each.value for each in proposals}
    names = ('rounds', 'clients_per_round', 'min_separation', 'max_participations')
    config = SamplingConfig(**{name: values[name] for name in names})
    schema = participation(config)
    sampler = config.sampler(schema, population, 0)
    seen = [client for t in range(80) for client in sampler.cohort(t)]
    assert max(np.unique(seen, return_counts=True)[1]) <= schema.count
    assert values['mechanism'] == ('none' if epsilon is None else 'auto')
    assert epsilon is None or values['delta'] < 1 / population


@pytest.fixture(scope='module', name='task')
def _task(tmp_path_factory):
    path = tmp_path_factory.mktemp('text')
    text_files.write_clients(path / 'a.jsonl', 120)
    text_files.write_words(path / 'words.txt')
    return TaskConfig(task='user_text', model='micro').with_values(
        {'data_path': str(path / 'a.jsonl'), 'vocabulary_file': str(path / 'words.txt')}
    )


@pytest.mark.standard
@pytest.mark.tff
def test_a_run_as_proposed_beats_the_most_frequent_word(task, tmp_path):
    found = suggest(task, SuggestConfig(rounds=60), tell=lambda text: None)
    values = {each.name: each.value for each in found.proposals}
    assert found.data['clients_to_train_on'] == 108
    assert values['sentence_length'] == 10 and values['vocabulary_size'] == 31
    assert found.config.flat() == {**found.config.flat(), **values}
    result = train(found.config, tmp_path / 'run', progress=False)
    unigram = result.reference_accuracies['unigram_accuracy']
    assert result.reference_accuracies['bigram_accuracy'] > 2 * unigram
    assert result.last['accuracy'] > 1.5 * unigram
    assert (tmp_path / 'run' / 'plots' / 'training.png').exists()


@pytest.mark.standard
@pytest.mark.tff
def test_marks_that_are_added_to_a_file_are_not_words_of_it(task, tmp_path):
    words = pathlib.Path(task.text.vocabulary_file).read_text().replace('.\n', '')
    (tmp_path / 'words.txt').write_text(words)
    path = str(tmp_path / 'words.txt')
    lacking = task.with_values({'vocabulary_file': path})
    found = suggest(lacking, SuggestConfig(), tell=lambda text: None)
    assert {each.name: each.value for each in found.proposals}['vocabulary_size'] == 30
    assert len(real_task.public_vocabulary(found.config.task.text).words) == 30 + 32


@pytest.mark.standard
@pytest.mark.tff
def test_a_trial_is_local_training_and_a_mean(task):
    """One client with one batch: a step of gradient descent by finite differences."""
    from dpfl.tasks.text.models import saved_models

    model = saved_models.build('micro', 12, 5, 0)
    batch = {
        'x': np.array([[1, 5, 6, 7, 8]], np.int32),
        'y': np.array([[5, 6, 7, 8, 2]], np.int32),
    }
    found = trial.compare(model, lambda client: [batch], [batch], (0.5, 1e-6, 1e9), 1)
    assert found[0].loss < found[1].loss < np.log(12) + 0.5 and found[2].loss == np.inf
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


def test_only_own_text_gets_proposals():
    with pytest.raises(
        ArgumentError, match='task=synthetic_text: must be one of stackoverflow, user'
    ):
        suggest(TaskConfig(), SuggestConfig())
    with pytest.raises(ArgumentError, match='vocabulary_file: must be given'):
        suggest(TaskConfig(task='user_text').with_values({'data_path': 'a'}), SuggestConfig())
