"""Exact tests of a log against b-min-sep sampling.

Given the rounds before t, clients take part in round t independently of each other:

- A client that was seen before is free if it took part in none of the last b - 1 rounds. If free it
  takes part with probability p.
- A client that was not seen before round t is free with probability 1 / (1 + (b - 1 - t) p) for
  t < b - 1, and later for sure. Proof: in round 0 it waits for each number of rounds 1 .. b - 1
  with probability c p, and for none with c, where c = 1 / (1 + (b - 1) p). The probability that it
  is free in round t and was not seen is c (1 - p)^t + sum_{w=1..t} c p (1 - p)^(t - w) = c; that it
  still waits is c p (b - 1 - t). So it takes part with q_t = p / (1 + p max(0, b - 1 - t)).

Hence the number of participants of any set of clients that the past determines is a sum of
binomials. For numbers k_t of such sets, prod_t exp(x k_t) / E exp(x k_t) is a nonnegative
martingale with mean 1 for each tilt x, and so is the mean over several tilts. It ever reaches 1 / a
with probability at most a, also if the run is stopped for what it has shown ([Ville39]).
"""

import dataclasses
import math

import numpy as np
import scipy

from dpfl.accounting.evidence import earlier_cohorts, laws
from dpfl.accounting.evidence.refutation import LogTest, Statistic
from dpfl.participation import ParticipationLog

_SEPARATION = Statistic(
    'separation',
    'separation',
    'Clients returned after less than {} rounds {} times.',
)
_FIRST_ROUNDS = Statistic(
    'first_rounds',
    'clients of the first rounds',
    '{} clients took part in the first {} rounds; the planned sampling has {:.6g} on average.',
)
_RATE, _NEW = (
    Statistic(
        key,
        f'{counted} given the rounds before',
        f'There were {{}} {counted} in {{}} rounds; '
        'given the rounds before, {:.6g} are expected.',
    )
    for key, counted in (('rate', 'participations'), ('new', 'new clients'))
)
_SPREAD = Statistic(
    'spread',
    'spread of the sizes of cohorts',
    'The squared deviations of the sizes of {} cohorts add up to {:.6g}; '
    'the planned sampling has {:.6g}.',
)
_OVERLAP = Statistic(
    'overlap',
    'overlap with the cohort {} rounds before',
    'Clients came back after {} rounds {} times; '
    'given the sizes of the cohorts, {:.6g} are expected.',
)
_TOTAL = Statistic(
    'total',
    'participations in total',
    'There were {} participations; the planned sampling has {} on average.',
)
_BUSIEST = Statistic(
    'busiest',
    'client with the most rounds',
    'A client took part {} times in {} rounds; one does {:.4g} times on average.',
)
STATISTICS = (
    _SEPARATION,
    _FIRST_ROUNDS,
    _RATE,
    _NEW,
    _SPREAD,
    _OVERLAP,
    earlier_cohorts.OVERLAPS,
    _TOTAL,
    _BUSIEST,
)
# Logarithms of the factors of the odds that a martingale mixes: from e^2 down to 1 / 1024, which is
# the least excess that 10^8 participations show.
_TILTS = np.array([sign * 2.0**power for power in range(-10, 2) for sign in (-1, 1)])
# Powers of the binomial law, whose spread is 1 / sqrt(power) of it: from twice to an eighth.
_POWERS = np.array([0.25, 0.5, 2.0, 4.0, 16.0, 64.0])
# Probability of more rounds of one client that is not followed up.
_NEGLIGIBLE = 1e-40


def probability(population: int, clients_per_round: int, separation: int) -> float:
    """p, with which cohorts have the expected size: a client takes part in 1 of b - 1 + 1/p rounds.

    Args:
      population: number of clients, at least `clients_per_round * separation`.
      clients_per_round: expected size of a cohort.
      separation: b.
    """
    return clients_per_round / (population - (separation - 1) * clients_per_round)


def b_min_sep(
    log: ParticipationLog, population: int, clients_per_round: int, apart: int
) -> list[LogTest]:
    """Tests of 'b_min_sep'."""
    p = probability(population, clients_per_round, apart)
    counts = _Counts.of(log, apart)
    if counts.early:
        return [_SEPARATION.test(0.0, apart, counts.early)]
    unseen_p = _rates_unseen(p, log.rounds, apart)
    seen = _before(counts.new, log.rounds)
    unseen = population - seen
    # Those that were seen and are not waiting.
    free = seen - _before(counts.sizes, apart - 1)
    total, of_one = int(counts.sizes.sum()), rounds_of_one(p, log.rounds, apart)
    total_mean = clients_per_round * log.rounds
    most = int(log.by_client().counts.max(initial=0))
    return [
        _start(counts.new[:apart], population, clients_per_round / population),
        _given_past(_RATE, counts.sizes, [(free, p), (unseen, unseen_p)]),
        _spread(counts.sizes[apart - 1 :], (free + unseen)[apart - 1 :], p),
        _given_past(_NEW, counts.new, [(unseen, unseen_p)]),
        _overlap(counts.prompt, counts.sizes, free + unseen, apart),
        earlier_cohorts.test(
            log, earlier_cohorts.Draws(free + unseen, first=apart, waits=apart - 1)
        ),
        _TOTAL.test(
            laws.two_sided(laws.tails_of_total(total, [(of_one, population)])),
            total,
            total_mean,
        ),
        _BUSIEST.test(
            laws.union(population, of_one.upper(most)),
            most,
            log.rounds,
            total_mean / population,
        ),
    ]


@dataclasses.dataclass(frozen=True, eq=False)
class _Counts:
    """Numbers of clients of each round by their earlier rounds.

    Attributes:
      sizes: of all clients of each round, int64 [rounds].
      new: of clients in their first round, int64 [rounds].
      prompt: of clients whose last round is b rounds ago, int64 [rounds].
      early: number of participations less than b rounds after the one before.
    """

    sizes: np.ndarray
    new: np.ndarray
    prompt: np.ndarray
    early: int

    @classmethod
    def of(cls, log: ParticipationLog, apart: int) -> '_Counts':
        by_client = log.by_client()
        gaps = np.diff(by_client.rounds, prepend=0)
        gaps[by_client.offsets[:-1]] = 0  # A client's first round.
        new, prompt = (
            np.bincount(by_client.rounds[gaps == gap], minlength=log.rounds) for gap in (0, apart)
        )
        return cls(log.cohort_sizes, new, prompt, int(((gaps > 0) & (gaps < apart)).sum()))


def _before(counts: np.ndarray, window: int) -> np.ndarray:
    """Sums over the last `window` rounds before each round, int64 [rounds]."""
    sums = np.append(0, np.cumsum(counts))
    ends = np.arange(counts.size)
    return sums[ends] - sums[np.maximum(0, ends - window)]


def _start(new: np.ndarray, population: int, share: float) -> LogTest:
    """Both sides of the law of the clients of the first rounds, with the union bound over b counts.

    A client takes part in at most one of the first b rounds, and in each with the same probability.

    Args:
      new: number of clients in their first round, int64 [at most b rounds].
      population: number of clients.
      share: probability with which a client takes part in a round.
    """
    seen = np.cumsum(new).tolist()
    p_values = [
        laws.binomial_two_sided(count, population, min(1.0, t * share))
        for t, count in enumerate(seen, start=1)
    ]
    first = int(np.argmin(p_values))
    return _FIRST_ROUNDS.test(
        laws.union(len(seen), p_values[first]),
        seen[first],
        first + 1,
        (first + 1) * share * population,
    )


def _given_past(
    statistic: Statistic, counts: np.ndarray, parts: list[tuple[np.ndarray, np.ndarray | float]]
) -> LogTest:
    """Ville's bound for counts that are sums of binomials given the past; alternatives tilt them.

    Args:
      statistic: what is counted.
      counts: int64 [rounds].
      parts: trials [rounds] and probability of each binomial.
    """
    exponents = _TILTS[:, None] * counts
    least, most, mean = np.zeros((3, counts.size))
    for trials, p in parts:
        exponents = exponents - trials * np.log1p(p * np.expm1(_TILTS[:, None]))
        least, most = least + trials * np.equal(p, 1), most + trials
        mean = mean + trials * p
    is_possible = bool(((least <= counts) & (counts <= most)).all())
    return statistic.test(
        _mixture(exponents) if is_possible else 0.0,
        counts.sum(),
        counts.size,
        mean.sum(),
    )


def _spread(sizes: np.ndarray, free: np.ndarray, p: float) -> LogTest:
    """Ville's bound for the spread of binomial sizes; alternatives are powers of the binomial law.

    Args:
      sizes: of cohorts for which it is known who is free, int64 [rounds].
      free: number of free clients, int64 [rounds].
      p: probability with which each takes part.
    """
    exponents = np.zeros((_POWERS.size, sizes.size))
    variance = 0.0
    for t, (size, trials) in enumerate(zip(sizes, free, strict=True)):
        law = laws.binomial(int(trials), p)
        logs = np.log(law.cells)
        place = int(size) - law.start
        seen = logs[place] if 0 <= place < logs.size else -np.inf
        scales = scipy.special.logsumexp(_POWERS[:, None] * logs, axis=1)
        # A size outside of the cells of the law adds nothing to the evidence.
        exponents[:, t] = (_POWERS - 1) * seen - scales if np.isfinite(seen) else seen
        variance += float(trials) * p * (1 - p)
    squares = ((sizes - free * p) ** 2).sum()
    return _SPREAD.test(
        _mixture(exponents) if sizes.size else 1.0,
        sizes.size,
        squares,
        variance,
    )


def _mixture(exponents: np.ndarray) -> float:
    """P-value of the mean of martingales; logarithms of their factors, [martingales, rounds]."""
    logs = scipy.special.logsumexp(np.cumsum(exponents, axis=1), axis=0) - math.log(len(exponents))
    return laws.ville(logs)


def _overlap(prompt: np.ndarray, sizes: np.ndarray, free: np.ndarray, apart: int) -> LogTest:
    """Both sides of the law of the clients back after b rounds, given the sizes of all cohorts.

    From round b on everybody is free who does not wait, and how many are free depends on the sizes
    alone. Given the sizes, each cohort is therefore uniform among the free clients, to whom those
    of the cohort b rounds ago belong: the overlaps are hypergeometric and independent.

    Args:
      prompt: number of clients of each cohort whose last round is b rounds ago, int64 [rounds].
      sizes: of the cohorts, int64 [rounds].
      free: number of free clients, int64 [rounds].
      apart: b.
    """
    overlaps = [
        laws.hypergeometric(whole, marked, drawn)
        for whole, marked, drawn in zip(
            free[apart:].tolist(), sizes[:-apart].tolist(), sizes[apart:].tolist(), strict=True
        )
    ]
    count, mean = int(prompt.sum()), sum(law.mean for law in overlaps)
    return _OVERLAP.test(
        laws.two_sided(laws.tails_of_total(count, [(law, 1) for law in overlaps])),
        apart,
        count,
        mean,
    )


def _rates_unseen(p: float, rounds: int, apart: int) -> np.ndarray:
    """Probability in each round of a client that was not seen before, [rounds]."""
    return p / (1 + p * np.maximum(0, apart - 1 - np.arange(rounds)))


def rounds_of_one(p: float, rounds: int, apart: int) -> laws.Law:
    """The law of the number of rounds of one client.

    Its first round is t with probability q_t prod_{s<t} (1 - q_s). After each round but the last it
    waits for b - 1 rounds. It has k rounds or more if k - 1 of the other rounds after t succeed.
    """
    unseen_p = _rates_unseen(p, rounds, apart)
    first = unseen_p * np.append(1.0, np.cumprod(1 - unseen_p[:-1]))
    left = rounds - 1 - np.arange(rounds)
    tails = [1.0]
    for more in range(2 + (rounds - 1) // apart):
        trials = np.maximum(0, left - more * (apart - 1))
        tails.append(float(first @ scipy.stats.binom.sf(more - 1, trials, p)))
        if tails[-1] < _NEGLIGIBLE:
            break
    # The last tail is 0 or negligible.
    return laws.Law(0, np.maximum(0.0, -np.diff(tails)), tails[-1])
