"""Lower bounds, of many runs and of one: coverage by enumeration of all outcomes, not sampling."""

import functools
import math

import numpy as np
import pytest
from scipy import special, stats

from dpfl.auditing import lower_bounds
from dpfl.auditing.lower_bounds import Counts

_ALL_MU = (0.0, 0.3, 1.0, 2.5)


def _probability_above(truth, rates, trials, measure):
    """Probability that a bound exceeds the truth, over all pairs of numbers of wrong answers."""
    absent, present = trials
    false_positives, false_negatives = np.meshgrid(
        np.arange(absent + 1), np.arange(present + 1), indexing='ij'
    )
    bounds = measure(Counts(false_positives, absent, false_negatives, present))
    weights = np.outer(
        stats.binom.pmf(np.arange(absent + 1), absent, rates[0]),
        stats.binom.pmf(np.arange(present + 1), present, rates[1]),
    )
    return weights[bounds > truth + 1e-9].sum()


@pytest.mark.parametrize('confidence', [0.6, 0.95])
@pytest.mark.parametrize(
    'trials', [(1, 1), (7, 30), pytest.param((200, 150), marks=pytest.mark.standard)]
)
@pytest.mark.parametrize('mu', _ALL_MU)
def test_mu_is_exceeded_at_most_with_the_error(mu, trials, confidence):
    measure = functools.partial(lower_bounds.mu, confidence=confidence)
    for rate in (0.001, 0.02, 0.3, 0.5, 0.9):
        # Rates on the trade-off curve of mu: the best that any attacker reaches.
        rates = rate, special.ndtr(-mu - special.ndtri(rate))
        above = _probability_above(mu, rates, trials, measure)
        assert above <= (1 - confidence) * (1 + 1e-9)


@pytest.mark.parametrize('delta', [0.0, 0.01])
@pytest.mark.parametrize('epsilon', [0.0, 0.7, 3.0])
@pytest.mark.parametrize('confidence', [0.6, 0.95])
def test_epsilon_is_exceeded_at_most_with_the_error(epsilon, delta, confidence):
    measure = functools.partial(lower_bounds.epsilon, delta=delta, confidence=confidence)
    for rate in (0.0, 0.02, 0.3):
        one = rate, 1 - delta - math.exp(epsilon) * rate
        if one[1] < 0:
            continue
        for rates in (one, one[::-1]):  # Both orders of neighbours.
            above = _probability_above(epsilon, rates, (60, 40), measure)
            assert above <= (1 - confidence) * (1 + 1e-9)


def test_bounds_are_not_idle():
    """The error is used up, as far as half of it for each rate allows."""
    measure = functools.partial(lower_bounds.mu, confidence=0.6)
    rates = 0.3, special.ndtr(-1 - special.ndtri(0.3))
    assert _probability_above(1.0, rates, (200, 150), measure) > 0.05
    many = Counts(*(np.array([rates[0], 1, rates[1], 1]) * 1e8))
    assert 0.999 < measure(many) < 1.0


def test_counts_by_hand():
    present, absent = np.array([3.0, 1.0, 2.0]), np.array([0.0, 2.0, 1.0, -1.0])
    assert lower_bounds.count(present, absent, 2.0) == (1, 4, 1, 3)
    assert lower_bounds.count(present, absent, 9.0) == (0, 4, 3, 3)
    found = lower_bounds.count(present, absent, [-5.0, 2.5])
    np.testing.assert_array_equal(found.false_positives, [4, 0])
    np.testing.assert_array_equal(found.false_negatives, [0, 2])


# --- From one run with many canaries.


@pytest.mark.parametrize('truth', [0.0, 0.5, 2.0])
def test_guesses_exceed_the_truth_at_most_with_the_error(truth):
    """A canary moves a normal variable of its own by mu; the best guess is right with Phi(mu/2)."""
    size = 60
    right = np.arange(size + 1)
    bounds = np.array([lower_bounds.mu_of_guesses(size, size, each, 0.9) for each in right])
    probabilities = stats.binom.pmf(right, size, special.ndtr(truth / 2))
    assert probabilities[bounds > truth + 1e-9].sum() <= 0.1
    assert (bounds[: size // 2 + 1] == 0).all()  # No better than coins.


def test_with_few_guesses_two_thirds_of_gaussian_noise_are_reached():
    rng = np.random.default_rng(0)
    size, truth = 10000, 2.0
    is_present = rng.random(size) < 0.5
    scores = rng.normal(size=size) + truth * is_present
    found = [
        lower_bounds.mu_of_guesses(size, *lower_bounds.guessed(scores, is_present, count), 0.95)
        for count in (200, 1000, 2000)
    ]
    assert max(found) < truth
    assert max(found) > 0.65 * truth


def test_guesses_are_for_the_extremes():
    scores = np.array([0.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    is_present = np.array([False, True, True, False, True, False])
    # Lowest: 0 absent (right), 1 present (wrong). Highest: 5 present (right), 4 absent (wrong).
    assert lower_bounds.guessed(scores, is_present, 2) == (2, 2)
    assert lower_bounds.guessed(scores, is_present, 4) == (4, 2)
    assert lower_bounds.guessed(scores, is_present, 3) == (3, 2)
