"""Exact tests of a log against b-min-sep sampling.

Given the rounds before t, clients take part in round t independently of each other:

- A client that was seen before is free if it took part in none of the last b - 1 rounds. If free it
  takes part with probability p.
- A client that was not seen before round t is free with probability 1 / (1 + (b - 1 - t) p) for
  t < b - 1, and later for sure. Proof: in round 0 it waits for each number of rounds 1 .. b - 1
  with probability c p, and for none with c, where c = 1 / (1 + (b - 1) p). The probability that it
  is free in round t and was not seen is c (1 - p)^t + sum_{w=1..t} c p (1 - p)^(t - w) = c; that it
  still waits is c p (b - 1 - t). So it takes part with q_t = p / (1 + p max(0, b - 1 - t)).

Hence from round b - 1 on, where everybody is free who does not wait, the size of a cohort is
binomial given the past. A product of quotients of other laws and this one is a nonnegative
martingale with mean 1, and so is the mean over several of them. It ever reaches 1 / a with
probability at most a, also if the run is stopped for what it has shown ([Ville39]).
"""

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
_SPREAD = Statistic(
    'spread',
    'spread of the sizes of cohorts',
    'The squared deviations of the sizes of {} cohorts add up to {:.6g}; '
    'the planned sampling has {:.6g}.',
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
    _SPREAD,
    earlier_cohorts.OVERLAPS,
    _TOTAL,
    _BUSIEST,
)
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
    by_client, sizes = log.by_client(), log.cohort_sizes
    gaps = np.diff(by_client.rounds, prepend=0)
    gaps[by_client.offsets[:-1]] = apart  # A client's first round.
    early = int((gaps < apart).sum())
    if early:
        return [_SEPARATION.test(0.0, apart, early)]
    # All clients but those of the last b - 1 rounds.
    sums, ends = np.append(0, np.cumsum(sizes)), np.arange(log.rounds)
    free = population - (sums[ends] - sums[np.maximum(0, ends - apart + 1)])
    total, of_one = int(sizes.sum()), rounds_of_one(p, log.rounds, apart)
    total_mean = clients_per_round * log.rounds
    most = int(by_client.counts.max(initial=0))
    return [
        _start(sizes[:apart], population, clients_per_round / population),
        _spread(sizes[apart - 1 :], free[apart - 1 :], p),
        earlier_cohorts.test(log, earlier_cohorts.Draws(free, first=apart, waits=apart - 1)),
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


def _start(sizes: np.ndarray, population: int, share: float) -> LogTest:
    """Both sides of the law of the clients of the first rounds, with the union bound over b counts.

    A client takes part in at most one of the first b rounds, and in each with the same probability.

    Args:
      sizes: of the cohorts, int64 [at most b rounds].
      population: number of clients.
      share: probability with which a client takes part in a round.
    """
    seen = np.cumsum(sizes).tolist()
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


def _spread(sizes: np.ndarray, free: np.ndarray, p: float) -> LogTest:
    """Ville's bound for the spread of binomial sizes; alternatives are powers of the binomial law.

    Args:
      sizes: of cohorts for which it is known who is free, int64 [rounds].
      free: number of free clients, int64 [rounds].
      p: probability with which each takes part.
    """
    is_possible = p < 1 or (sizes == free).all()
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
    # Of the mean of all martingales.
    logs = scipy.special.logsumexp(np.cumsum(exponents, axis=1), axis=0) - math.log(_POWERS.size)
    evidence = laws.ville(logs) if sizes.size else 1.0
    return _SPREAD.test(
        evidence if is_possible else 0.0,
        sizes.size,
        squares,
        variance,
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
