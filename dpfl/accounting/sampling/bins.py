"""Balls-in-bins sampling and random allocation: the Gaussian mixtures that they release.

- Balls in bins ([Chua25], [Choquette25]): a client picks one of b bins uniformly, once, and takes
  part in the rounds bin, bin + b, bin + 2b, ...
- Random allocation ([Feldman25]): in each epoch of b rounds a client takes part in one round, which
  it picks uniformly and independently of other epochs.

Zeroing a client out compares Q = N(0, z^2) with a mixture P of N(m_i, z^2) over the patterns i in
which it may take part. The worst means are m_i = |C| u_i, with u_i = 1 in the rounds of pattern i:
they have the largest inner products that updates of norm 1 can have, and divergences grow with the
inner products (docs/research/sampling_proofs.md has the proof). P and Q only depend on these
products.
"""

from dataclasses import dataclass

import numpy as np

# Relative allowance for sums of products of up to a few thousand entries.
_ROUNDING = 1e-11


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
        grams.append(np.array([[between * (1 + _ROUNDING)]]))
    return Mixtures(tuple(grams))


def _gram(means: np.ndarray) -> np.ndarray:
    """Inner products of columns, none below the true one."""
    return means.T @ means * (1 + _ROUNDING)
