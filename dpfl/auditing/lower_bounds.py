"""Lower confidence bounds on mu and epsilon: from independent trials, or from one run.

Trials are independent, with and without a client. In each of them an attacker computes a statistic
of the releases, and answers "present" if it is at least a threshold. The trials with the client
estimate the rate of false negatives, those without it the rate of false positives. A guarantee
bounds both from below:

- `mu` (Gaussian DP; [Dong22], definition 2.6): `Phi^-1(1 - fnr) - Phi^-1(fpr) <= mu`;
- (epsilon, delta)-DP: `1 - delta - fnr <= e^epsilon fpr`, and the same with the rates exchanged,
  which is the other order of the two neighbours ([Kairouz15], theorem 2.1).

So upper confidence bounds on both rates that hold together give a lower confidence bound on mu or
epsilon. Those here are the exact ones of [Clopper34], each with half of the error. Nothing is
assumed about the statistic. The trials have to be independent, and the threshold may not depend on
those that are counted.

`mu_of_guesses` takes one run with many canaries. An auditor flips an independent fair coin for each
of m canaries, lets those with heads take part in the run, and then guesses the coins of some
canaries, of its choice, from the releases. The more guesses are right, the less private the run.
Canaries may affect each other in any way: the only assumptions are that coins are independent and
fair, and that guesses depend on the coins through the releases alone.

The game is that of [Steinke23]. The bound is that of [Mahloujifar24], the recursion with a limit on
guesses, for the trade-off curve of Gaussian DP. It uses the whole curve, so it is tighter for
Gaussian noise than that of [Steinke23], but not tight: with the best number of guesses it reaches
two thirds of the true mu. It is the largest mu that is refuted: under every smaller one, that many
right guesses have at most the probability 1 - confidence.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from dpfl import _validate, errors

# Relative error that is allowed for in quantiles of the beta distribution.
_ROUNDING = 1e-9
# Most thresholds that are tried.
_MOST_THRESHOLDS = 512
_PLANNED = np.linspace(-6.0, 6.0, 1201)
# Largest guarantee that is searched, and the accuracy of the search.
_MOST = 100.0
_STEPS = 50


class Counts(NamedTuple):
    """Wrong answers of an attacker, numbers or arrays of the same shape.

    Attributes:
      false_positives: trials without the client with the answer "present".
      absent: trials without the client.
      false_negatives: trials with the client with the answer "absent".
      present: trials with the client.
    """

    false_positives: Any
    absent: Any
    false_negatives: Any
    present: Any


# Counts -> lower bound of some quantity, elementwise.
Measure = Callable[[Counts], Any]


def upper_rate(count: Any, trials: Any, error: float) -> Any:
    """Upper confidence bound on a rate ([Clopper34]): it is too small with at most this error.

    Args:
      count: events, 0 .. trials; for planning it may be a fraction.
      trials: independent trials, at least 1.
      error: strictly between 0 and 1.
    """
    count, trials = np.asarray(count, np.float64), np.asarray(trials, np.float64)
    room = np.maximum(trials - count, 0.0)
    quantile = scipy.special.betaincinv(count + 1, np.where(room > 0, room, 1.0), 1 - error)
    return np.where(room > 0, np.minimum(quantile * (1 + _ROUNDING), 1.0), 1.0)


def count(present: np.ndarray, absent: np.ndarray, thresholds: Any) -> Counts:
    """Wrong answers if the answer is "present" from a threshold on.

    Args:
      present: statistics of the trials with the client, [any].
      absent: those without it, [any].
      thresholds: a number, or several.
    """
    return Counts(
        absent.size - np.searchsorted(np.sort(absent), thresholds, side='left'),
        absent.size,
        np.searchsorted(np.sort(present), thresholds, side='left'),
        present.size,
    )


def mu(counts: Counts, confidence: float) -> Any:
    """Lower confidence bound on the Gaussian DP parameter, at least 0.

    Args:
      counts: with a threshold that does not depend on these trials.
      confidence: probability with which the bound is at most the true mu, strictly between 0 and 1.

    Raises:
      ArgumentError: if the confidence is out of its range, or there are no trials of either kind.
    """
    positive, negative = _upper_rates(counts, confidence)
    return np.maximum(-scipy.special.ndtri(negative) - scipy.special.ndtri(positive), 0.0)


def epsilon(counts: Counts, delta: float, confidence: float) -> Any:
    """Lower confidence bound on epsilon at `delta`, at least 0, over both orders of neighbours.

    Args:
      counts, confidence: as for `mu`.
      delta: at least 0 and below 1.
    """
    _validate.number('delta', delta, minimum=0, below=1)
    positive, negative = _upper_rates(counts, confidence)
    with np.errstate(divide='ignore'):
        one = np.log(np.maximum(1 - delta - negative, 0.0)) - np.log(positive)
        other = np.log(np.maximum(1 - delta - positive, 0.0)) - np.log(negative)
    return np.maximum(np.maximum(one, other), 0.0)


def _upper_rates(counts: Counts, confidence: float) -> tuple[Any, Any]:
    _validate.number('confidence', confidence, above=0, below=1)
    for name in ('absent', 'present'):
        if np.min(getattr(counts, name)) < 1:
            raise errors.ArgumentError(
                'trials', 0, f'must have at least one with the client {name}'
            )
    error = (1 - confidence) / 2
    return (
        upper_rate(counts.false_positives, counts.absent, error),
        upper_rate(counts.false_negatives, counts.present, error),
    )


def chosen_threshold(
    present: np.ndarray, absent: np.ndarray, measure: Measure, tests: tuple[int, int]
) -> float:
    """The threshold that is the best one on some trials, for a bound from other trials.

    Args:
      present, absent: statistics of trials that are not counted afterwards, [any].
      measure: the bound to maximise, such as `mu` at a confidence.
      tests: numbers of trials that will be counted, with and without the client.
    """
    values = np.unique(np.concatenate([present, absent]))
    if values.size > _MOST_THRESHOLDS:
        values = values[np.linspace(0, values.size - 1, _MOST_THRESHOLDS).astype(int)]
    counts = count(present, absent, values)
    rates = counts.false_positives / absent.size, counts.false_negatives / present.size
    return float(values[_best(rates, measure, tests)])


def planned_threshold(shift: float, measure: Measure, tests: tuple[int, int]) -> float:
    """The best threshold for statistics that are N(0, 1), and N(shift, 1) with the client.

    It depends on no trial. If the statistics are others, the bound holds nevertheless.

    Args:
      shift: at least 0.
      measure, tests: as for `chosen_threshold`.
    """
    values = shift / 2 + _PLANNED
    rates = scipy.special.ndtr(-values), scipy.special.ndtr(values - shift)
    return float(values[_best(rates, measure, tests)])


def _best(rates: tuple[np.ndarray, np.ndarray], measure: Measure, tests: tuple[int, int]) -> int:
    """Index of the largest measure if the rates of wrong answers are as given.

    Among several it is the one with the fewest wrong answers.
    """
    present, absent = tests
    values = measure(Counts(rates[0] * absent, absent, rates[1] * present, present))
    largest = np.flatnonzero(values >= np.max(values))
    return int(largest[np.argmin((rates[0] + rates[1])[largest])])


def mu_of_guesses(canaries: int, guesses: int, right: int, confidence: float) -> float:
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


def guessed(scores: np.ndarray, is_present: np.ndarray, count: int) -> tuple[int, int]:
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
        larger = max(h, float(scipy.special.ndtr(scipy.special.ndtri(min(r, 1.0)) - claim)))
        if larger == h:
            break
        r += i / (guesses - i) * (larger - h)
        h = larger
    return r + h > guesses / canaries
