"""T5 and T6: likelihood ratios against the primary model, and what it learns."""

import types

import numpy as np
import pytest

from dpfl.debugging.diagnosis import Learned
from dpfl.debugging.text import against_model, clients, diagnosis, traits
from dpfl.debugging.text.config import Case, StudyConfig
from dpfl.tasks.config import TextConfig
from dpfl.tasks.text.models import generation, saved_models
from dpfl.tasks.text.text_task import WordTask
from dpfl.tasks.text.vocabulary import Vocabulary
from dpfl.tasks.text.word_clients import TextData, WordClients
from tests.tasks.text.models import reference

_WORDS = tuple(f'w{i}' for i in range(12))
_CLIENTS = WordClients(3, lambda client: [['w1', 'w2', 'w3'], ['w4', 'w1', 'w2']] * 20)
_TEXT = WordTask(TextData(_CLIENTS, _CLIENTS), Vocabulary(_WORDS), TextConfig())
_NONE = diagnosis.Question()


def _model(seed):
    cell, num_tokens = saved_models.ALL['micro'], len(_WORDS) + 4
    weights = reference.random_weights(cell, num_tokens, seed, scale=0.5)
    return saved_models.LanguageModel('micro', weights, _WORDS)


@pytest.fixture(scope='module')
def opened():
    """A generator, and what it wrote."""
    task = clients.task('word', _TEXT, Case(), StudyConfig(), 5, eval_clients=2, seed=0)
    model = _model(0)
    tokens = generation.sample(
        model.architecture, model.weights, task.special, count=400, length=5, seed=1
    ).tokens
    written = types.SimpleNamespace(
        of_what='all sentences',
        task=task,
        trained=types.SimpleNamespace(weights=model.weights),
        learned=Learned(0.5, ''),
        tokens=tokens,
        traits=traits.of_sentences(tokens, _WORDS),
    )
    return model, _case(written)


def _case(written):
    return types.SimpleNamespace(case=Case(), written={'word': written})


@pytest.mark.standard
def test_ratios_are_positive_where_the_generator_writes_and_negative_where_the_other_does(opened):
    found, compared = against_model.ratios(opened[1], _model(5), _NONE, top=5, seed=2)
    assert found.private.interval()[0] > 0 > found.public.interval()[1]
    ratios = [ratio for _, ratio in found.improbable]
    assert ratios == sorted(ratios, reverse=True) and len(set(found.improbable)) == len(ratios)
    assert ratios[0] > found.private.value
    names = {each.name for each in compared.diagnosis.differences}
    assert names == set(traits.SENTENCE_NAMES)


@pytest.mark.standard
def test_nothing_is_improbable_to_the_same_model(opened):
    model, case = opened
    found, compared = against_model.ratios(case, model, _NONE, top=5, seed=2)
    assert found.private.value == found.public.value == 0
    assert compared.diagnosis.verdict == 'cannot tell' and compared.words == ()


@pytest.mark.standard
def test_the_model_learns_from_sentences_like_those_of_held_out_clients(opened):
    model, case = opened
    task = case.written['word'].task
    # As if the generator wrote what the clients write.
    alike = types.SimpleNamespace(task=task, tokens=np.tile(task.heldout[:, 1:], (60, 1)))
    found = against_model.learned(_case(alike), model, seed=3)
    assert found.loss_gained.value == pytest.approx(found.loss[1] - found.loss[0])
    assert found.loss_gained.interval()[1] < 0 and found.accuracy[1] >= found.accuracy[0]
    assert found.sentences == 60 * len(task.heldout)
