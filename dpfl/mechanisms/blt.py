"""Buffered linear Toeplitz mechanisms (BLT).

The inverse of a BLT is one, too: C = BLT(theta, omega), C^-1 = BLT(theta^, omega^). As functions of
y = 1 / x, where x is the variable of the generating functions,

    C(y)    = 1 + sum_j omega_j / (y - theta_j)    = prod_j (y - theta^_j) / (y - theta_j)
    C^-1(y) = 1 + sum_j omega^_j / (y - theta^_j)  = prod_j (y - theta_j) / (y - theta^_j)

This is [McMahan24], algorithm 5, without the polynomial division of lemma 5.2 in its reference
[15]. Decays near 1 matter most. They are held as rates 1 - theta, so that differences of decays
keep their relative precision.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, rounding, toeplitz
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation

# Bisections of the logarithm, from 1e-290 of an interval to all of it, that find a root to its last
# bit.
_HALVINGS = 72
# Every buffer takes memory for each round. Published mechanisms have at most 10.
_MOST_BUFFERS = 1024


class Inverse(NamedTuple):
    """Parameters of `C^-1`, each float64 [d]; `rate` is 1 - decay in full relative precision."""

    decay: np.ndarray
    scale: np.ndarray
    rate: np.ndarray


def inverse(decay: np.ndarray, scale: np.ndarray) -> Inverse:
    """Parameters of `C^-1` for `C = BLT(decay, scale)` with scales >= 0.

    Buffers with equal decays count as one, and buffers with scale 0 are dropped. The inverse has
    the number of buffers that remain, with the largest decay first. The inverse decays interlace
    with the decays (theta_1 > theta^_1 > theta_2 > ...), their rates and scales are found to full
    relative precision, and the inverse scales are negative.
    """
    rates, which = np.unique(1 - np.asarray(decay, float), return_inverse=True)
    scale = np.bincount(which, weights=np.asarray(scale, float), minlength=rates.size)
    rates, scale = rates[scale != 0], scale[scale != 0]
    if not rates.size:
        return Inverse(*np.zeros((3, 0)))
    origin, offset = _interlaced_roots(rates, scale)
    gaps = np.subtract.outer(rates[origin], rates) + offset[:, None]
    inverse_rates = rates[origin] + offset
    # Where C is zero, the residue of C^-1 is 1 / C'.
    return Inverse(1 - inverse_rates, -1 / (scale / gaps**2).sum(axis=1), inverse_rates)


def _interlaced_roots(rates, scale):
    """Roots of `1 = sum_i scale_i / (root - rate_i)`: index of the nearest rate, and its offset.

    The right-hand side falls from infinity to minus infinity between two rates, and to 0 beyond the
    last rate, so each interval has one root.
    """
    d = rates.size
    origin, width = np.arange(d), np.append(np.diff(rates), scale.sum())

    def excess(offset):
        return 1 - (scale / (np.subtract.outer(rates[origin], rates) + offset[:, None])).sum(axis=1)

    upper = np.flatnonzero(excess(width / 2)[:-1] < 0)
    origin[upper] += 1
    side = np.ones(d)
    side[upper] = -1.0
    # Bisect the logarithm of the distance to the nearest rate.
    near, far = width * 1e-290, width * np.append(np.full(d - 1, 0.5), 1.0)
    for _ in range(_HALVINGS):
        middle = np.sqrt(near) * np.sqrt(far)
        beyond = side * excess(side * middle) > 0
        far, near = np.where(beyond, middle, far), np.where(beyond, near, middle)
    return origin, side * middle


def powers(rates: np.ndarray, terms: int) -> np.ndarray:
    """`(1 - rate)^i` for i = 0 .. terms - 1, [d, terms], in full relative precision near rate 0."""
    block = max(1, math.isqrt(terms))
    low = _power(rates[:, None], np.arange(block))
    blocks = -(-terms // block)
    high = _power(rates[:, None], block * np.arange(blocks))
    products = high[:, :, None] * low[:, None, :]
    return products.reshape(rates.size, blocks * block)[:, :terms]


def _power(rates, exponents):
    small = np.where(rates < 0.5, rates, 0.0)
    with np.errstate(over='ignore'):
        return np.where(rates < 0.5, np.exp(exponents * np.log1p(-small)), (1 - rates) ** exponents)


@dataclasses.dataclass(frozen=True, eq=False)
class Blt(base.Mechanism):
    """BLT(theta, omega): `C` is Toeplitz with c_0 = 1, c_i = sum_j scale_j decay_j^(i - 1).

    See [McMahan24], equation 2. The noise is streamed by algorithm 3 with one buffer for each
    pair of parameters. The parameters are valid for any number of rounds. Without buffers it is
    independent noise.

    Attributes:
      rounds: number of rounds, at least 1.
      decay: theta, float64 [d], each within [0, 1]; d may be 0.
      scale: omega, float64 [d], each at least 0.

    Raises:
      ArgumentError: if a field is out of its range, or the lengths differ.

    Example:
      >>> Blt(4, decay=np.array([0.9]), scale=np.array([0.5])).strategy_matrix()[:, 0]
      array([1.   , 0.5  , 0.45 , 0.405])
    """

    name: ClassVar[str] = 'blt'
    rounds: int
    decay: np.ndarray
    scale: np.ndarray

    def __post_init__(self):
        super().__post_init__()
        for name in ('decay', 'scale'):
            object.__setattr__(self, name, _validate.vector(name, getattr(self, name)))
        if self.decay.size != self.scale.size or self.decay.size > _MOST_BUFFERS:
            raise errors.ArgumentError(
                'decay',
                self.decay.tolist(),
                f'must have as many entries as scale ({self.scale.size}), at most {_MOST_BUFFERS}',
            )
        if self.decay.min(initial=0.0) < 0 or self.decay.max(initial=0.0) > 1:
            raise errors.ArgumentError(
                'decay', self.decay.tolist(), 'each entry must be within [0, 1]'
            )
        if self.scale.min(initial=0.0) < 0 or self.scale.max(initial=0.0) > rounding.LARGEST:
            raise errors.ArgumentError(
                'scale', self.scale.tolist(), f'each entry must be >= 0 and <= {rounding.LARGEST:g}'
            )

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        return np.append(1.0, self.scale @ powers(1 - self.decay, self.rounds - 1))

    def inverse_parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """(theta^, omega^) with `C^-1 = BLT(theta^, omega^)`, float64 [at most d] each.

        The largest decay comes first. Equal decays count as one, and scale 0 as none.
        """
        inverted = inverse(self.decay, self.scale)
        return inverted.decay, inverted.scale

    def is_monotone(self) -> bool:
        """Whether coefficients do not increase: the sum of the scales, c_1, is at most c_0 = 1."""
        return bool(self.scale.sum() <= 1)

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        return self.with_rounds(rounds).coefficients()

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.StateSpace:
        """[McMahan24], algorithm 3: y = z - omega s, then s <- theta s + y."""
        output = np.concatenate([[1.0], -self.scale])
        kept = np.hstack([np.zeros((self.decay.size, 1)), np.diag(self.decay)]) + output
        return kernels.StateSpace(np.vstack([output, kept])[None])

    def _prefix_coefficients(self) -> np.ndarray:
        """First column of `B = A C^-1` for the prefix sums, float64 [rounds].

        It is a sum of exponentials with non-negative weights, so no digits cancel.
        """
        inverted = inverse(self.decay, self.scale)
        rates = 1 - self.decay
        if (self.scale[rates == 0] > 0).any():
            constant = 0.0
        else:
            active = self.scale > 0
            constant = 1 / (1 + (self.scale[active] / rates[active]).sum())
        weights = -inverted.scale / inverted.rate
        return constant + weights @ powers(inverted.rate, self.rounds)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return toeplitz.sensitivity(
            self.coefficients(), participation, known_monotone=self.is_monotone()
        )
