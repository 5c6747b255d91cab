"""Clients that two cohorts share, and clients that took part at all."""

import collections
import math
from collections.abc import Callable

import numpy as np

from dpfl.accounting.evidence import laws
from dpfl.participation import ParticipationLog

# Most pairs of different cohort sizes whose laws of overlap are convolved, and their most cells.
_MOST_LAWS = 5000
_MOST_CELLS = 4 * 10**6

# Most probabilities of one client more or less that the Markov chain of seen clients computes.
_MOST_STEPS = 2 * 10**7

# Counts of two cohort sizes and of the clients they are drawn from: {(clients, one, other): pairs}.
Pairs = dict[tuple[int, int, int], int]


def shared(log: ParticipationLog, lag: int, step: int = 1) -> int:
    """Number of clients in rounds t and t + lag, summed over t.

    Args:
      log: a log with every client at most once in a round.
      lag: distance of the rounds, a multiple of `step`.
      step: rounds of a client are multiples of this apart.
    """
    by_client, count = log.by_client(), 0
    rounds, ends = by_client.rounds, by_client.offsets[1:-1]
    for apart in range(1, min(lag // step, rounds.size - 1) + 1):
        is_pair = rounds[apart:] - rounds[:-apart] == lag
        for before in range(1, apart + 1):  # Two listings on either side of the end of a client.
            places = ends - before
            is_pair[places[(places >= 0) & (places < is_pair.size)]] = False
        count += int(is_pair.sum())
    return count


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
    if len(sizes) <= _MOST_LAWS and cells <= _MOST_CELLS:
        summands = [(laws.hypergeometric(*key), number) for key, number in sizes.items()]
        return laws.tails_of_total(value, summands)

    def log_moment(tilt: float) -> float:
        # That of a binomial variable is above it ([Hoeffding63], theorem 4).
        return float((times * keys[:, 2] * np.log1p(share * np.expm1(tilt))).sum())

    return laws.chernoff(value, log_moment, 1 / math.sqrt(max(1.0, times @ variances)))


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
    unseen = laws.chernoff(
        clients - value,
        lambda tilt: clients * math.log1p(never * math.expm1(tilt)),
        1 / max(1.0, deviation),
    )
    return unseen[1], unseen[0]


def _seen(clients: int, sizes: np.ndarray) -> laws.Law:
    """The law of the number of clients ever drawn."""
    law = laws.Law(0, np.ones(1))
    for size in sizes[sizes > 0].tolist():
        seen = law.start + np.arange(law.cells.size)
        cells = np.zeros(law.cells.size + size)
        steps = _new(clients, seen, size) * law.cells[:, None]
        for new in range(size + 1):
            cells[new : new + law.cells.size] += steps[:, new]
        law = laws.trimmed(laws.Law(law.start, cells, law.lost))
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
