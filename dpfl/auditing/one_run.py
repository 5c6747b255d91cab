"""Lower bounds on privacy from one run with many canaries, each there or not by a fair coin.

An auditor flips an independent fair coin for each of m canaries, lets those with heads take part in
one run, and then guesses the coins of some canaries, of its choice, from the releases. The more
guesses are right, the less private the run. Canaries may affect each other in any way: the only
assumptions are that coins are independent and fair, and that guesses depend on the coins through
the releases alone.

The game is that of [Steinke23]. The bound is that of [Mahloujifar24], the recursion with a limit on
guesses, for the trade-off curve of Gaussian DP. It uses the whole curve, so it is tighter for
Gaussian noise than that of [Steinke23], but not tight: with the best number of guesses it reaches
two thirds of the true mu. It is the largest mu that is refuted: under every smaller one, that many
right guesses have at most the probability 1 - confidence.
"""

import numpy as np
from scipy import special

from dpfl import _validate

# Largest guarantee that is searched, and the accuracy of the search.
_MOST = 100.0
_STEPS = 50


def mu(canaries: int, guesses: int, right: int, confidence: float) -> float:
    """Lower confidence bound on the Gaussian DP parameter, at least 0.

    Args:
      canaries: m, all of them, with and without a guess.
      guesses: r, at most `canaries`. Which canaries are guessed may depend on the releases; how
        many, not.
      right: v, right guesses.
      confidence: strictly between 0 and 1.

    Raises:
      ArgumentError: if a number is out of its range.
    """
    _validate.integer('canaries', canaries, minimum=1)
    _validate.integer('guesses', guesses, minimum=1, maximum=canaries)
    _validate.integer('right', right, minimum=0, maximum=guesses)
    _validate.number('confidence', confidence, above=0, below=1)

    def is_refuted(claim: float) -> bool:
        return _is_refuted(canaries, guesses, right, claim, 1 - confidence)

    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2 * high
        if high > _MOST:
            return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def guesses(scores: np.ndarray, is_present: np.ndarray, count: int) -> tuple[int, int]:
    """Guesses "present" for the highest scores and "absent" for the lowest ones.

    Args:
      scores: of the canaries, higher if they seem to be there, [m].
      is_present: how the coins fell, bool [m].
      count: number of guesses, half of them of either kind, at most m.

    Returns:
      The numbers of guesses and of right guesses, for `mu`.
    """
    _validate.integer('guesses', count, minimum=1, maximum=len(scores))
    order = np.argsort(scores, kind='stable')
    low, high = count // 2, count - count // 2
    right = np.count_nonzero(~is_present[order[:low]])
    return count, int(right + np.count_nonzero(is_present[order[len(order) - high :]]))


def _is_refuted(canaries: int, guesses: int, right: int, claim: float, error: float) -> bool:
    """Whether `right` or more right guesses have at most the chance `error` under Gaussian DP.

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
    return r + h > guesses / canaries
