"""Tail probabilities of integer random variables, rounded up; the smallest is a positive float.

Among them are the laws of the clients that two cohorts share, and of those that took part at all.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy

from dpfl.participation import ParticipationLog

# Relative rounding error allowed for in every tail; the largest seen in the tests is 2e-11.
_ROUNDING = 1 + 1e-9

# Tails are at least this, also where the probability is 0.
_LEAST = float(np.finfo(float).tiny)

# Cells below this fraction of the largest are dropped, and their mass is counted as lost.
_NEGLIGIBLE_CELL = 1e-26

# Largest width of a law that `tails_of_total` computes by convolution.
_MOST_CELLS = 2**19
# Most pairs of different cohort sizes whose laws of overlap are convolved, and their most cells.
_MOST_LAWS = 5000
_MOST_CELLS_OF_OVERLAPS = 4 * 10**6
# Most probabilities of one client more or less that the Markov chain of seen clients computes.
_MOST_STEPS = 2 * 10**7


@dataclasses.dataclass(frozen=True, eq=False)
class Law:
    """The law of an integer random variable.

    Attributes:
      start: value of the first cell.
      cells: probabilities of start, start + 1, ..., none smaller than the true one up to rounding.
      lost: upper bound on the probability of all other values.
    """

    start: int
    cells: np.ndarray
    lost: float = 0.0

    def upper(self, value: int) -> float:
        """Upper bound on P(X >= value)."""
        return _outward(math.fsum(self.cells[max(0, value - self.start) :]) + self.lost)

    def lower(self, value: int) -> float:
        """Upper bound on P(X <= value)."""
        return _outward(math.fsum(self.cells[: max(0, value - self.start + 1)]) + self.lost)

    @property
    def mean(self) -> float:
        """Mean, without the lost mass."""
        return float(self.cells @ self.values)

    def of(self, function: Callable[[np.ndarray], np.ndarray]) -> 'Law':
        """The law of an integer function of X, such as its square."""
        values = function(self.values)
        start = int(values.min())
        return Law(start, np.bincount(values - start, self.cells), self.lost)

    @property
    def values(self) -> np.ndarray:
        """The values of the cells, int64 [cells]."""
        return self.start + np.arange(self.cells.size)


def union(number: float, p_value: float) -> float:
    """Upper bound on the probability that one of `number` events of probability p_value happens."""
    return min(1.0, number * p_value * _ROUNDING)


def two_sided(tails: tuple[float, float]) -> float:
    """P-value of the smaller of two tails, which were computed for the same value."""
    return min(1.0, 2 * min(tails))


def binomial_upper(value: np.ndarray | int, trials: np.ndarray | int, p: float) -> np.ndarray:
    """Upper bounds on P(Bin(trials, p) >= value); arrays are broadcast."""
    return _outward(scipy.stats.binom.sf(np.asarray(value) - 1, trials, p))


def binomial_lower(value: np.ndarray | int, trials: np.ndarray | int, p: float) -> np.ndarray:
    """Upper bounds on P(Bin(trials, p) <= value); arrays are broadcast."""
    return _outward(scipy.stats.binom.cdf(value, trials, p))


def binomial_two_sided(value: int, trials: int, p: float) -> float:
    """P-value of both sides of Bin(trials, p)."""
    law = value, trials, p
    return two_sided((float(binomial_lower(*law)), float(binomial_upper(*law))))


def binomial(trials: int, p: float) -> Law:
    """The law of the number of successes in `trials` independent trials, 0 <= p <= 1."""
    if p in (0, 1) or not trials:
        return Law(trials if p == 1 else 0, np.ones(1))
    odds = p / (1 - p)
    return _by_ratios(
        lambda k: (trials - k) / (k + 1) * odds,
        0,
        trials,
        min(trials, int((trials + 1) * p)),
        math.sqrt(trials * p * (1 - p)),
    )


def hypergeometric(population: int, marked: int, drawn: int) -> Law:
    """The law of the number of marked ones in a sample of `drawn` without replacement."""
    low, high = max(0, marked + drawn - population), min(marked, drawn)
    if low == high:
        return Law(low, np.ones(1))
    unmarked = population - marked - drawn
    share = marked / population
    return _by_ratios(
        lambda k: (marked - k) / (k + 1) * ((drawn - k) / (unmarked + k + 1)),
        low,
        high,
        min(high, max(low, (marked + 1) * (drawn + 1) // (population + 2))),
        math.sqrt(drawn * share * (1 - share)),
    )


def total(laws: Sequence[Law]) -> Law:
    """The law of a sum of independent variables."""
    queue = list(laws) or [Law(0, np.ones(1))]
    while len(queue) > 1:  # Neighbours first, so that both factors have similar widths.
        rest = queue[-1:] if len(queue) % 2 else []
        queue = [_sum(*pair) for pair in zip(queue[0:-1:2], queue[1::2], strict=True)] + rest
    return queue[0]


def repeated(law: Law, times: int) -> Law:
    """The law of a sum of `times` independent variables with the same law."""
    result = Law(0, np.ones(1))
    while times:
        result = _sum(result, law) if times % 2 else result
        times //= 2
        law = _sum(law, law) if times else law
    return result


def tails_of_total(value: int, summands: Iterable[tuple[Law, int]]) -> tuple[float, float]:
    """Upper bounds on P(S <= value) and P(S >= value), for a sum S of independent variables.

    They are exact if the law of S has at most half a million cells, otherwise Chernoff bounds.

    Args:
      value: the value of the sum.
      summands: laws, and how many of the variables have each.
    """
    return _tails([(law, times, lambda k: k) for law, times in summands])(value)


def tails_of_squares(
    value: int, summands: Iterable[tuple[Law, int]], centre: int
) -> tuple[float, float]:
    """`tails_of_total` for the sum of squared distances of the variables from `centre`."""
    return _tails([(law, times, lambda k: (k - centre) ** 2) for law, times in summands])(value)


def ville(logs: np.ndarray) -> float:
    """Bound on the probability that a martingale ever is as large as it was ([Ville39]).

    Args:
      logs: logarithms of the values of a nonnegative supermartingale that starts at 1, [rounds].
    """
    return float(_outward(math.exp(-max(0.0, float(logs.max())))))


def critical(level: float, summands: Iterable[tuple[Law, int]]) -> int:
    """The smallest value whose upper tail, by `tails_of_total`, is at most `level`."""
    parts = [(law, times) for law, times in summands if times]
    tails = _tails([(law, times, lambda k: k) for law, times in parts])
    last = sum(times * int(law.values[-1]) for law, times in parts) + 1
    return first_at_most(level, lambda value: tails(value)[1], last)


def first_at_most(level: float, tail: Callable[[int], float], last: int) -> int:
    """The smallest value whose tail is at most `level`, or `last` if only that is.

    Args:
      level: below 1.
      tail: P(X >= value) for a variable X >= 0, or an upper bound that falls with the value.
      last: a value that X never reaches.
    """
    first = 0
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (first, middle) if tail(middle) <= level else (middle, last)
    return last


def _tails(
    summands: list[tuple[Law, int, Callable[[np.ndarray], np.ndarray]]],
) -> Callable[[int], tuple[float, float]]:
    """Both tails of a sum of functions of independent variables, as a function of its value."""
    parts = [(function(law.values), law.cells, times) for law, times, function in summands if times]
    variance = sum(
        times * float(cells @ (values - cells @ values) ** 2) for values, cells, times in parts
    )
    widest = max((int(np.ptp(values)) for values, _, _ in parts), default=0)
    if widest + 22 * math.sqrt(variance) <= _MOST_CELLS:
        whole = total([repeated(law.of(function), times) for law, times, function in summands])
        return lambda value: (whole.lower(value), whole.upper(value))

    def log_moment(tilt: float) -> float:
        return sum(times * _log_mean_exp(tilt * values, cells) for values, cells, times in parts)

    lost = sum(times * law.lost for law, times, _ in summands)

    def bounds(value: int) -> tuple[float, float]:
        lower, upper = chernoff(value, log_moment, 1 / math.sqrt(variance))
        return min(1.0, lower + lost), min(1.0, upper + lost)

    return bounds


def _log_mean_exp(exponents: np.ndarray, cells: np.ndarray) -> float:
    largest = float(exponents.max())
    return largest + math.log(cells @ np.exp(exponents - largest))


def chernoff(
    value: float, log_moment: Callable[[float], float], scale: float
) -> tuple[float, float]:
    """Chernoff bounds on P(S <= value) and P(S >= value).

    Args:
      value: the value of S.
      log_moment: upper bound on log E exp(tilt S) for each tilt.
      scale: tilts of this order are tried, such as 1 / standard deviation.
    """

    def bound(sign: int) -> float:
        def exponent(x: float) -> float:
            tilt = sign * scale * math.exp(x)
            # The last term allows for the rounding of the other two.
            return log_moment(tilt) - tilt * value + 1e-13 * abs(tilt * value)

        # Every tilt gives a bound, so the search may stop beside the best one.
        best = scipy.optimize.minimize_scalar(exponent, bounds=(-12.0, 6.0), method='bounded').fun
        return float(_outward(math.exp(min(0.0, best)))) if math.isfinite(best) else 1.0

    return bound(-1), bound(1)


def _outward(probability: Any) -> Any:
    return np.clip(probability * _ROUNDING, _LEAST, 1.0)


def _by_ratios(
    ratio: Callable[[np.ndarray], np.ndarray], low: int, high: int, mode: int, deviation: float
) -> Law:
    """The log-concave law on low .. high with P(k + 1) = ratio(k) P(k)."""
    width = int(12 * deviation) + 32
    while True:
        first, last = max(low, mode - width), min(high, mode + width)
        above = np.cumsum(np.log(ratio(np.arange(mode, last, dtype=float))))
        below = -np.cumsum(np.log(ratio(np.arange(mode - 1, first - 1, -1, dtype=float))))
        cells = np.exp(np.concatenate([below[::-1], [0.0], above]))
        if (last == high or cells[-1] < _NEGLIGIBLE_CELL) and (
            first == low or cells[0] < _NEGLIGIBLE_CELL
        ):
            break
        width *= 2
    # Beyond both ends the probabilities fall at least geometrically.
    lost = 0.0
    if last < high:
        lost += cells[-1] * _geometric(float(ratio(np.array([last], float))[0]))
    if first > low:
        lost += cells[0] * _geometric(1 / float(ratio(np.array([first - 1], float))[0]))
    mass = cells.sum()
    return Law(first, cells / mass, lost / mass)


def _geometric(ratio: float) -> float:
    return ratio / (1 - ratio)


def _sum(one: Law, other: Law) -> Law:
    a, b = one.cells, other.cells
    lost = one.lost + other.lost
    error = 0.0
    if min(a.size, b.size) <= 256:
        cells = np.convolve(a, b)
    else:
        # The error of a cell is at most about eps log2(n) |a| |b|; eight times that is allowed for.
        cells = np.maximum(scipy.signal.fftconvolve(a, b), 0)
        error = 8 * float(np.finfo(float).eps) * math.log2(cells.size)
        error *= float(np.linalg.norm(a) * np.linalg.norm(b))
        lost += float(cells.size * error)
    return _trimmed(Law(one.start + other.start, cells, lost), error)


def _trimmed(law: Law, error: float = 0.0) -> Law:
    """The law without its smallest outer cells, or those below the error of a cell."""
    kept = np.flatnonzero(law.cells > max(error, _NEGLIGIBLE_CELL * law.cells.max()))
    first, last = int(kept[0]), int(kept[-1]) + 1
    dropped = float(law.cells[:first].sum() + law.cells[last:].sum())
    return Law(law.start + first, law.cells[first:last], law.lost + dropped)


# Counts of two cohort sizes and of the clients they are drawn from: {(clients, one, other): pairs}.
Pairs = dict[tuple[int, int, int], int]


def shared(log: ParticipationLog, lag: int) -> int:
    """Number of clients in rounds t and t + lag, summed over t.

    Args:
      log: a log with every client at most once in a round, and in rounds that are multiples of
        `lag` apart.
      lag: distance of the rounds.
    """
    by_client = log.by_client()
    is_pair = np.diff(by_client.rounds) == lag
    is_pair[by_client.offsets[1:-1] - 1] = False  # From one client to the next.
    return int(is_pair.sum())


def pairs(log: ParticipationLog, lag: int, clients: Callable[[int], int]) -> Pairs:
    """The sizes of all cohorts t and t + lag; `clients(t)` is how many they are drawn from."""
    sizes = log.cohort_sizes.tolist()
    return collections.Counter(
        (clients(t), sizes[t], sizes[t + lag]) for t in range(log.rounds - lag)
    )


def mean(sizes: Pairs) -> float:
    """Mean of the sum of all overlaps."""
    return sum(times * one * other / clients for (clients, one, other), times in sizes.items())


def tails(value: int, sizes: Pairs) -> tuple[float, float]:
    """Upper bounds on the probabilities that the sum of all overlaps is <= and >= value.

    Given its size each cohort is a uniformly random subset, independent of earlier ones. So the
    overlap with a given earlier cohort is hypergeometric whatever happened before, and the overlaps
    of all t and t + lag are independent.
    """
    keys = np.array(list(sizes), dtype=float)
    times = np.array(list(sizes.values()), dtype=float)
    share = keys[:, 1] / keys[:, 0]
    variances = keys[:, 2] * share * (1 - share)
    cells = len(sizes) * (24 * math.sqrt(variances.max()) + 64)
    if len(sizes) <= _MOST_LAWS and cells <= _MOST_CELLS_OF_OVERLAPS:
        summands = [(hypergeometric(*key), number) for key, number in sizes.items()]
        return tails_of_total(value, summands)

    def log_moment(tilt: float) -> float:
        # That of a binomial variable is above it ([Hoeffding63], theorem 4).
        return float((times * keys[:, 2] * np.log1p(share * np.expm1(tilt))).sum())

    return chernoff(value, log_moment, 1 / math.sqrt(max(1.0, times @ variances)))


def seen_tails(value: int, clients: int, sizes: np.ndarray) -> tuple[float, float]:
    """Upper bounds on P(D <= value) and P(D >= value) for the number D of clients ever drawn.

    Each cohort is a uniformly random subset of given size. The tails are exact by the Markov chain
    of D where this is fast. Otherwise they are Chernoff bounds: who is drawn in a round has a
    permutation distribution, so that being never drawn is negatively associated among clients
    ([JoagDev83]), and the moments are at most those of independent clients.

    Args:
      value: the number of clients in the log.
      clients: from how many they are drawn.
      sizes: sizes of the cohorts, int64 [rounds].
    """
    never = math.exp(np.log1p(-sizes[sizes < clients] / clients).sum())
    never = 0.0 if (sizes >= clients).any() else never
    deviation = math.sqrt(clients * never * (1 - never))
    if (sizes + 1).sum() * min(clients + 1, 22 * deviation + 64) <= _MOST_STEPS:
        law = _seen(clients, sizes)
        return law.lower(value), law.upper(value)
    unseen = chernoff(
        clients - value,
        lambda tilt: clients * math.log1p(never * math.expm1(tilt)),
        1 / max(1.0, deviation),
    )
    return unseen[1], unseen[0]


def _seen(clients: int, sizes: np.ndarray) -> Law:
    """The law of the number of clients ever drawn."""
    law = Law(0, np.ones(1))
    for size in sizes[sizes > 0].tolist():
        cells = np.zeros(law.cells.size + size)
        steps = _new(clients, law.values, size) * law.cells[:, None]
        for new in range(size + 1):
            cells[new : new + law.cells.size] += steps[:, new]
        law = _trimmed(Law(law.start, cells, law.lost))
    return law


def _new(clients: int, seen: np.ndarray, size: int) -> np.ndarray:
    """Probabilities of 0 .. size new clients in a cohort by the number seen, [seen, size + 1]."""
    seen, new = seen[:, None].astype(float), np.arange(size, dtype=float)
    old = seen - size + new + 1  # Seen clients left when one of the cohort becomes a new one.
    with np.errstate(divide='ignore', invalid='ignore'):
        ratios = (clients - seen - new) / (new + 1) * ((size - new) / old)
        logs = np.where(old > 0, np.log(ratios), 0.0)
    # Fewer than size - seen new clients are impossible, and more than are left.
    logs = np.concatenate([np.zeros_like(seen), np.cumsum(logs, axis=1)], axis=1)
    new = np.arange(size + 1)
    is_possible = (new >= size - seen) & (new <= clients - seen)
    logs = np.where(is_possible, logs, -np.inf)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)
