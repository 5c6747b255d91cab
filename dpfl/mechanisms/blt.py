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
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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


@dataclasses.dataclass(frozen=True, eq=False)
class Blt(base.Mechanism):
    """BLT(theta, omega): `C` is Toeplitz with c_0 = 1, c_i = sum_j scale_j decay_j^(i - 1).

    See [McMahan24], equation 2. The noise is streamed by algorithm 3 with one buffer for each
    pair of parameters. The parameters are valid for any number of rounds. Without buffers it is
    independent noise.

    Decays may be negative, or pairs of conjugate complex numbers r exp(+-i phi) with conjugate
    scales, which add r^(i - 1) times a wave of frequency phi to the coefficients. Two entries
    next to each other are then a pair, with the same real parts and opposite imaginary parts, and
    two real buffers hold the real and the imaginary part of the first one's state. The coefficients
    need not be monotone, so the sensitivity is the proven bound of `toeplitz.sensitivity`.

    Attributes:
      rounds: number of rounds, at least 1.
      decay: theta, or its real part, float64 [d], each within [-1, 1]; d may be 0.
      scale: omega, or its real part, float64 [d].
      imaginary_decay: imaginary part of theta, float64 [d]; None if all are zero, and then it is
        in neither dictionary nor file. Every |theta| is at most 1.
      imaginary_scale: imaginary part of omega, float64 [d]; None if `imaginary_decay` is.

    Raises:
      ArgumentError: if a field is out of its range, the lengths differ, or complex entries are
        not in conjugate pairs.

    Example:
      >>> Blt(4, decay=np.array([0.9]), scale=np.array([0.5])).strategy_matrix()[:, 0]
      array([1.   , 0.5  , 0.45 , 0.405])
    """

    name: ClassVar[str] = 'blt'
    rounds: int
    decay: np.ndarray
    scale: np.ndarray
    imaginary_decay: np.ndarray | None = None
    imaginary_scale: np.ndarray | None = None

    def __post_init__(self):
        super().__post_init__()
        for name in ('decay', 'scale', 'imaginary_decay', 'imaginary_scale'):
            value = getattr(self, name)
            if value is not None or not name.startswith('imaginary'):
                object.__setattr__(self, name, _validate.vector(name, value))
        if self.decay.size != self.scale.size or self.decay.size > _MOST_BUFFERS:
            raise errors.ArgumentError(
                'decay',
                self.decay.tolist(),
                f'must have as many entries as scale ({self.scale.size}), at most {_MOST_BUFFERS}',
            )
        if np.abs(self.decay).max(initial=0.0) > 1:
            raise errors.ArgumentError(
                'decay', self.decay.tolist(), 'each entry must be within [-1, 1]'
            )
        if np.abs(self.scale).max(initial=0.0) > rounding.LARGEST:
            raise errors.ArgumentError(
                'scale', self.scale.tolist(), f'each entry must be <= {rounding.LARGEST:g} in size'
            )
        self._check_pairs()

    def _check_pairs(self):
        decay, scale = self.imaginary_decay, self.imaginary_scale
        if decay is None or not decay.any():
            if scale is not None and scale.any():
                raise errors.ArgumentError(
                    'imaginary_scale', scale.tolist(), 'must be 0 where imaginary_decay is'
                )
            object.__setattr__(self, 'imaginary_decay', None)
            object.__setattr__(self, 'imaginary_scale', None)
            return
        if scale is None:
            scale = np.zeros(decay.size)
            scale.setflags(write=False)
            object.__setattr__(self, 'imaginary_scale', scale)
        for name, value in (('imaginary_decay', decay), ('imaginary_scale', scale)):
            if value.size != self.decay.size:
                raise errors.ArgumentError(
                    name, value.tolist(), f'must have {self.decay.size} entries, as decay has'
                )
        if np.abs(scale).max() > rounding.LARGEST or np.hypot(self.decay, decay).max() > 1:
            raise errors.ArgumentError(
                'imaginary_decay',
                decay.tolist(),
                f'each |decay| must be at most 1, and each imaginary_scale {rounding.LARGEST:g} in '
                'size',
            )
        complex_decay, complex_scale = self.decay + 1j * decay, self.scale + 1j * scale
        first = self._firsts_of_pairs()
        last = first + 1
        if (
            last.size
            and last[-1] == decay.size
            or np.count_nonzero(decay) != 2 * first.size
            or np.any(complex_decay[last] != complex_decay[first].conj())
            or np.any(complex_scale[last] != complex_scale[first].conj())
            or scale[decay == 0].any()
        ):
            raise errors.ArgumentError(
                'imaginary_decay',
                decay.tolist(),
                'complex decays must be in pairs of neighbours that are conjugate, with conjugate '
                'scales, and real decays have real scales',
            )

    def _firsts_of_pairs(self) -> np.ndarray:
        """Indices of the first entries of all complex pairs, int64."""
        if self.imaginary_decay is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.imaginary_decay)[::2]

    @classmethod
    def from_complex(cls, rounds: int, decay: ArrayLike, scale: ArrayLike) -> 'Blt':
        """The BLT with complex decays and scales, each [d], in conjugate pairs of neighbours."""
        decay, scale = np.asarray(decay, np.complex128), np.asarray(scale, np.complex128)
        return cls(rounds, decay.real, scale.real, decay.imag, scale.imag)

    def to_dict(self) -> dict[str, Any]:
        # Real BLTs keep the dictionary, file and digest that they had without imaginary parts.
        return {name: value for name, value in super().to_dict().items() if value is not None}

    def coefficients(self) -> np.ndarray:
        """First column of `C`, float64 [rounds]."""
        if self.imaginary_decay is not None:
            decay, scale = self._complex()
            decays = decay[:, None] ** np.arange(self.rounds - 1)
            return np.append(1.0, (scale @ decays).real)
        return np.append(1.0, self.scale @ powers(1 - self.decay, self.rounds - 1))

    def column_error(self, rounds: int) -> float:
        """Bound of the relative error of the computed columns of `C`; 0 for positive parameters.

        Each term `scale_j decay_j^(i - 1)` is rounded on its own, and so is `1 - decay_j`, a change
        of the decay by at most a unit. Terms of different signs may cancel.
        """
        if self.is_positive():
            return 0.0
        decay, scale = self._complex()
        lags = np.arange(rounds - 1)
        decays = np.abs(decay)[:, None] ** lags
        terms = (4 + decay.size) * decays
        terms[:, 1:] += 16 * lags[1:] * decays[:, :-1]
        errors = rounding.UNIT * (np.abs(scale) @ terms)
        return toeplitz.column_error(self.toeplitz_column(rounds), np.append(0.0, errors))

    def inverse_parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """(theta^, omega^) with `C^-1 = BLT(theta^, omega^)`, float64 [at most d] each.

        The largest decay comes first. Equal decays count as one, and scale 0 as none.

        Raises:
          ValueError: if this BLT or its inverse has a decay that is not real.
        """
        if self.imaginary_decay is not None:
            raise ValueError('this BLT has complex decays: must be real')
        inverted = inverse(self.decay, self.scale)
        return inverted.decay, inverted.scale

    def is_monotone(self) -> bool:
        """Whether the parameters prove that coefficients are non-negative and non-increasing.

        A sufficient condition: every decay is real and non-negative, as is every scale, and the
        sum of the scales, c_1, is at most c_0 = 1.
        """
        return bool(self.is_positive() and self.scale.sum() <= 1)

    def is_positive(self) -> bool:
        """Whether decays and scales are real and non-negative."""
        if self.imaginary_decay is not None:
            return False
        return min(self.scale.min(initial=0.0), self.decay.min(initial=0.0)) >= 0

    def _complex(self) -> tuple[np.ndarray, np.ndarray]:
        """Decays and scales, complex128 [d] each."""
        zero = np.zeros(self.decay.size)
        decay = zero if self.imaginary_decay is None else self.imaginary_decay
        scale = zero if self.imaginary_scale is None else self.imaginary_scale
        return self.decay + 1j * decay, self.scale + 1j * scale

    def toeplitz_column(self, rounds: int) -> np.ndarray:
        return self.with_rounds(rounds).coefficients()

    def strategy_matrix(self) -> np.ndarray:
        return toeplitz.matrix(self.coefficients())

    def kernel(self) -> kernels.StateSpace:
        """[McMahan24], algorithm 3: y = z - omega s, then s <- theta s + y.

        For a pair, s and its conjugate add 2 Re(omega s) = 2 Re omega Re s - 2 Im omega Im s, and
        the buffers are Re s, to which y is added, and Im s.
        """
        weights, rotation = self.scale.copy(), np.diag(self.decay)
        takes_output = np.ones(self.decay.size)
        decay, scale = self._complex()
        for first in self._firsts_of_pairs():
            last = first + 1
            weights[[first, last]] = 2 * scale[first].real, -2 * scale[first].imag
            rotation[first, last], rotation[last, first] = -decay[first].imag, decay[first].imag
            takes_output[last] = 0.0
        output = np.concatenate([[1.0], -weights])
        kept = np.hstack([np.zeros((self.decay.size, 1)), rotation])
        kept += takes_output[:, None] * output
        return kernels.StateSpace(np.vstack([output, kept])[None])

    def _prefix_coefficients(self) -> np.ndarray:
        """First column of `B = A C^-1` for the prefix sums, float64 [rounds].

        With non-negative decays and scales it is a sum of exponentials with non-negative weights,
        so no digits cancel. Otherwise the inverse may oscillate or grow, and only the recurrence
        itself is always accurate.
        """
        if not self.is_positive():
            return np.cumsum(self._recurrence())
        inverted = inverse(self.decay, self.scale)
        rates = 1 - self.decay
        if (self.scale[rates == 0] > 0).any():
            constant = 0.0
        else:
            active = self.scale > 0
            constant = 1 / (1 + (self.scale[active] / rates[active]).sum())
        weights = -inverted.scale / inverted.rate
        return constant + weights @ powers(inverted.rate, self.rounds)

    def _recurrence(self) -> np.ndarray:
        """First column of `C^-1` by [McMahan24], algorithm 3, float64 [rounds]."""
        decay, scale = self._complex()
        if self.imaginary_decay is None:
            decay, scale = self.decay, self.scale
        state = np.zeros(decay.size, decay.dtype)
        column = np.empty(self.rounds)
        impulse = 1.0
        for t in range(self.rounds):
            output = impulse - (scale @ state).real
            state = decay * state + output
            column[t], impulse = output, 0.0
        return column

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return toeplitz.sensitivity(
            self.coefficients(), participation, known_monotone=self.is_monotone()
        )
