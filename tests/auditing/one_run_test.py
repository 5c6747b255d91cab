"""Bounds from one run, held against mechanisms whose guarantee is known."""

import numpy as np
import pytest
from scipy import special, stats

from dpfl import errors
from dpfl.auditing import one_run


def _probability_above(truth, bound, probabilities):
    """Probability that the bound exceeds the truth, over all numbers of right guesses."""
    values = np.array([bound(right) for right in range(len(probabilities))])
    return probabilities[values > truth + 1e-9].sum()


def test_the_published_example():
    """[Steinke23], appendix D: 75 of 100 guesses for 1000 canaries, delta 1e-4, 95 %."""
    assert one_run.epsilon(1000, 100, 75, 1e-4, 0.95) == pytest.approx(0.673, abs=5e-4)


@pytest.mark.parametrize('truth', [0.5, pytest.param(2.0, marks=pytest.mark.standard)])
def test_randomized_response_is_not_exceeded_and_nearly_reached(truth):
    """Every coin is told with the probability e^epsilon / (1 + e^epsilon)."""
    size, confidence = 60, 0.9
    right = stats.binom(size, special.expit(truth))
    above = _probability_above(
        truth,
        lambda v: one_run.epsilon(size, size, v, 0.0, confidence),
        right.pmf(np.arange(size + 1)),
    )
    # The numbers are whole: the error is used up but for one outcome.
    assert 0.1 - right.pmf(int(right.mean())) <= above <= 0.1
    typical = one_run.epsilon(10000, 10000, round(10000 * special.expit(truth)), 0.0, confidence)
    assert truth - 0.1 < typical <= truth


@pytest.mark.parametrize('is_common', [True, pytest.param(False, marks=pytest.mark.standard)])
def test_delta_is_counted(is_common):
    """With probability delta the coins are told exactly: one by one, or all of them at once."""
    size, truth, delta, confidence = 60, 1.0, 0.02, 0.9
    accuracy, coins = special.expit(truth), np.arange(size + 1)
    if is_common:
        right = (1 - delta) * stats.binom.pmf(coins, size, accuracy) + delta * (coins == size)
    else:
        right = stats.binom.pmf(coins, size, delta + (1 - delta) * accuracy)
    with_delta, without = (
        _probability_above(
            truth, lambda v, d=d: one_run.epsilon(size, size, v, d, confidence), right
        )
        for d in (delta, 0.0)
    )
    assert with_delta <= 0.1 < without


@pytest.mark.parametrize('truth', [0.0, 0.5, 2.0])
def test_gaussian_noise_is_not_exceeded(truth):
    """A canary moves a normal variable of its own by mu; the best guess is right with Phi(mu/2)."""
    size, confidence = 60, 0.9
    right = stats.binom.pmf(np.arange(size + 1), size, special.ndtr(truth / 2))
    above = _probability_above(truth, lambda v: one_run.mu(size, size, v, confidence), right)
    assert above <= 0.1


def test_with_few_guesses_two_thirds_of_gaussian_noise_are_reached():
    rng = np.random.default_rng(0)
    size, truth = 10000, 2.0
    is_present = rng.random(size) < 0.5
    scores = rng.normal(size=size) + truth * is_present
    found = [
        one_run.mu(size, *one_run.guesses(scores, is_present, count), 0.95)
        for count in (200, 1000, 2000)
    ]
    assert max(found) < truth
    assert max(found) > 0.65 * truth


def test_all_wrong_or_no_better_than_coins_shows_nothing():
    assert one_run.epsilon(100, 50, 0, 1e-6, 0.95) == 0
    assert one_run.mu(100, 50, 0, 0.95) == 0
    assert one_run.epsilon(100, 100, 50, 0.0, 0.95) == 0
    assert one_run.mu(100, 100, 50, 0.95) == 0


def test_guesses_are_for_the_extremes():
    scores = np.array([0.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    is_present = np.array([False, True, True, False, True, False])
    # Lowest: 0 absent (right), 1 present (wrong). Highest: 5 present (right), 4 absent (wrong).
    assert one_run.guesses(scores, is_present, 2) == (2, 2)
    assert one_run.guesses(scores, is_present, 4) == (4, 2)
    assert one_run.guesses(scores, is_present, 3) == (3, 2)


@pytest.mark.parametrize(
    ('call', 'name'),
    [
        (lambda: one_run.mu(10, 11, 3, 0.9), 'guesses'),
        (lambda: one_run.mu(10, 5, 6, 0.9), 'right'),
        (lambda: one_run.epsilon(10, 5, 3, 0.0, 1.0), 'confidence'),
        (lambda: one_run.epsilon(10, 5, 3, 1.0, 0.9), 'delta'),
        (lambda: one_run.guesses(np.zeros(3), np.zeros(3, bool), 4), 'guesses'),
    ],
)
def test_bad_values_are_refused(call, name):
    with pytest.raises(errors.ArgumentError) as refused:
        call()
    assert refused.value.name == name
