"""Words of two character models: their ranks against direct computation, kinds by hand."""

import numpy as np
import pytest

from dpfl.debugging.text import unknown_words
from dpfl.tasks.text import encoding, oov_ranking
from dpfl.tasks.text.models import architectures, catalog, generation


def _tokens(words, length=6):
    return encoding.encode_words(words, length)[:, 1:]


def test_kinds_of_words_by_hand():
    tokens = _tokens(['a b', 'x1', 'Ab', 'n.', 'ä', 'toolong', 'ok'])
    found = {name: share.hits for name, share in unknown_words.kinds(tokens).items()}
    assert found == {
        'white space': 1,
        'a digit': 1,
        'a capital letter': 1,
        'punctuation': 1,
        'a byte beyond ASCII': 1,
        'no end (cut)': 1,
    }
    assert unknown_words.lengths(tokens).tolist() == [3, 2, 2, 2, 2, 6, 2]
    assert unknown_words.is_whole(tokens).tolist() == [True] * 5 + [False, True]


def test_both_models_rate_all_words_of_both():
    architecture = catalog.ALL['char_tiny']
    models, samples = [], []
    for seed in (0, 1):
        model = architectures.build(architecture, encoding.NUM_BYTE_TOKENS, 4, seed)
        weights = [np.asarray(weight) * 4 for weight in model.initial_weights[0]]
        models.append(unknown_words.CharModel(architecture, weights))
        samples.append(_tokens([['ab', 'c', 'no'], ['c', 'de', 'no']][seed], 4))
    found = unknown_words.rate(*models, tuple(samples), top=2, known={'no'})
    pooled = ['ab', 'c', 'de']
    logs = [
        generation.log_probabilities(
            architecture, model.weights, oov_ranking.BYTES, _tokens(pooled, 4)
        )
        for model in models
    ]
    ranks = [np.argsort(np.argsort(-log)) + 1 for log in logs]
    for each in found:
        i = pooled.index(each.word)
        assert each.first == pytest.approx(np.exp(logs[0][i]), rel=1e-4)
        assert each.second == pytest.approx(np.exp(logs[1][i]), rel=1e-4)
        assert (each.first_rank, each.second_rank) == (ranks[0][i], ranks[1][i])
    assert {each.word for each in found} == {
        pooled[i] for i in range(3) if min(ranks[0][i], ranks[1][i]) <= 2
    }
