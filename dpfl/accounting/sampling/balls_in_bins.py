"""Balls-in-bins sampling and random allocation: clients pick their rounds by bins.

- Balls in bins ([Chua25], [Choquette25]): a client picks one of b bins uniformly, once, and takes
  part in the rounds bin, bin + b, bin + 2b, ...
- Random allocation ([Feldman25]): in each epoch of b rounds a client takes part in one round, which
  it picks uniformly and independently of other epochs.

Zeroing a client out compares Q = N(0, z^2) with a mixture P of N(m_i, z^2) over the patterns i in
which it may take part. The worst means are m_i = |C| u_i, with u_i = 1 in the rounds of pattern i:
they have the largest inner products that updates of norm 1 can have, and divergences grow with the
inner products (docs/research/sampling_proofs.md has the proof). P and Q only depend on these
products.

With A = dP/dQ, the mean over components of exp(<m_i, y> - |m_i|^2 / 2) in units of the noise, the
divergences are `E_P (1 - e^eps / A)_+` and `E_Q (1 - e^eps A)_+`. Few samples of P or Q contribute,
so the samples come from proposals with large losses, and have weights:

- for P from the mixture of N(s m_i), s >= 1. Its density ratio B to Q is at least
  `A^s exp(-s (s - 1) g / 2)` by Jensen's inequality, with g the largest |m_i|^2;
- for Q from the Gaussian N(-r v), v the mean of all m_i, r >= 0. Its B is at least
  `A^-r exp(-r h / 2 - r^2 |v|^2 / 2)`, with h the mean of all |m_i|^2, again by Jensen's
  inequality.

So weights `A / B` and `1 / B` are bounded by a function of A, and the weighted payoff has a known
largest value. docs/research/sampling_proofs.md has the proofs.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpfl import _cache, errors, mechanisms
from dpfl.accounting.evidence import bins as bins_evidence
from dpfl.accounting.evidence import unseen
from dpfl.accounting.evidence.refutation import LogTest
from dpfl.accounting.sampling import base, monte_carlo
from dpfl.accounting.sampling.monte_carlo import Estimated
from dpfl.participation import Participation, ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Added to losses, and to logarithms of weights, for the rounding of exponentials.
_LOSS_ROUNDING = 1e-8
# Added to inner products, relative to the largest; above the rounding of their factor.
_ROUNDING = 1e-9
# Relative allowance for sums of products of up to a few thousand entries.
_OF_SUMS = 1e-11
# Relative error of the columns of C that the rounding of estimates covers.
_MOST_COLUMN_ERROR = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Mixtures:
    """Independent mixtures of Gaussians, each with equal weights, that are released together.

    Attributes:
      grams: inner products of the means of each mixture, float64 [components, components], at least
        0 each, for noise of standard deviation 1.
    """

    grams: tuple[np.ndarray, ...]

    @property
    def squared_norm(self) -> float:
        """Largest squared norm of the means of all mixtures together."""
        return float(sum(gram.diagonal().max() for gram in self.grams))

    @property
    def cost(self) -> int:
        """Of one sample: the number of components."""
        return sum(len(gram) for gram in self.grams)

    @property
    def is_mixed(self) -> bool:
        """Whether a mixture has several components."""
        return any(len(gram) > 1 for gram in self.grams)

    @property
    def key(self) -> list:
        return [_cache.array_key(gram) for gram in self.grams]

    def release(self, stddev: float) -> 'Release':
        return Release(tuple(_Part.of(gram / stddev**2) for gram in self.grams))


def of_bins(matrix: np.ndarray, bins: int) -> Mixtures:
    """The one mixture of balls in bins, for |C| [rounds, rounds]."""
    means = np.zeros((len(matrix), bins))
    for first in range(0, len(matrix), bins):
        columns = matrix[:, first : first + bins]
        means[:, : columns.shape[1]] += columns
    return Mixtures((_gram(means),))


def of_epochs(matrix: np.ndarray, bins: int) -> Mixtures:
    """The mixtures of random allocation, one of each epoch, for |C| [rounds, rounds].

    If noise is correlated between epochs, their means have inner products. The largest one of each
    pair of epochs counts for all of their rounds, as another release without sampling.
    """
    rounds = len(matrix)
    epochs = [np.arange(first, min(first + bins, rounds)) for first in range(0, rounds, bins)]
    products = _gram(matrix)
    grams, between = [], 0.0
    for place, epoch in enumerate(epochs):
        gram = np.zeros((bins, bins))
        gram[: epoch.size, : epoch.size] = products[np.ix_(epoch, epoch)]
        grams.append(gram)
        between += sum(2 * products[np.ix_(epoch, later)].max() for later in epochs[place + 1 :])
    if between:
        grams.append(np.array([[between * (1 + _OF_SUMS)]]))
    return Mixtures(tuple(grams))


def _gram(means: np.ndarray) -> np.ndarray:
    """Inner products of columns, none below the true one."""
    return means.T @ means * (1 + _OF_SUMS)


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """One mixture: inner products [b, b], and F with F F^T equal to them, [b] if it is diagonal."""

    gram: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, gram: np.ndarray) -> '_Part':
        diagonal = gram.diagonal()
        if not (gram - np.diag(diagonal)).any():
            raised = diagonal * (1 + _ROUNDING)
            return cls(np.diag(raised), np.sqrt(raised))
        # Divergences grow with inner products, so that these may be raised for the rounding.
        raised = gram + _ROUNDING * diagonal.max() * (1 + np.eye(len(gram)))
        factor = np.linalg.cholesky(raised)
        return cls(factor @ factor.T, factor)

    def noise(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Inner products of the noise with all means, [count, b]."""
        normal = generator.standard_normal((count, self.factor.shape[-1]))
        return normal * self.factor if self.factor.ndim == 1 else normal @ self.factor.T


class Release(monte_carlo.Release):
    """Mixtures in units of the noise."""

    rounding = _LOSS_ROUNDING

    def __init__(self, parts: tuple[_Part, ...]):
        self.parts = parts
        squares = [part.gram.diagonal() for part in parts]
        self.width = max(map(len, squares))
        self.largest = float(sum(norms.max() for norms in squares))
        self.mean_square = float(sum(norms.mean() for norms in squares))
        self.square_of_mean = float(sum(part.gram.mean() for part in parts))

    def most_log_total(self, tilt: float) -> float:
        """By Jensen's inequality, exp(s (s - 1) g / 2) is such a Z."""
        return tilt * (tilt - 1) * self.largest / 2

    def samples(
        self, generator: np.random.Generator, count: int, tilts: tuple[float, float]
    ) -> tuple[monte_carlo.Samples, monte_carlo.Samples]:
        s, r = tilts
        loss, weight = np.zeros(count), np.zeros(count)
        gain, counterweight = np.zeros(count), np.zeros(count)
        for part in self.parts:
            noise = part.noise(generator, count)
            half = part.gram.diagonal() / 2
            towards = part.gram.mean(axis=0)
            # <v, y> for y = noise - r v, and log dQ/dR.
            along = noise.mean(axis=1) - r * part.gram.mean()
            counterweight += r * along + r * r * part.gram.mean() / 2
            gain -= _log_mean_exp(noise - (half + r * towards))
            component = generator.integers(len(half), size=count)
            products = np.add(noise, s * part.gram[component], out=noise)
            if s == 1:
                loss += _log_mean_exp(np.subtract(products, half, out=products))
                continue
            tilted = _log_mean_exp(s * products - s * s * half)
            ratio = _log_mean_exp(np.subtract(products, half, out=products))
            loss += ratio
            weight += ratio - tilted
        return (loss, weight), (gain, counterweight)


def _log_mean_exp(values: np.ndarray) -> np.ndarray:
    """Logarithm of the mean of exponentials of each row; overwrites the values."""
    largest = values.max(axis=1)
    np.exp(np.subtract(values, largest[:, None], out=values), out=values)
    return np.log(values.mean(axis=1)) + largest


@dataclasses.dataclass(frozen=True, kw_only=True)
class _InBins(Estimated):
    """Every client picks bins uniformly; round t has the clients of bin t mod `groups`.

    Cohorts have random sizes, and may be empty. Not for trees.
    """

    statistics = bins_evidence.STATISTICS
    # Whether a client picks a bin for each pass through all of them, or one for the whole run.
    picks_anew: ClassVar[bool]

    @classmethod
    def defaults(
        cls, mechanism: mechanisms.Mechanism, population: int, clients_per_round: int
    ) -> dict[str, Any]:
        return {'groups': population // clients_per_round}

    def _check(self, plan: 'PrivacyPlan') -> None:
        if abs(plan.clients_per_round * self.groups - self.population) >= self.groups:
            raise errors.ArgumentError(
                'population',
                self.population,
                f'must be about {plan.clients_per_round * self.groups}, {self.groups} groups of '
                f'clients_per_round={plan.clients_per_round}, with sampling={self.name}',
            )
        if plan.mechanism.forest() is not None:
            raise errors.ArgumentError(
                'mechanism', plan.mechanism.name, f'cannot be a tree with sampling={self.name}'
            )
        if not plan.mechanism.column_error(plan.participation.rounds) <= _MOST_COLUMN_ERROR:
            raise errors.ArgumentError(
                'mechanism',
                plan.mechanism.name,
                f'must have parameters whose digits do not cancel with sampling={self.name}',
            )
        super()._check(plan)

    def cohorts(self, clients_per_round: int, seed: int) -> Callable[[int], np.ndarray]:
        @functools.lru_cache(1)
        def clients(number: int) -> list[np.ndarray]:
            """The clients of each bin in a pass."""
            generator = np.random.default_rng([base.STREAM, seed, number])
            picked = generator.integers(self.groups, size=self.population)
            by_bin = np.argsort(picked, kind='stable')
            return np.split(by_bin, np.searchsorted(picked[by_bin], np.arange(1, self.groups)))

        return lambda t: clients(t // self.groups if self.picks_anew else 0)[t % self.groups]

    def mixtures(self, plan: 'PrivacyPlan') -> Mixtures:
        of_matrix = of_epochs if self.picks_anew else of_bins
        return _mixtures(plan.mechanism_of_run, self.groups, of_matrix)

    def unseen(self, plan: 'PrivacyPlan', rounds: int) -> list[str]:
        return unseen.slots(self.population, self.groups, rounds, is_allocation=self.picks_anew)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BallsInBins(_InBins):
    """Each client takes part in the rounds of one of `groups` bins ([Chua25], [Choquette25]).

    It picks its bin uniformly, once (docs/research/sampling_proofs.md).

    Attributes:
      groups: number of bins.

    Example:
      >>> BallsInBins(population=1000, groups=4).schema(10).count
      3
    """

    name: ClassVar[str] = 'balls_in_bins'
    help: ClassVar[str] = (
        'each client in every round of one of --groups bins, for any noise but trees; epsilon '
        'is estimated'
    )
    picks_anew: ClassVar[bool] = False

    def schema(self, rounds: int) -> Participation:
        return Participation(rounds, self.groups)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return bins_evidence.balls_in_bins(log, self.population, self.groups)

    def title(self) -> str:
        return f'the rounds of one of {self.groups} bins for each client'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'each of the {self.population} clients has picked one of {self.groups} bins, '
            'uniformly and independently of all other clients, and never changes it. A client of '
            f'bin i takes part in the rounds i, i + {self.groups}, i + {2 * self.groups}, '
            f'... of {plan.participation.rounds} rounds, and in no others'
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomAllocation(_InBins):
    """Each client takes part in one random round of each `groups` rounds ([Feldman25]).

    It picks them uniformly and independently (docs/research/sampling_proofs.md).

    Attributes:
      groups: rounds of an epoch.

    Example:
      >>> RandomAllocation(population=1000, groups=4).schema(10).min_separation
      1
    """

    name: ClassVar[str] = 'random_allocation'
    help: ClassVar[str] = (
        'each client in one random round of each --groups, for any noise but trees; epsilon is '
        'estimated'
    )
    picks_anew: ClassVar[bool] = True

    def schema(self, rounds: int) -> Participation:
        # Rounds of two epochs may be neighbours.
        return Participation(rounds, 1, Participation(rounds, self.groups).count)

    def log_tests(self, plan: 'PrivacyPlan', log: ParticipationLog) -> list[LogTest]:
        return bins_evidence.random_allocation(log, self.population, self.groups)

    def title(self) -> str:
        return f'one random round of each {self.groups} for each client'

    def describe(self, plan: 'PrivacyPlan') -> str:
        return (
            f'each of the {self.population} clients takes part in one round of each {self.groups}, '
            'which it picks uniformly and independently of all other clients and of its other '
            f'rounds, in {plan.participation.rounds} rounds'
        )


@functools.lru_cache(4)
def _mixtures(
    mechanism: mechanisms.Mechanism,
    groups: int,
    of_matrix: Callable[[np.ndarray, int], Mixtures],
) -> Mixtures:
    return of_matrix(np.abs(mechanism.strategy_matrix()), groups)
