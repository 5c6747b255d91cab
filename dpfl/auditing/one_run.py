"""Lower bounds on privacy from one run with many canaries, each there or not by a fair coin.

An auditor flips an independent fair coin for each of m canaries, lets those with heads take part in
one run, and then guesses from the releases, for as many canaries as it likes, which way the coin
fell. The more guesses are right, the less private the run. Canaries may affect each other in any
way: that coins are independent and fair is all that is assumed about them, and that guesses depend
on the coins through the releases alone.

- `epsilon`: [Steinke23], theorem 5.2 with corollary 5.4. If the run is (epsilon, delta)-DP, the
  number of right guesses among r is, up to delta, not more than one of r coins that fall right with
  probability `e^epsilon / (1 + e^epsilon)` each.
- `mu`: [Mahloujifar24], the recursion with a limit on guesses, for the trade-off curve of Gaussian
  DP. It uses the whole curve, so it is tighter for Gaussian noise, but not tight: with the best
  number of guesses it reaches two thirds of the true mu.

Both find the largest guarantee that is refuted: under every smaller one, so many right guesses have
at most the probability 1 - confidence.
"""

from collections.abc import Callable

import numpy as np
from scipy import special, stats

from dpfl import _validate

# Largest guarantee that is searched, and the accuracy of the search.
_MOST = 100.0
_STEPS = 50


def epsilon(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Lower confidence bound on epsilon at `delta`, at least 0.

    Args:
      canaries: m, all of them, with and without a guess.
      guesses: r, at most `canaries`. Which canaries are guessed may depend on the releases; how
        many, not.
      right: v, right guesses.
      delta: at least 0 and below 1.
      confidence: strictly between 0 and 1.

    Raises:
      ArgumentError: if a number is out of its range.
    """
    _check(canaries, guesses, right, confidence)
    _validate.number('delta', delta, minimum=0, below=1)
    return _largest_refuted(
        lambda claim: _chance(canaries, guesses, right, claim, delta), 1 - confidence
    )


def mu(canaries: int, guesses: int, right: int, confidence: float) -> float:
    """Lower confidence bound on the Gaussian DP parameter, at least 0; arguments as of `epsilon`.

    Raises:
      ArgumentError: if a number is out of its range.
    """
    _check(canaries, guesses, right, confidence)
    return _largest_refuted(
        lambda claim: _chance_by_curve(canaries, guesses, right, claim, 1 - confidence),
        1 - confidence,
    )


def guesses(scores: np.ndarray, is_present: np.ndarray, count: int) -> tuple[int, int]:
    """Guesses "present" for the highest scores and "absent" for the lowest ones.

    Args:
      scores: of the canaries, higher if they seem to be there, [m].
      is_present: how the coins fell, bool [m].
      count: number of guesses, half of them of either kind, at most m.

    Returns:
      The numbers of guesses and of right guesses, for `epsilon` and `mu`.
    """
    _validate.integer('guesses', count, minimum=1, maximum=len(scores))
    order = np.argsort(scores, kind='stable')
    low, high = count // 2, count - count // 2
    right = np.count_nonzero(~is_present[order[:low]])
    return count, int(right + np.count_nonzero(is_present[order[len(order) - high :]]))


def _check(canaries: int, guesses: int, right: int, confidence: float) -> None:
    _validate.integer('canaries', canaries, minimum=1)
    _validate.integer('guesses', guesses, minimum=1, maximum=canaries)
    _validate.integer('right', right, minimum=0, maximum=guesses)
    _validate.number('confidence', confidence, above=0, below=1)


def _largest_refuted(chance: Callable[[float], float], error: float) -> float:
    """The largest claim under which the outcome has at most the chance `error`; 0 if there is none.

    The chance increases with the claim.
    """
    if chance(0.0) > error:
        return 0.0
    low, high = 0.0, 1.0
    while chance(high) <= error:
        low, high = high, 2 * high
        if high > _MOST:
            return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) <= error else (low, middle)
    return low


def _chance(canaries: int, guesses: int, right: int, claim: float, delta: float) -> float:
    """Bound on the probability of so many right guesses under (claim, delta)-DP.

    With W binomial, it is `P(W >= v) + 2 m delta max_i P(v > W >= v - i) / i`.
    """
    # A frozen distribution takes longer to make than its values.
    coins = guesses, special.expit(claim)
    chance = float(stats.binom.sf(right - 1, *coins))
    if delta and right:
        below = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), *coins))
        chance += 2 * canaries * delta * float(np.max(below / np.arange(1, right + 1)))
    return min(chance, 1.0)


def _chance_by_curve(canaries: int, guesses: int, right: int, claim: float, error: float) -> float:
    """0 if so many right guesses have at most the chance `error` under Gaussian DP; 1 if unknown.

    Suppose that `right` or more right guesses have a probability above `error`. For each i let r_i
    and h_i be the expected shares of the canaries that are guessed right, and wrong, in outcomes
    with at least i right guesses. Exchanging the coin of a canary turns a right guess, with i
    others right, into a wrong one. So the curve bounds h_i from below by r_{i+1}, and r_i grows
    with h_i, because in outcomes with exactly i right guesses they are as i to guesses - i. If the
    shares together come to more than the canaries that are guessed, the supposition is wrong.
    """
    h = error * (guesses - right) / canaries
    r = error * right / canaries
    for i in range(right - 1, -1, -1):
        # Wrong guesses at a given probability of right ones: the curve of Gaussian DP.
        larger = max(h, float(special.ndtr(special.ndtri(min(r, 1.0)) - claim)))
        if larger == h:
            break
        r += i / (guesses - i) * (larger - h)
        h = larger
    return 0.0 if r + h > guesses / canaries else 1.0
