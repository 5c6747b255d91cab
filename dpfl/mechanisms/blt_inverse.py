"""Parameters of a BLT and of its inverse: C = BLT(theta, omega), C^-1 = BLT(theta^, omega^).

As functions of y = 1 / x, where x is the variable of the generating functions,

    C(y)    = 1 + sum_j omega_j / (y - theta_j)    = prod_j (y - theta^_j) / (y - theta_j)
    C^-1(y) = 1 + sum_j omega^_j / (y - theta^_j)  = prod_j (y - theta_j) / (y - theta^_j)

This is [McMahan24], algorithm 5, without the polynomial division of lemma 5.2 in its reference
[15]. Decays near 1 matter most. They are held as rates 1 - theta, so that differences of decays
keep their relative precision.
"""

import math
from typing import NamedTuple

import numpy as np

# Bisections of the logarithm, from 1e-290 of an interval to all of it, that find a root to its last
# bit.
_HALVINGS = 72


class Inverse(NamedTuple):
    """Parameters of `C^-1`, each float64 [d]; `rate` is 1 - decay in full relative precision."""

    decay: np.ndarray
    scale: np.ndarray
    rate: np.ndarray


def inverse(decay: np.ndarray, scale: np.ndarray) -> Inverse:
    """Parameters of `C^-1` for `C = BLT(decay, scale)`.

    Buffers with equal decays count as one, and buffers with scale 0 are dropped. The inverse has
    the number of buffers that remain, with the largest decay first. If all scales are positive, the
    inverse decays interlace with the decays (theta_1 > theta^_1 > theta_2 > ...), their rates and
    scales are found to full relative precision, and the inverse scales are negative.

    Raises:
      ValueError: if the inverse is not a BLT, because an inverse decay is not real, or two of them
        are equal.
    """
    rates, scale = _merged(np.asarray(decay, float), np.asarray(scale, float))
    if not rates.size:
        return Inverse(*np.zeros((3, 0)))
    if (scale > 0).all():
        origin, offset = _interlaced_roots(rates, scale)
        gaps = np.subtract.outer(rates[origin], rates) + offset[:, None]
        inverse_rates = rates[origin] + offset
    else:
        inverse_rates = _real_roots(rates, scale)
        gaps = np.subtract.outer(inverse_rates, rates)
    # Where C is zero, the residue of C^-1 is 1 / C'.
    return Inverse(1 - inverse_rates, -1 / (scale / gaps**2).sum(axis=1), inverse_rates)


def _merged(decay, scale):
    """Distinct rates, increasing, and their total scales, without those of scale 0."""
    distinct, which = np.unique(1 - decay, return_inverse=True)
    total = np.bincount(which, weights=scale, minlength=distinct.size)
    return distinct[total != 0], total[total != 0]


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


def _real_roots(rates, scale):
    """The same roots for scales of both signs: eigenvalues, which need not be real."""
    roots = np.linalg.eigvals(np.diag(rates) + scale)
    if np.abs(roots.imag).max() > 0:
        decays = np.array2string(1 - roots, precision=4, separator=', ')
        raise ValueError(f'the inverse of this BLT has decays {decays}: must be real to be a BLT')
    roots = np.sort(roots.real)
    if np.diff(roots, prepend=-np.inf).min() <= 1e-7 * max(1.0, np.abs(roots).max()):
        raise ValueError(f'the inverse of this BLT has decays {(1 - roots).tolist()}: two coincide')
    return roots


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
