"""A test of all overlaps of each cohort with recent earlier ones: bets that no sampling can win.

Given the earlier cohorts and all sizes, cohort t is a uniformly random subset of size n of N
clients. For fixed values a_i of these clients, sum a_i over the cohort is a sum of n draws without
replacement, so its exponential moment is at most that of n draws with replacement ([Hoeffding63],
theorem 4): E exp(sum a_i) <= (mean of exp(a_i))^n. Earlier cohorts may choose the values. Two
kinds of bets multiply the quotient of both sides over the rounds:

- Two cohorts: a_i is the sum of x for the clients of one recent cohort and of y for those of
  another one, where x and y have all signs. A bet is the mean over all pairs of recent cohorts.
  It sees clients that come together, who make overlaps both too large and too small.
- Frequent clients: a_i is x times the number of earlier rounds of the client.

Each bet is a nonnegative supermartingale that starts at 1, and so is their mean. It ever reaches
1 / a with probability at most a, also if the run is stopped for what it has shown ([Ville39]).
"""

import dataclasses
import math

import numpy as np
import scipy

from dpfl.accounting.evidence import laws
from dpfl.accounting.evidence.refutation import LogTest, Statistic
from dpfl.participation import ParticipationLog

OVERLAPS = Statistic(
    'overlaps',
    'overlaps with earlier cohorts',
    'The overlaps of cohorts with those up to {} turns before add up to {}; '
    'random cohorts of these sizes have {:.6g} on average.',
)

# Most earlier cohorts that a cohort is compared with, and the least; between them, the number of
# comparisons of participations, and of pairs of earlier cohorts, is at most the budget.
_WINDOW, _LEAST_WINDOW, _BUDGET, _PAIRS = 32, 4, 2 * 10**8, 2 * 10**6

# Bets multiply the odds of an earlier cohort by 1 + scale / (standard deviation of the overlap), or
# divide by it.
_PAIR_SCALES = np.array([0.4, 1.0, 2.5])
_LARGEST_FACTOR = 100.0

# Number of earlier cohorts from which on pairs are bet on at full scale: a mean over few pairs
# needs small bets.
_FULL_SCALE = 16

# Bets on frequent clients multiply the odds by exp(scale / standard deviation of their number of
# earlier rounds in all) for each earlier round, or divide by it.
_FREQUENT_SCALES = np.array([0.25, 0.5, 1.0, 2.0])

# Classes of clients by the number of their rounds.
_CLASSES = 128


@dataclasses.dataclass(frozen=True)
class Draws:
    """From how many clients the cohorts were drawn, and with which earlier ones they can overlap.

    Attributes:
      clients: number of clients that each cohort was drawn from, int64 [rounds].
      first: distance of a cohort from the last one that it can share clients with.
      step: distance between earlier cohorts that it can share clients with.
      waits: rounds after which a client can be drawn again, less one.
    """

    clients: np.ndarray
    first: int = 1
    step: int = 1
    waits: int = 0


def test(log: ParticipationLog, draws: Draws) -> LogTest:
    """The test of all bets.

    Args:
      log: a log with every client at most once in a round.
      draws: of its cohorts. From round `first` on each cohort is uniform given its size.
    """
    sizes, shared = log.cohort_sizes, shared_clients(log, draws)
    wealth = np.zeros(log.rounds)
    if shared.shape[1]:
        wealth = np.logaddexp(of_frequent(log, draws), of_pairs(sizes, shared, draws)) - np.log(2)
    return OVERLAPS.test(
        laws.ville(wealth),
        shared.shape[1],
        shared.sum(),
        (_shares(sizes, shared, draws)[1] * sizes[:, None]).sum(),
    )


def _places(log: ParticipationLog) -> list[np.ndarray]:
    """The clients of each round by their ranks among all clients, int64 [any number] each."""
    clients = log.by_client().clients
    return [np.searchsorted(clients, log.cohort(t)) for t in range(log.rounds)]


def shared_clients(log: ParticipationLog, draws: Draws) -> np.ndarray:
    """Clients that cohorts t and t - first - k step share, int64 [rounds, window]."""
    turns = -(-max(0, log.rounds - draws.first) // draws.step)
    affordable = min(
        _BUDGET // max(1, int(log.cohort_sizes.sum())), int((_PAIRS / log.rounds) ** 0.5)
    )
    window = min(_WINDOW, turns, max(_LEAST_WINDOW, affordable))
    shared = np.zeros((log.rounds, window), np.int64)
    places = _places(log)
    # Of each client, whether it was in each cohort of the window. Groups have clients of their own.
    came = np.zeros(log.by_client().clients.size, np.uint32)
    for t in range(draws.first, log.rounds):
        last = t - draws.first
        turn, gone = last // draws.step, last - window * draws.step
        bit = np.uint32(1 << turn % window)
        if gone >= 0:
            came[places[gone]] &= ~bit
        came[places[last]] |= bit
        seen = came[places[t]]
        for k in range(min(window, turn + 1)):
            shared[t, k] = np.count_nonzero(seen & np.uint32(1 << (turn - k) % window))
    return shared


def of_frequent(log: ParticipationLog, draws: Draws) -> np.ndarray:
    """Logarithm of the mean of all bets on frequent clients after each round, [rounds].

    Clients with similar numbers of rounds are in one class.
    """
    places, sizes = _places(log), log.cohort_sizes
    # A function of the sizes alone, as bets need it; on average clients reach half of the classes.
    mean_rounds = float((sizes / np.maximum(1, draws.clients)).sum()) / draws.step
    width = 1 + int(2 * mean_rounds / _CLASSES)
    rounds_of = np.zeros(log.by_client().clients.size, np.int64)
    classes = np.arange(_CLASSES)
    seen = np.zeros((draws.step, _CLASSES), np.int64)  # Clients of each group by class.
    entered: list[np.ndarray] = []  # Clients of each round by their class after it.
    tilts = np.concatenate([_FREQUENT_SCALES, -_FREQUENT_SCALES])
    wealth, logs = np.zeros(tilts.size), np.zeros(log.rounds)
    for t, cohort in enumerate(places):
        free = seen[t % draws.step] - sum(entered[max(0, t - draws.waits) :])
        free[0] = draws.clients[t] - free[1:].sum()
        shares = np.maximum(0, free) / max(1, int(draws.clients[t]))
        before, after = (
            np.minimum((rounds_of[cohort] + more) // width, _CLASSES - 1) for more in (0, 1)
        )
        mean = classes @ shares
        spread = math.sqrt(sizes[t] * float((classes - mean) ** 2 @ shares))
        # Before round `first` cohorts of b-min-sep are not uniform. Without a spread, or a free
        # client at all, nothing is bet.
        if spread and t >= draws.first:
            x = np.sign(tilts) * np.minimum(1.0, np.abs(tilts) / spread)
            moments = np.log(np.exp(np.outer(x, classes - mean)) @ shares)
            wealth += x * (before.sum() - sizes[t] * mean) - sizes[t] * moments
        logs[t] = scipy.special.logsumexp(wealth) - math.log(tilts.size)
        entered.append(np.bincount(after, minlength=_CLASSES))
        seen[t % draws.step] += entered[t] - np.bincount(before, minlength=_CLASSES)
        rounds_of[cohort] += 1
    return logs


def _shares(sizes: np.ndarray, shared: np.ndarray, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Clients of earlier cohorts that cannot be drawn, and the others' share of all that can be.

    Args:
      sizes: of the cohorts, int64 [rounds].
      shared: as `shared_clients` returns it.
      draws: of the cohorts.

    Returns:
      Two arrays [rounds, window].
    """
    rounds, window = shared.shape
    waiting = np.zeros_like(shared)
    for ago in range(1, min(draws.waits, window - 1) + 1):
        waiting[ago:, ago:] += shared[:-ago, :-ago]
    earlier = np.arange(rounds)[:, None] - draws.first - draws.step * np.arange(window)
    marked = np.where(earlier >= 0, sizes[np.maximum(earlier, 0)] - waiting, 0)
    return waiting, np.minimum(1.0, marked / np.maximum(1, draws.clients)[:, None])


def of_pairs(sizes: np.ndarray, shared: np.ndarray, draws: Draws) -> np.ndarray:
    """Logarithm of the mean of all bets on pairs of cohorts after each round, [rounds].

    Arguments are those of `_shares`.
    """
    waiting, shares = _shares(sizes, shared, draws)
    clients = np.maximum(1, draws.clients)
    left = np.maximum(0, draws.clients - sizes) / np.maximum(1, draws.clients - 1)
    deviations = np.sqrt((sizes * left)[:, None] * shares * (1 - shares))
    exponents = np.zeros((_PAIR_SCALES.size, len(sizes)))
    for t in range(draws.first + draws.step, len(sizes)):
        earlier = 1 + (t - draws.first) // draws.step
        deviation = deviations[t, :earlier]
        scales = _PAIR_SCALES[:, None] * math.sqrt(min(1.0, earlier / _FULL_SCALE))
        factors = scales / np.where(deviation > 0, deviation, np.inf)
        tilts = np.log1p(np.minimum(factors, _LARGEST_FACTOR))
        one, other = np.triu_indices(deviation.size, 1)
        ends = t - draws.first - draws.step * one
        lags = other - one - draws.first // draws.step
        both = np.where(lags >= 0, shared[ends, np.maximum(lags, 0)], 0)
        waits = np.minimum(waiting[t, one], waiting[t, other])
        least, most = np.maximum(0, both - waits) / clients[t], both / clients[t]
        bets = []
        for x in (tilts[:, one], -tilts[:, one]):
            for y in (tilts[:, other], -tilts[:, other]):
                u, v = np.expm1(x), np.expm1(y)
                # Of the clients of both cohorts those that wait are unknown: the larger moment.
                joint = np.maximum(u * v * least, u * v * most)
                moment = np.log1p(shares[t, one] * u + shares[t, other] * v + joint)
                bets.append(x * shared[t, one] + y * shared[t, other] - sizes[t] * moment)
        bets_of_scale = np.concatenate(bets, axis=1)
        exponents[:, t] = scipy.special.logsumexp(bets_of_scale, axis=1)
        exponents[:, t] -= math.log(bets_of_scale.shape[1])
    wealth = np.cumsum(exponents, axis=1)
    return scipy.special.logsumexp(wealth, axis=0) - math.log(_PAIR_SCALES.size)
