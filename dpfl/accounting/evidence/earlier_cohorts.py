"""A test of all overlaps of each cohort with recent earlier ones: bets that no sampling can win.

Given the earlier cohorts and all sizes, cohort t is a uniformly random subset of size n of N
clients. For fixed values a_i of these clients, sum a_i over the cohort is a sum of n draws without
replacement, so its exponential moment is at most that of n draws with replacement ([Hoeffding63],
theorem 4): E exp(sum a_i) <= (mean of exp(a_i))^n. Earlier cohorts may choose the values. Three
kinds of bets multiply the quotient of both sides over the rounds:

- One lag: a_i = x for the clients of the cohort a fixed number of rounds ago.
- Two cohorts: a_i is the sum of x for the clients of one recent cohort and of y for those of
  another one, where x and y have all signs. A bet is the mean over all pairs of recent cohorts.
  It sees clients that come together, who make overlaps both too large and too small.
- Frequent clients: a_i is x times the number of earlier rounds of the client.

Each bet is a nonnegative supermartingale that starts at 1, and so is their mean. It ever reaches
1 / a with probability at most a, also if the run is stopped for what it has shown ([Ville39]).
"""

import dataclasses
import functools

import numpy as np
import scipy

from dpfl.accounting.evidence import laws
from dpfl.accounting.evidence.refutation import LogTest, Statistic
from dpfl.participation import ParticipationLog
from dpfl.participation.log import ClientRounds

OVERLAPS = Statistic(
    'overlaps',
    'overlaps with earlier cohorts',
    'The overlaps of cohorts with those up to {} turns before add up to {}; '
    'random cohorts of these sizes have {:.6g} on average.',
)

# Most earlier cohorts that a cohort is compared with, and the least; between them, the number of
# comparisons of participations is at most the budget.
_WINDOW, _LEAST_WINDOW, _BUDGET = 64, 4, 2 * 10**8

# Most earlier cohorts of which all pairs are bet on, and most pairs in all rounds.
_PAIR_WINDOW, _PAIRS = 32, 2 * 10**6

# Bets multiply the odds of an earlier cohort by 1 + scale / (standard deviation of the overlap), or
# divide by it.
_LAG_SCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_PAIR_SCALES = (0.4, 1.0, 2.5)
_LARGEST_FACTOR = 100.0

# Number of earlier cohorts from which on pairs are bet on at full scale: a mean over few pairs
# needs small bets.
_FULL_SCALE = 16

# Bets on frequent clients multiply the odds by exp(scale / standard deviation of their number of
# earlier rounds in all) for each earlier round, or divide by it.
_FREQUENT_SCALES = (0.25, 0.5, 1.0, 2.0)

# Classes of clients by the number of their rounds.
_CLASSES = 128

# Participations whose earlier rounds are looked up at a time.
_CHUNK = 2**20


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
    bets = _Bets.of(log, draws)
    wealth = np.zeros(log.rounds)
    if bets.shared.shape[1]:
        single = np.logaddexp(bets.of_lags(), of_frequent(log, draws))
        wealth = np.logaddexp(single - np.log(2), bets.of_pairs()) - np.log(2)
    return OVERLAPS.test(
        laws.ville(wealth),
        bets.shared.shape[1],
        bets.shared.sum(),
        (bets.share * bets.sizes[:, None]).sum(),
    )


def shared_clients(by_client: ClientRounds, rounds: int, draws: Draws, window: int) -> np.ndarray:
    """Clients that cohorts t and t - first - k step share, int64 [rounds, window].

    Time and memory grow with the number of pairs of participations of a client in the window.
    """
    counts = np.zeros(rounds * window, np.int64)
    farthest = draws.first + (window - 1) * draws.step
    start = 0
    while start < by_client.clients.size:
        end = np.searchsorted(by_client.offsets, by_client.offsets[start] + _CHUNK, side='right')
        end = max(start + 1, int(end) - 1)
        offsets = by_client.offsets[start : end + 1]
        # Rounds of different clients are farther apart than the window.
        times = by_client.rounds[offsets[0] : offsets[-1]].astype(np.int64)
        times += np.repeat(np.arange(end - start) * (rounds + farthest), np.diff(offsets))
        later = np.arange(times.size)
        for apart in range(1, times.size):
            later = later[later >= apart]
            gaps = times[later] - times[later - apart]
            later = later[gaps <= farthest]
            if not later.size:
                break
            places = times[later] % (rounds + farthest) * window
            gaps = gaps[gaps <= farthest] - draws.first
            is_counted = gaps >= 0
            places = (places + gaps // draws.step)[is_counted]
            counts += np.bincount(places, minlength=counts.size)
        start = end
    return counts.reshape(rounds, window)


def of_frequent(log: ParticipationLog, draws: Draws) -> np.ndarray:
    """Logarithm of the mean of all bets on frequent clients after each round, [rounds].

    Clients with similar numbers of rounds are in one class.
    """
    before, after = _classes(log, draws)
    classes = np.arange(len(before))[:, None]
    numbers = np.zeros_like(before)
    for group in range(draws.step):
        gained = np.cumsum((after - before)[:, group :: draws.step], axis=1)
        numbers[:, group :: draws.step][:, 1:] = gained[:, :-1]
    for ago in range(1, min(draws.waits, log.rounds - 1) + 1):
        numbers[:, ago:] -= after[:, :-ago]
    numbers[0] = draws.clients - numbers[1:].sum(axis=0)
    shares = np.maximum(0, numbers) / np.maximum(1, draws.clients)
    sizes, frequency = log.cohort_sizes, (classes * before).sum(axis=0)
    mean = (classes * shares).sum(axis=0)
    spread = np.sqrt(sizes * ((classes - mean) ** 2 * shares).sum(axis=0))
    # Before round `first` cohorts of b-min-sep are not uniform.
    is_spread = (spread > 0) & (np.arange(log.rounds) >= draws.first)
    logs = np.full(log.rounds, -np.inf)
    for scale in _FREQUENT_SCALES:
        tilts = np.where(is_spread, np.minimum(1.0, scale / np.where(is_spread, spread, 1)), 0)
        for x in (tilts, -tilts):
            means = (np.exp(x * (classes - mean)) * shares).sum(axis=0)
            # Without a spread, or a free client at all, nothing is bet.
            moments = sizes * np.log(np.where(is_spread, means, 1.0))
            logs = np.logaddexp(logs, np.cumsum(x * (frequency - sizes * mean) - moments))
    return logs - np.log(2 * len(_FREQUENT_SCALES))


def _classes(log: ParticipationLog, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Clients of each round by their class before and after it, int64 [classes, rounds]."""
    by_client = log.by_client()
    # A function of the sizes alone, as bets need it; on average clients reach half of the classes.
    mean = float((log.cohort_sizes / np.maximum(1, draws.clients)).sum()) / draws.step
    width = 1 + int(2 * mean / _CLASSES)
    before, after = np.zeros((2, _CLASSES, log.rounds), np.int64)
    for start in range(0, by_client.clients.size, _CHUNK):
        offsets = by_client.offsets[start : start + _CHUNK + 1]
        rounds = by_client.rounds[offsets[0] : offsets[-1]]
        earlier = np.arange(rounds.size) - np.repeat(offsets[:-1] - offsets[0], np.diff(offsets))
        for counts, number in ((before, earlier), (after, earlier + 1)):
            places = np.minimum(number // width, _CLASSES - 1) * log.rounds + rounds
            counts += np.bincount(places, minlength=counts.size).reshape(counts.shape)
    used = 1 + int(np.flatnonzero(after.any(axis=1)).max(initial=0))
    return before[:used], after[:used]


@dataclasses.dataclass(frozen=True, eq=False)
class _Bets:
    """Overlaps of each cohort with earlier ones, for which bets are computed.

    Attributes:
      draws: of the cohorts.
      sizes: of the cohorts, int64 [rounds].
      shared: overlaps with earlier cohorts, int64 [rounds, window].
      waiting: number of clients of the earlier cohort that cannot be drawn, [rounds, window].
      share: of the clients that a cohort is drawn from, those of the earlier one, [rounds, window].
      deviation: standard deviation of the overlap, 0 without an earlier cohort, [rounds, window].
    """

    draws: Draws
    sizes: np.ndarray
    shared: np.ndarray
    waiting: np.ndarray
    share: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, log: ParticipationLog, draws: Draws) -> '_Bets':
        sizes = log.cohort_sizes
        lags = -(-max(0, log.rounds - draws.first) // draws.step)
        affordable = max(_LEAST_WINDOW, _BUDGET // max(1, int(sizes.sum())))
        window = min(_WINDOW, lags, affordable)
        if not window:
            empty = np.zeros((log.rounds, 0))
            return cls(draws, sizes, empty.astype(np.int64), empty, empty, empty)
        shared = shared_clients(log.by_client(), log.rounds, draws, window)
        waiting = np.zeros_like(shared)
        for ago in range(1, min(draws.waits, window - 1) + 1):
            waiting[ago:, ago:] += shared[:-ago, :-ago]
        earlier = np.arange(log.rounds)[:, None] - draws.first - draws.step * np.arange(window)
        marked = np.where(earlier >= 0, sizes[np.maximum(earlier, 0)] - waiting, 0)
        clients, drawn = draws.clients[:, None], sizes[:, None]
        share = np.minimum(1.0, marked / np.maximum(1, clients))
        left = np.maximum(0, clients - drawn) / np.maximum(1, clients - 1)
        return cls(
            draws, sizes, shared, waiting, share, np.sqrt(drawn * share * (1 - share) * left)
        )

    def _tilts(self, scale: float | np.ndarray) -> np.ndarray:
        """Logarithms of factors of the odds, [rounds, window]."""
        with np.errstate(divide='ignore', invalid='ignore'):
            excess = np.where(self.deviation > 0, scale / self.deviation, 0.0)
        return np.log1p(np.minimum(excess, _LARGEST_FACTOR))

    def of_lags(self) -> np.ndarray:
        """Logarithm of the mean of all bets on one lag after each round, [rounds]."""
        logs = np.full(self.sizes.size, -np.inf)
        for scale in _LAG_SCALES:
            for tilts in (self._tilts(scale), -self._tilts(scale)):
                moments = self.sizes[:, None] * np.log1p(self.share * np.expm1(tilts))
                wealth = np.cumsum(tilts * self.shared - moments, axis=0)
                logs = np.logaddexp(logs, scipy.special.logsumexp(wealth, axis=1))
        return logs - np.log(2 * len(_LAG_SCALES) * self.shared.shape[1])

    def of_pairs(self) -> np.ndarray:
        """Logarithm of the mean of all bets on pairs of cohorts after each round, [rounds]."""
        rounds, window = self.shared.shape
        window = min(window, _PAIR_WINDOW, max(2, int((_PAIRS / rounds) ** 0.5)))
        earlier = 1 + (np.arange(rounds)[:, None] - self.draws.first) // self.draws.step
        ramp = np.sqrt(np.clip(earlier / _FULL_SCALE, 0, 1))
        tilts = np.stack([self._tilts(scale * ramp)[:, :window] for scale in _PAIR_SCALES])
        exponents = np.zeros((len(_PAIR_SCALES), rounds))
        for t in range(self.draws.first + self.draws.step, rounds):
            exponents[:, t] = self._bet(t, tilts[:, t])
        wealth = np.cumsum(exponents, axis=1)
        return scipy.special.logsumexp(wealth, axis=0) - np.log(len(_PAIR_SCALES))

    def _bet(self, t: int, tilts: np.ndarray) -> np.ndarray:
        """Logarithms of the means over all pairs of cohorts before one, [scales].

        Args:
          t: round with at least two earlier cohorts.
          tilts: of the earlier cohorts, [scales, window].
        """
        earlier = 1 + (t - self.draws.first) // self.draws.step
        tilts = tilts[:, :earlier]
        one, other = _pairs(tilts.shape[1])
        ends = t - self.draws.first - self.draws.step * one
        lags = other - one - self.draws.first // self.draws.step
        both = np.where(lags >= 0, self.shared[ends, np.maximum(lags, 0)], 0)
        waiting = np.minimum(self.waiting[t, one], self.waiting[t, other])
        clients = max(1, int(self.draws.clients[t]))
        shares = np.maximum(0, both - waiting) / clients, both / clients
        total = []
        for x in (tilts[:, one], -tilts[:, one]):
            for y in (tilts[:, other], -tilts[:, other]):
                u, v = np.expm1(x), np.expm1(y)
                # Of the clients of both cohorts those that wait are unknown: the larger moment.
                joint = np.maximum(u * v * shares[0], u * v * shares[1])
                mean = self.share[t, one] * u + self.share[t, other] * v + joint
                gain = x * self.shared[t, one] + y * self.shared[t, other]
                total.append(gain - self.sizes[t] * np.log1p(mean))
        return scipy.special.logsumexp(np.concatenate(total, axis=1), axis=1) - np.log(4 * one.size)


@functools.lru_cache(maxsize=_PAIR_WINDOW)
def _pairs(number: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs i < j < number."""
    return np.triu_indices(number, 1)
