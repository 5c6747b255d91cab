"""Pairs of one-dimensional mixtures that dominate a round with a random cohort.

A pair (P, Q) dominates a release if for every two neighbouring runs, whatever was released before,
and every alpha > 0 the hockey-stick divergence `E[(dP/dQ - alpha)+]` is at least that of the
release. Rounds that are dominated compose to at most the composition of their pairs ([Zhu22],
theorem 10). docs/research/sampling_proofs.md derives the pairs of this file and proves that
they dominate.

All numbers are in units of the standard deviation of the noise.

Truncated Poisson sampling, whose cohorts have a largest size ([Ganesh25]), has a mixture of two
releases instead. A Poisson sample of more than `cap` clients is reduced to a uniformly random
subset of that size. What one client changes is split by whether at least `cap` others are in the
sample, which happens with probability t and does not depend on the client:

- fewer: the client takes part with probability q, and displaces nobody, as without a cap;
- at least cap: the cohort is a uniform set T of `cap` others, or, with probability p, the client in
  the place of a random one of T. Zeroing it out leaves p and T as they are.

So hockey-stick divergences are at most those of the mixture, (1 - t) of the first case plus t of
the second. docs/research/sampling_proofs.md has the proof, and the bound for the second case.
"""

import dataclasses
import math

import numpy as np
import scipy

from dpfl import _validate, errors
from dpfl.accounting import dp

# Most members of a group in a sampled plan: the mixture has a component for each.
_MOST_MEMBERS = 64
# Exponentials of more than this do not fit into a float.
_MOST_EXPONENT = 600.0
# Relative, for tails of the binomial distribution and Gaussian integrals.
_ROUNDING = 1e-9
# The least number with all digits of a float. A probability below it counts as this.
LEAST = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """Which runs are neighbours.

    Attributes:
      adjacency: as in `PrivacyPlan`.
      group_size: number of clients that are zeroed out or replaced together, at least 1.
    """

    adjacency: str = 'zero_out'
    group_size: int = 1


@dataclasses.dataclass(frozen=True)
class MixturePair:
    """`P = sum_j w_j N(upper_j, 1)` and `Q = sum_j w_j N(lower_j, 1)`; component 0 has means 0.

    Attributes:
      weights: w, at least 0, with sum 1.
      upper, lower: means. dP/dQ increases with x wherever it is at least 1, and everywhere if the
        lower means are not above 0.
    """

    weights: tuple[float, ...]
    upper: tuple[float, ...]
    lower: tuple[float, ...]

    @property
    def centre(self) -> float:
        """Where dP/dQ is 1; from here on it is above 1. For pairs of this module only."""
        return (self.upper[1] + self.lower[1]) / 2

    def loss(self, x: np.ndarray) -> np.ndarray:
        """`log(dP/dQ)` at x."""
        weights = np.asarray(self.weights)[:, np.newaxis]
        up, low = (self._exponents(x, means) for means in (self.upper, self.lower))
        p, q = (
            (weights * np.expm1(np.minimum(exponents, _MOST_EXPONENT))).sum(axis=0)
            for exponents in (up, low)
        )
        # Near 0, as of a rare sample, only this form keeps the digits.
        near = (np.maximum(up.max(axis=0), low.max(axis=0)) < _MOST_EXPONENT) & (
            np.minimum(p, q) > -0.5
        )
        if near.all():
            return np.log1p(p) - np.log1p(q)
        far = scipy.special.logsumexp(up, axis=0, b=weights) - scipy.special.logsumexp(
            low, axis=0, b=weights
        )
        return np.where(near, np.log1p(np.maximum(p, -0.5)) - np.log1p(np.maximum(q, -0.5)), far)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Derivative of `loss`."""
        slopes = []
        for means in (self.upper, self.lower):
            logs = np.log(np.maximum(self.weights, 1e-300))[:, np.newaxis]
            posterior = scipy.special.softmax(self._exponents(x, means) + logs, axis=0)
            slopes.append(np.asarray(means) @ posterior)
        return slopes[0] - slopes[1]

    def masses(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masses of P and Q between successive points, float64 [points - 1] each."""
        return self._between(x, self.upper), self._between(x, self.lower)

    def beyond(self, x: float, above: bool) -> tuple[float, float]:
        """Masses of P and Q above or below a point."""
        sign = -1.0 if above else 1.0
        return tuple(  # type: ignore[return-value]
            float(np.dot(self.weights, scipy.special.ndtr(sign * (x - np.asarray(means)))))
            for means in (self.upper, self.lower)
        )

    def _exponents(self, x: np.ndarray, means: tuple[float, ...]) -> np.ndarray:
        mean = np.asarray(means)[:, np.newaxis]
        return mean * (x - mean / 2)

    def _between(self, x: np.ndarray, means: tuple[float, ...]) -> np.ndarray:
        total = np.zeros(x.size - 1)
        for weight, mean in zip(self.weights, means, strict=True):
            tails = scipy.special.ndtr(-np.abs(x - mean))
            left, right = x[:-1] - mean, x[1:] - mean
            # The difference of the two tails on the same side keeps its digits.
            inside = np.where(
                left >= 0,
                tails[:-1] - tails[1:],
                np.where(right <= 0, tails[1:] - tails[:-1], 1 - tails[:-1] - tails[1:]),
            )
            total += weight * np.maximum(inside, 0.0)
        return total


@dataclasses.dataclass(frozen=True)
class DominatingPair:
    """A pair of distributions that dominates a round.

    Attributes:
      labelled: `((probability, mixtures), ...)`: a label is drawn and shown, then a point of its
        mixtures.
      symmetrised: the divergence at alpha >= 1 is that of the pair, in either order of the runs,
        and below 1 it follows from the opposite order. Otherwise the pair is for one order of the
        neighbours, and its opposite for the other.
    """

    labelled: tuple[tuple[float, MixturePair], ...]
    symmetrised: bool


def poisson(probability: float, noise: float, neighbours: Neighbours) -> DominatingPair:
    """The pair of Gaussian noise on a Poisson sample.

    Args:
      probability: of a client to be in the sample, within (0, 1].
      noise: standard deviation divided by how far one client moves the sum between neighbours: by
        its update if it is zeroed out, by two updates if it is replaced.
      neighbours: which runs are neighbours.
    """
    size = _group_size(neighbours)
    members = np.arange(size + 1)
    weights = _floats(scipy.stats.binom.pmf(members, size, probability))
    if neighbours.adjacency == 'zero_out':
        mixtures = MixturePair(weights, _floats(members / noise), (0.0,) * (size + 1))
        return DominatingPair(((1.0, mixtures),), symmetrised=False)
    upper = _floats(members / (2 * noise))
    mixtures = MixturePair(weights, upper, _floats(-members / (2 * noise)))
    return DominatingPair(((1.0, mixtures),), symmetrised=True)


def fixed_size(
    population: int, cohort: int, noise: float, neighbours: Neighbours
) -> DominatingPair:
    """The pair of Gaussian noise on a uniformly random cohort of fixed size.

    Args:
      population: number of clients.
      cohort: number of clients in the sample.
      noise: standard deviation divided by the distance of two updates at most.
      neighbours: which runs are neighbours; both orders have the same pair.
    """
    size = _group_size(neighbours)
    members = np.arange(1, size + 1)
    if size == 1:  # The quotient has all its digits.
        absent, weights = (population - cohort) / population, np.ones(1)
    else:
        counts = scipy.stats.hypergeom(population, size, cohort)
        absent, weights = float(counts.pmf(0)), counts.pmf(members)
        weights = weights / weights.sum()
    labelled = tuple(
        (
            float(weight),
            MixturePair(
                (absent, 1 - absent),
                (0.0, float(count) / noise),
                # Zeroed out, a client is half as far from its update as another one may be.
                (0.0, float(count) / (2 * noise) if neighbours.adjacency == 'zero_out' else 0.0),
            ),
        )
        for count, weight in zip(members, weights, strict=True)
        if weight > 0
    )
    return DominatingPair(labelled, symmetrised=True)


def _group_size(neighbours: Neighbours) -> int:
    size = _validate.integer('group_size', neighbours.group_size, minimum=1)
    if size > _MOST_MEMBERS:
        raise errors.ArgumentError(
            'group_size', size, f'must be at most {_MOST_MEMBERS} with sampling'
        )
    return size


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


def spread(pair: DominatingPair, log_tail: float) -> float:
    """Largest minus smallest loss of a pair, without tails of mass `exp(log_tail)`."""
    return max(
        float(np.ptp(mixtures.loss(np.array(ends(mixtures, pair.symmetrised, log_tail)))))
        * (2 if pair.symmetrised else 1)
        for _, mixtures in pair.labelled
    )


def ends(mixtures: MixturePair, symmetrised: bool, log_tail: float) -> tuple[float, float]:
    """The points between which both distributions, without their tails, lie.

    Of a pair that is symmetrised only losses above 0 count.
    """
    reach = math.sqrt(-2 * log_tail)
    low = min(*mixtures.upper, *mixtures.lower) - reach
    high = max(*mixtures.upper, *mixtures.lower) + reach
    return (mixtures.centre if symmetrised else low), high


def full_sample(population: int, probability: float, cap: int) -> tuple[float, float]:
    """Probability t that at least `cap` other clients are in a Poisson sample, and p.

    p is the probability that a client takes part if they are: q cap E[1 / (R + 1) | R >= cap] for
    R others. Both are rounded up.
    """
    if cap >= population or not probability:
        return 0.0, 0.0
    full = float(scipy.stats.binom.sf(cap - 1, population - 1, probability))
    # The mean is at most that of the least R.
    most = probability * cap / (cap + 1)
    if full < LEAST:
        return LEAST, most
    # P(R = r) q / (r + 1) = P(R' = r + 1) / n for the size R' of the sample of all n clients.
    beyond = float(scipy.stats.binom.sf(cap, population, probability))
    if beyond >= LEAST:
        most = min(most, beyond * cap / population / full * (1 + _ROUNDING))
    return min(1.0, full * (1 + _ROUNDING)), most


def spread_of_full(placed: float, noise_multiplier: float, log_tail: float) -> float:
    """Largest loss of the second case, without the tails; the smallest is its negative."""
    mu = 2 / noise_multiplier
    reach = math.sqrt(-2 * log_tail) * mu + mu * mu / 2
    return float(np.logaddexp(math.log1p(-placed), math.log(placed) + reach))


def full_losses(
    placed: float, noise_multiplier: float, step: float, log_tail: float
) -> 'tuple[dp.pld.pld_pmf.PLDPmf, dp.pld.pld_pmf.PLDPmf]':
    """Losses of the second case on a grid, for a client that is removed and for one that is added.

    With a the sum of the client and the displaced one, b that of the displaced one alone, |b| <= 1,
    |a - b| <= 1 and |a| <= 2, in clip norms, these are the losses between
    `(1 - p) N(0) + p N(a)` and `(1 - p) N(0) + p N(b)`.

    Args:
      placed: p.
      noise_multiplier: standard deviation of N.
      step: of the grid.
      log_tail: logarithm of the mass that may count as an infinite loss.
    """
    most = math.ceil(spread_of_full(placed, noise_multiplier, log_tail) / step)
    epsilons = np.arange(most + 1) * step
    # [Balle18-sampling], theorem 2: the divergence at e^epsilon is p times that of N(a) and a
    # mixture of N(0) and N(b), at another order.
    order = 1 + np.expm1(epsilons) / placed
    share = np.exp(epsilons - np.log(order))
    near = _gaussian_delta(1 / noise_multiplier, np.log(order))
    far = _gaussian_delta(2 / noise_multiplier, np.log(order))
    # By joint convexity it is also at most p times that of N(a) and N(b).
    plain = _gaussian_delta(1 / noise_multiplier, epsilons)
    removed = placed * np.minimum((1 - share) * far + share * near, plain)
    added = placed * near
    return _pmf(removed, added, epsilons, step), _pmf(added, removed, epsilons, step)


def _pmf(
    deltas: np.ndarray, reverse: np.ndarray, epsilons: np.ndarray, step: float
) -> 'dp.pld.pld_pmf.PLDPmf':
    """The pessimistic masses of a divergence, from it and that of the other direction at >= 0."""
    # delta(-epsilon) = 1 - e^-epsilon + e^-epsilon reverse(epsilon).
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * reverse[:0:-1]
    both = np.concatenate([below, deltas]) * (1 + _ROUNDING)
    places = np.concatenate([-epsilons[:0:-1], epsilons])
    most = epsilons.size - 1
    hull = _lower_hull(np.exp(places), np.minimum(both, 1.0))
    return dp.pld.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -most, most, hull)


def _lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The largest convex function below the points, at x: as a divergence is convex in x."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            j, k = kept[-2], kept[-1]
            if (y[k] - y[j]) * (x[i] - x[k]) <= (y[i] - y[k]) * (x[k] - x[j]):
                break
            kept.pop()
        kept.append(i)
    hull = np.interp(x, x[kept], y[kept])
    return np.minimum.accumulate(hull)


def _gaussian_delta(mu: float, epsilons: np.ndarray) -> np.ndarray:
    """The curve of the Gaussian mechanism ([Balle18], theorem 8) at epsilons >= 0, for mu > 0."""
    t = epsilons / mu - mu / 2
    tails = scipy.special.erfcx(np.maximum(t, -5.0) / math.sqrt(2)) - scipy.special.erfcx(
        (np.maximum(t, -5.0) + mu) / math.sqrt(2)
    )
    by_tails = np.exp(-np.square(np.maximum(t, -5.0)) / 2) * tails / 2
    plain = scipy.special.ndtr(-t) - np.exp(np.minimum(epsilons, 700.0)) * scipy.special.ndtr(
        -t - mu
    )
    return np.where(t > -5.0, by_tails, plain)


def truncated_divergences(poisson: np.ndarray, event: dp.Event, orders: np.ndarray) -> np.ndarray:
    """Renyi divergences of the release, from those without a cap, float64 [orders].

    exp((a - 1) D_a) is jointly convex, so that it is at most the mean over both cases. In the
    second one it is at most `1 - p + p exp(a (a - 1) / (2 noise^2))`, by the same argument.
    """
    full, placed = event.full()
    if not full:
        return poisson
    least = full * (1 - 4 * _ROUNDING)
    noise = event.event.noise_multiplier
    of_full = np.logaddexp(
        math.log1p(-placed), math.log(placed) + orders * (orders - 1) / (2 * noise**2)
    )
    weights = np.log1p(-least) if least < 1 else -np.inf
    log_full = math.log(full) if full > LEAST else _log_full(event)
    return np.logaddexp(weights + (orders - 1) * poisson, log_full + of_full) / (orders - 1)


def _log_full(event: dp.Event) -> float:
    """Upper bound of log t for a t that no float holds ([Hoeffding63], theorem 1)."""
    others, q = event.population - 1, event.sampling_probability
    share = event.cap / others  # Above q, or t would not be so small.
    entropy = scipy.special.rel_entr(share, q) + scipy.special.rel_entr(1 - share, 1 - q)
    return min(math.log(LEAST), -others * float(entropy) * (1 - _ROUNDING))
