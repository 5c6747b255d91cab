"""Predictors counted on training clients or on public text."""

import dataclasses

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.config import DataConfig, TextConfig
from dpfl.tasks.text import real_task, yardstick
from dpfl.tasks.text.baselines import Predictors
from dpfl.tasks.text.ngrams.counts import TrigramCounts
from dpfl.tasks.text.yardstick import PUBLIC, TRAINING, YardstickConfig
from tests import text_files


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp('text')
    text_files.write_clients(directory / 'a.jsonl', 30)
    text_files.write_clients(directory / 'public.jsonl', 5, seed=3)
    return real_task.load(
        'user_text',
        DataConfig(data_path=str(directory / 'a.jsonl'), heldout_fraction=0.2),
        TextConfig(
            vocabulary_text=str(directory / 'public.jsonl'),
            vocabulary_size=20,
            sentence_length=8,
            client_max_tokens=50,
        ),
        lambda text: None,
    )


@pytest.mark.parametrize('counted_on', [TRAINING, PUBLIC])
def test_it_counts_one_text_and_measures_on_the_clients_of_an_evaluation(data, counted_on):
    # As a run sees them: the batches of the clients.
    batches = [data.task.client_batches(client, 100) for client in range(24)]
    rows = [np.hstack([each['x'], each['y'][:, -1:]]) for client in batches for each in client]
    if counted_on == PUBLIC:
        rows = list(data.public_tokens())
    predictors = Predictors.of(TrigramCounts.of(rows, 24))
    measures = predictors.measure(np.concatenate(list(data.task.heldout_tokens(0, 4))))
    found = yardstick.measure(data, YardstickConfig(counted_on=counted_on, eval_clients=4))
    assert measures.to_dict().items() <= found.items()
    assert found['words'] == measures.words > 100
    assert found['oov_share'] == measures.unknown / (measures.words + measures.unknown)
    assert found['counted_words'] == sum(int((row >= 4).sum()) for row in rows)
    assert found['not_covered'].startswith('Not private' if counted_on == TRAINING else 'The')
    assert found['unigram_accuracy'] < found['trigram_accuracy']


def test_the_words_that_are_counted_have_a_limit(data):
    found = yardstick.measure(data, YardstickConfig(most_words=100))
    assert 100 <= found['counted_words'] <= 150  # A client is counted as a whole.
    most = yardstick.measure(data, YardstickConfig(eval_clients=10_000))
    assert most['words'] > found['counted_words']


def test_public_text_must_be_given(data):
    without = dataclasses.replace(data, public_text=None)
    with pytest.raises(ArgumentError, match='needs vocabulary_text'):
        yardstick.measure(without, YardstickConfig(counted_on=PUBLIC))
