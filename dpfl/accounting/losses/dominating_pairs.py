"""Pairs of one-dimensional mixtures that dominate a round with a random cohort.

A pair (P, Q) dominates a release if for every two neighbouring runs, whatever was released before,
and every alpha > 0 the hockey-stick divergence `E[(dP/dQ - alpha)+]` is at least that of the
release. Rounds that are dominated compose to at most the composition of their pairs ([Zhu22],
theorem 10). docs/research/sampling_proofs.md derives the pairs of this file and proves that
they dominate.

All numbers are in units of the standard deviation of the noise.
"""

import dataclasses
import math

import numpy as np
from scipy import special, stats

from dpfl import _validate, errors

# Most members of a group in a sampled plan: the mixture has a component for each.
MOST_MEMBERS = 64
# Exponentials of more than this do not fit into a float.
_MOST_EXPONENT = 600.0


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
class Mixtures:
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
        far = special.logsumexp(up, axis=0, b=weights) - special.logsumexp(low, axis=0, b=weights)
        return np.where(near, np.log1p(np.maximum(p, -0.5)) - np.log1p(np.maximum(q, -0.5)), far)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Derivative of `loss`."""
        slopes = []
        for means in (self.upper, self.lower):
            logs = np.log(np.maximum(self.weights, 1e-300))[:, np.newaxis]
            posterior = special.softmax(self._exponents(x, means) + logs, axis=0)
            slopes.append(np.asarray(means) @ posterior)
        return slopes[0] - slopes[1]

    def masses(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masses of P and Q between successive points, float64 [points - 1] each."""
        return self._between(x, self.upper), self._between(x, self.lower)

    def beyond(self, x: float, above: bool) -> tuple[float, float]:
        """Masses of P and Q above or below a point."""
        sign = -1.0 if above else 1.0
        return tuple(  # type: ignore[return-value]
            float(np.dot(self.weights, special.ndtr(sign * (x - np.asarray(means)))))
            for means in (self.upper, self.lower)
        )

    def _exponents(self, x: np.ndarray, means: tuple[float, ...]) -> np.ndarray:
        mean = np.asarray(means)[:, np.newaxis]
        return mean * (x - mean / 2)

    def _between(self, x: np.ndarray, means: tuple[float, ...]) -> np.ndarray:
        total = np.zeros(x.size - 1)
        for weight, mean in zip(self.weights, means, strict=True):
            tails = special.ndtr(-np.abs(x - mean))
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

    labelled: tuple[tuple[float, Mixtures], ...]
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
    weights = _floats(stats.binom.pmf(members, size, probability))
    if neighbours.adjacency == 'zero_out':
        mixtures = Mixtures(weights, _floats(members / noise), (0.0,) * (size + 1))
        return DominatingPair(((1.0, mixtures),), symmetrised=False)
    upper = _floats(members / (2 * noise))
    mixtures = Mixtures(weights, upper, _floats(-members / (2 * noise)))
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
        counts = stats.hypergeom(population, size, cohort)
        absent, weights = float(counts.pmf(0)), counts.pmf(members)
        weights = weights / weights.sum()
    labelled = tuple(
        (
            float(weight),
            Mixtures(
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
    if size > MOST_MEMBERS:
        raise errors.ArgumentError(
            'group_size', size, f'must be at most {MOST_MEMBERS} with sampling'
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


def ends(mixtures: Mixtures, symmetrised: bool, log_tail: float) -> tuple[float, float]:
    """The points between which both distributions, without their tails, lie.

    Of a pair that is symmetrised only losses above 0 count.
    """
    reach = math.sqrt(-2 * log_tail)
    low = min(*mixtures.upper, *mixtures.lower) - reach
    high = max(*mixtures.upper, *mixtures.lower) + reach
    return (mixtures.centre if symmetrised else low), high
