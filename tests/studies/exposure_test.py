"""Exposure of secrets: in closed form, by brute force over all candidates, and of trained runs."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from dpfl import errors
from dpfl.tasks.text.models import generation, saved_models
from experiments.studies.shared import planting, ranking
from tests.studies import scripts_of_studies
from tests.tasks.text.models import reference

pytestmark = pytest.mark.standard

_STUDY = scripts_of_studies.load('measure_exposure')

_ALPHABET = (4, 2, 7)


def _unigram(contexts, tokens):
    """A model that ignores contexts: token v of 8 has probability (v + 1) / 36."""
    row = np.log((np.asarray(tokens) + 1) / 36)
    return np.tile(row, (len(contexts), 1))


def _bigram(contexts, tokens):
    """A model by a table of pairs; row 8 is for the empty context."""
    table = np.random.default_rng(3).dirichlet(np.ones(8), 9)
    last = contexts[:, -1] if contexts.shape[1] else np.full(len(contexts), 8)
    return np.log(table[last][:, tokens])


@pytest.mark.parametrize('prefix, length', [((), 1), ((6,), 4), ((1, 3), 2)])
@pytest.mark.parametrize('model', [_unigram, _bigram])
def test_ranks_are_those_of_scores_of_each_candidate_by_itself(model, prefix, length):
    """Under the unigram model many are equal: the later of equal ones counts."""
    expected = []
    for candidate in itertools.product(_ALPHABET, repeat=length):
        total, context = 0.0, list(prefix)
        for token in candidate:
            total += model(np.array([context], int), [token])[0, 0]
            context.append(token)
        expected.append(total)
    found = ranking.all_scores(model, prefix, _ALPHABET, length)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    values = itertools.product(range(3), repeat=length)
    ranks = [ranking.rank(found, value, 3) for value in values]
    assert ranks == [sum(other >= each for other in found) for each in found]


def test_chance_is_an_upper_bound_of_the_exact_p_value():
    # All pairs of ranks in a space of 16: the p-value exceeds no level more often than it may.
    one = 4 - np.log2(np.arange(1, 17))
    values = np.array([_STUDY.chance(pair) for pair in itertools.product(one, repeat=2)])
    for level in np.linspace(0.01, 1, 50):
        assert np.mean(values <= level) <= level + 1e-12
    # A sum of n exponential variables, by its Poisson process: P(S >= x) = P(N(x) < n).
    for bits in ([0.0], [3.0], [5, 2, 7]):
        expected = stats.poisson.cdf(len(bits) - 1, sum(bits) * math.log(2))
        assert _STUDY.chance(bits) == pytest.approx(expected)


@pytest.mark.parametrize(
    ('epsilon', 'delta', 'bits'),
    [(0, 0, 10), (1, 1e-3, 12), (8, 0.1, 12), (5000.0, 1e-5, 12), (math.inf, 0.0, 20)],
)
def test_ceiling_is_the_integral_of_the_bound(epsilon, delta, bits):
    x = np.linspace(0, bits, 200_001)
    bound = np.minimum(1, math.exp(min(epsilon, 700)) * 2**-x + delta)
    expected = np.trapezoid(bound, x)
    assert _STUDY.ceiling(epsilon, delta, 2**bits) == pytest.approx(expected, rel=1e-6)


def _model(name, num_tokens):
    weights = reference.random_weights(saved_models.ALL[name], num_tokens, scale=0.5)
    words = None if name in saved_models.CHAR_MODELS else tuple(map(str, range(num_tokens - 4)))
    return saved_models.LanguageModel(name, weights, words)


@pytest.mark.parametrize(
    ('name', 'num_tokens', 'special', 'alphabet'),
    [
        ('micro', 24, generation.WORDS, (4, 9, 20, 7, 11)),
        ('char_tiny', 258, generation.BYTES, tuple(b'0123456789')),
    ],
)
@pytest.mark.tff
def test_exposures_are_those_of_brute_force(name, num_tokens, special, alphabet):
    model, prefix = _model(name, num_tokens), (10, 20, 10)
    candidates = list(itertools.product(range(len(alphabet)), repeat=2))
    sentences = [[*prefix, *(alphabet[place] for place in each)] for each in candidates]
    found = generation.log_probabilities(
        model.architecture, model.weights, special, np.array(sentences)
    )
    drawn = [planting.Secret(prefix, alphabet, each) for each in candidates]
    exposures = ranking.exposures(model, drawn)
    expected = [math.log2(len(candidates) / np.sum(found >= each)) for each in found]
    np.testing.assert_allclose(exposures, expected, atol=1e-9)


@pytest.mark.tff
def test_a_run_without_noise_and_clip_remembers_its_secrets(overfit):
    found = _STUDY.measure(overfit)
    control, held = found
    assert (control.holders, held.holders, held.copies) == (0, 2, 10)
    assert (control.took_part, held.took_part) == (0, 2)
    assert (control.participations, held.participations) == (0, 2 * 25)
    assert held.exposures == (8.0, 8.0)
    assert held.p_value == _STUDY.chance([8, 8]) < 2e-4
    assert control.p_value > 0.01
    assert held.candidates == 256
    assert held.ceiling == held.most_bits == 8
    values = json.loads(json.dumps(_STUDY.to_dict(overfit, found), allow_nan=False))
    assert values['epsilon'] is None
    assert values['kinds'][1]['exposures'] == [8, 8]


@pytest.mark.tff
def test_ceilings_are_those_of_the_guarantee_for_as_many_clients(private):
    found = _STUDY.measure(private)
    assert [(kind.copies, kind.holders) for kind in found] == [
        (1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (3, 2)
    ]  # fmt: skip
    none, one, two = (kind.ceiling for kind in found[:3])
    assert none == _STUDY.ceiling(0, 0, 256)
    assert one == _STUDY.ceiling(private.epsilon, private.delta, 256)
    # A group of two clients has twice mu, so half the noise multiplier.
    assert private.epsilon_of_group(2) > private.epsilon * 1.5
    assert two == _STUDY.ceiling(private.epsilon_of_group(2), private.delta, 256)
    assert none < one < two < 8
    assert private.report.plan.mu == pytest.approx(1 / 3)
    for kind in found:
        assert kind.participations == kind.holders  # Each client took part once.
        assert kind.p_value > 0.001


@pytest.mark.tff
def test_runs_that_differ_in_their_seeds_are_pooled_and_others_are_not(private):
    measured = _STUDY.measure(private)

    def rows(**changes):
        changed = dataclasses.replace(private, settings={**private.settings, **changes})
        return _STUDY.rows([(private, measured), (changed, measured)])

    alone, pooled = _STUDY.rows([(private, measured)]), rows(seed=1)
    assert len(pooled) == len(alone) == 6
    for one, two, kind in zip(alone, pooled, measured, strict=True):
        assert (one['runs'], two['runs']) == (1, 2)
        assert two['secrets'] == 2 * one['secrets'] == 4
        assert two['mean_exposure'] == pytest.approx(one['mean_exposure'])
        assert two['p_value'] == _STUDY.chance(kind.exposures * 2)
    other = rows(client_learning_rate=0.1)
    assert [row['configuration'] for row in other] == [0] * 6 + [1] * 6
    with pytest.raises(errors.ArgumentError) as refused:
        rows()
    assert refused.value.name == 'run_dir'
