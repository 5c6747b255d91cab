"""Balls-in-bins sampling and random allocation: the mixtures they release, and samples of losses.

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

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import special

# Points of the grid to which losses are rounded up, and its reach in standard deviations.
POINTS, REACH = 2**16, 14.0
# Added to losses, and to logarithms of weights, for the rounding of exponentials.
LOSS_ROUNDING = 1e-8
# Added to inner products, relative to the largest; above the rounding of their factor.
_ROUNDING = 1e-9
# Relative allowance for sums of products of up to a few thousand entries.
_OF_SUMS = 1e-11


@dataclass(frozen=True, eq=False)
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


def balls_in_bins(matrix: np.ndarray, bins: int) -> Mixtures:
    """The one mixture of balls in bins, for |C| [rounds, rounds]."""
    means = np.zeros((len(matrix), bins))
    for first in range(0, len(matrix), bins):
        columns = matrix[:, first : first + bins]
        means[:, : columns.shape[1]] += columns
    return Mixtures((_gram(means),))


def allocation(matrix: np.ndarray, bins: int) -> Mixtures:
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


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class Release:
    """Mixtures in units of the noise, and the grid of their losses."""

    parts: tuple[_Part, ...]
    rounding: ClassVar[float] = LOSS_ROUNDING

    @classmethod
    def of(cls, mixtures: Mixtures, stddev: float) -> 'Release':
        return cls(tuple(_Part.of(gram / stddev**2) for gram in mixtures.grams))

    @functools.cached_property
    def largest(self) -> float:
        """g: the largest squared norm of means, summed over mixtures."""
        return float(sum(part.gram.diagonal().max() for part in self.parts))

    @property
    def width(self) -> int:
        """Entries of memory that a sample takes."""
        return max(len(part.gram) for part in self.parts)

    @property
    def end(self) -> float:
        """Of the grid of losses: where the Gaussian without sampling has no mass left."""
        return self.largest / 2 + REACH * math.sqrt(self.largest)

    def removed_range(self, tilt: float) -> 'Range':
        """Of samples from N(s m_i): B >= A^s exp(-s (s - 1) g / 2)."""
        order = tilt - 1
        return Range(order, tilt * order * self.largest / 2, -entropy(order, tilt), self.end)

    def added_range(self, tilt: float) -> 'Range':
        """Of samples from N(-r v): B >= A^-r exp(-r h / 2 - r^2 |v|^2 / 2)."""
        mean_square = sum(part.gram.diagonal().mean() for part in self.parts)
        square_of_mean = sum(part.gram.mean() for part in self.parts)
        most = tilt * mean_square / 2 + tilt**2 * square_of_mean / 2
        return Range(tilt, most, -entropy(tilt, tilt + 1), self.end)

    def samples(
        self, generator: np.random.Generator, count: int, tilts: tuple[float, float]
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Losses and logarithms of weights, [count] each, of a removed and of an added client.

        Both directions share the noise, as only the mean of each counts.
        """
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


class Range(NamedTuple):
    """How large the weighted payoff of a sample can be.

    A weight is at most `exp(most - order * loss)`. Times `1 - exp(epsilon - loss)`, that is largest
    at `loss = epsilon + log(1 + 1 / order)`.

    Attributes:
      order, most: of the weight.
      at_best: logarithm of the payoff there, minus `order` times that logarithm.
      end: of the grid; larger losses count as infinite.
      loss_rounding: what is added to losses, and to logarithms of weights, for their rounding.
    """

    order: float
    most: float
    at_best: float
    end: float
    loss_rounding: float = LOSS_ROUNDING

    def log_largest(self, epsilon: float) -> float:
        """Logarithm of the largest weighted payoff, if losses were rounded up to the grid."""
        # Rounding a loss up by less than this is like lowering epsilon by it.
        rounding = self.end / POINTS + 2 * self.loss_rounding
        within = self.at_best - self.order * (epsilon - rounding)
        return self.most + max(within, -self.order * self.end) + 2 * self.loss_rounding


def entropy(order: float, above: float) -> float:
    """`above log(above) - order log(order)` for `above = order + 1`."""
    return float(special.xlogy(above, above) - special.xlogy(order, order))


def _log_mean_exp(values: np.ndarray) -> np.ndarray:
    """Logarithm of the mean of exponentials of each row; overwrites the values."""
    largest = values.max(axis=1)
    np.exp(np.subtract(values, largest[:, None], out=values), out=values)
    return np.log(values.mean(axis=1)) + largest
