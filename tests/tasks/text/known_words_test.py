"""Models that know the most frequent words of a synthetic language."""

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.config import TaskConfig, TextConfig
from dpfl.tasks.text import known_words, synthetic_task, synthetic_text

_LANGUAGE = synthetic_text.SyntheticText(vocabulary_size=60, sentence_length=8, seed=3)


def test_the_known_words_are_the_most_frequent_ones():
    known = known_words.most_frequent(_LANGUAGE, 25)
    tokens = np.concatenate([_LANGUAGE.tokens(client) for client in range(2000)])
    counts = np.bincount(tokens.ravel(), minlength=_LANGUAGE.num_tokens)[4:]
    by_id = [_LANGUAGE.vocabulary[word] for word in np.argsort(-counts, kind='stable')]
    # Words of nearly equal frequency may change places in a sample.
    assert known.words[:5] == tuple(by_id[:5])
    assert len({*known.words} & {*by_id[:25]}) >= 23
    assert len(known.words) == len({*known.words}) == 25 and known.num_tokens == 29


def test_the_ids_are_those_of_the_same_words_in_the_model():
    known = known_words.most_frequent(_LANGUAGE, 25)
    for token, word in enumerate(_LANGUAGE.vocabulary, 4):
        expected = 4 + known.words.index(word) if word in known.words else 3
        assert known.ids[token] == expected
    assert known.ids[:4].tolist() == [0, 1, 2, 3]


def _source(**text):
    config = TaskConfig(model='micro', text=TextConfig(sentence_length=8, **text))
    return synthetic_task.SyntheticTextTask(config, seed=3)


@pytest.mark.parametrize('packing', ['sentences', 'windows'])
def test_models_of_all_sizes_have_the_same_text(packing):
    small = _source(vocabulary_size=25, language_size=60, packing=packing)
    large = _source(vocabulary_size=60, language_size=60, packing=packing)
    (_, few), (_, all_words) = small.language_model(), large.language_model()
    assert few == all_words[:25] and {*all_words} == {*_LANGUAGE.vocabulary}
    tasks = small.load(), large.load()
    assert small.num_parameters() < large.num_parameters()
    for client in range(4):
        rows = [task.client_batches(client, 10**4, 1, None)[0]['y'] for task in tasks]
        np.testing.assert_array_equal(rows[0], np.where(rows[1] >= 4 + 25, 3, rows[1]))
    heldout = [next(iter(task.heldout(3, 10**4)))['y'].numpy() for task in tasks]
    np.testing.assert_array_equal(heldout[0], np.where(heldout[1] >= 4 + 25, 3, heldout[1]))
    assert (heldout[0] == 3).mean() > (heldout[1] == 3).mean()
    # The ceilings of the language are not those of a model that knows a part of it.
    assert not tasks[0].reference_accuracies
    assert _source(vocabulary_size=60).load().reference_accuracies


def test_what_is_refused():
    with pytest.raises(ArgumentError, match='language_size=60: must be >= 61, vocabulary_size'):
        _source(vocabulary_size=61, language_size=60).load()
    with pytest.raises(ArgumentError, match='language_size=5: must be an integer >= '):
        _source(vocabulary_size=3, language_size=5).load()
    with pytest.raises(ArgumentError, match='language_size=60: needs task=synthetic_text'):
        TaskConfig(task='user_text', text=TextConfig(language_size=60))
