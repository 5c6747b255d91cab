"""BLTs whose parameters change in given rounds, while their buffers carry on."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpfl import _validate, errors
from dpfl.mechanisms import base, rounding
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.sensitivities import gram_envelope, matrix_sensitivity, scaled_toeplitz
from dpfl.mechanisms.sensitivities.common import Sensitivity
from dpfl.mechanisms.streaming import kernels
from dpfl.participation import Participation

# What `is_switchable` is true of, for messages.
SWITCHABLE = 'must be a switched_blt, or a blt with buffers and decays within [0, 1]'
_MOST_BUFFERS = 1024
_MOST_SEGMENTS = 1024
# Limits of the bounds that look at all pairs of rounds, and of the one that keeps all pairs.
_MOST_PAIRED_ROUNDS = 10_000
_MOST_GRAM_ROUNDS = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class SwitchedBlt(base.Mechanism):
    """A BLT with other decays and scales in each segment of rounds, without a restart.

    Round t of segment a releases, for independent noise z and buffers s (a column of d),

        y_t = z_t / gain_a - scale_a s,        s <- decay_a s + y_t,

    and the first round of segment a + 1 begins with s <- carry_a s. So with the product F(t, u) of
    what happens to a buffer between rounds u and t (decays, and carries at the starts),

        C[t, t] = gain_t,        C[t, u] = gain_t scale_t F(t, u) 1   for u < t.

    With one segment of gain 1 it is `Blt`. A carry of zeros is a restart.

    The sensitivity is that of the whole matrix for one schema. It is exact for non-negative
    parameters with which no entry rises along a column or a diagonal, and wherever else the
    pattern 0, b, 2b, .. attains the bound of `gram_envelope`; otherwise a proven upper bound.

    Attributes:
      rounds: number of rounds, at least 1.
      starts: first round of every segment except the first: integers that increase within
        1 .. rounds - 1.
      decay: float64 [segments, d], each within [0, 1].
      scale: float64 [segments, d].
      gain: positive, float64 [segments]: the noise of a segment is divided by its gain.
      carry: float64 [segments - 1, d, d].

    Raises:
      ArgumentError: if a field is out of its range.
    """

    name: ClassVar[str] = 'switched_blt'
    rounds: int
    starts: tuple[int, ...]
    decay: np.ndarray
    scale: np.ndarray
    gain: np.ndarray
    carry: np.ndarray

    def __post_init__(self):
        _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        starts = _validate.integers('starts', self.starts, minimum=1, maximum=_validate.MOST_ROUNDS)
        object.__setattr__(self, 'starts', starts)
        bounds = (0, *starts, self.rounds)
        if any(end <= start for start, end in zip(bounds, bounds[1:], strict=False)):
            raise errors.ArgumentError(
                'starts', starts, f'must increase within 1 .. {self.rounds - 1} (rounds - 1)'
            )
        segments = len(starts) + 1
        decay = _array('decay', self.decay, (segments, None))
        if not 1 <= decay.shape[1] <= _MOST_BUFFERS or segments > _MOST_SEGMENTS:
            raise errors.ArgumentError(
                'decay',
                errors.NOT_SHOWN,
                f'must be for at most {_MOST_SEGMENTS} segments, and 1 .. {_MOST_BUFFERS} buffers',
            )
        if decay.min() < 0 or decay.max() > 1:
            raise errors.ArgumentError('decay', decay.tolist(), 'each entry must be within [0, 1]')
        object.__setattr__(self, 'decay', decay)
        d = decay.shape[1]
        object.__setattr__(self, 'scale', _array('scale', self.scale, (segments, d)))
        gain = _array('gain', self.gain, (segments,))
        if gain.min() < rounding.SMALLEST:
            raise errors.ArgumentError(
                'gain', gain.tolist(), f'each entry must be >= {rounding.SMALLEST:g}'
            )
        object.__setattr__(self, 'gain', gain)
        carry = self.carry if segments > 1 else np.zeros((0, d, d))
        object.__setattr__(self, 'carry', _array('carry', carry, (segments - 1, d, d)))

    @classmethod
    def after(
        cls,
        first: 'Blt | SwitchedBlt',
        at: int,
        decay: ArrayLike,
        scale: ArrayLike,
        *,
        gain: float = 1.0,
        carry: ArrayLike | None = None,
        rounds: int | None = None,
    ) -> 'SwitchedBlt':
        """Switches a mechanism to other parameters from round `at` on.

        Args:
          first: the mechanism of the rounds before.
          at: first round with the new parameters, at least 1.
          decay: decays from then on, as many as `first` has buffers, [d].
          scale: scales from then on, [d].
          gain: what the noise is divided by from then on.
          carry: [d, d]; None for buffers that keep their contents.
          rounds: number of rounds, above `at`; None for as many as `first` has.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        _validate.integer('at', at, minimum=1)
        before = as_switched(first).with_rounds(at)
        buffers = before.decay.shape[1]
        carry = np.eye(buffers) if carry is None else _array('carry', carry, (buffers, buffers))
        return cls(
            first.rounds if rounds is None else rounds,
            (*before.starts, at),
            np.vstack([before.decay, _array('decay', decay, (buffers,))]),
            np.vstack([before.scale, _array('scale', scale, (buffers,))]),
            np.append(before.gain, _validate.number('gain', gain, above=0)),
            np.concatenate([before.carry, carry[None]]),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SwitchedBlt) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

    def with_rounds(self, rounds: int) -> 'SwitchedBlt':
        """The same mechanism for another number of rounds; the last segment goes on."""
        starts = tuple(start for start in self.starts if start < rounds)
        kept = len(starts) + 1
        return SwitchedBlt(
            rounds,
            starts,
            self.decay[:kept],
            self.scale[:kept],
            self.gain[:kept],
            self.carry[: kept - 1],
        )

    def begins_like(self, other: base.Mechanism, rounds: int) -> bool:
        """Also true of a `Blt` that is switched after so many rounds, or later."""
        if isinstance(other, Blt):
            if not is_switchable(other):
                return False
            other = as_switched(other)
        return super().begins_like(other, rounds)

    def strategy_matrix(self) -> np.ndarray:
        matrix = np.diag(self._per_round(self.gain))
        scale = self._per_round(self.scale * self.gain[:, None])
        for t, states in enumerate(self._states()):
            matrix[t, :t] = scale[t] @ states
        return matrix

    def kernel(self) -> kernels.StateSpace:
        """One linear map per round; see the class."""
        return kernels.StateSpace(self._maps())

    def num_buffers(self) -> int:
        return self.decay.shape[1]

    def column_norms(self) -> np.ndarray:
        return np.sqrt([column[-1] for column in self._gram_columns(np.ones(self.rounds))])

    def describe_release(self) -> str:
        times = len(self.starts)
        return f'The noise changes its parameters {times} times. {super().describe_release()}'

    def _prefix_squared_error(self) -> np.ndarray:
        return prefix_squared_error(self._maps())

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        if not self.starts:
            one = Blt(self.rounds, self.decay[0], self.scale[0]).sensitivity_bound(participation)
            squared = one.squared * self.gain[0] ** 2
            return Sensitivity(rounding.sum_up(squared, 4), one.is_exact)
        return self.scaled_sensitivity(np.ones(self.rounds), participation)

    def scaled_sensitivity(
        self, column_scale: np.ndarray, participation: Participation
    ) -> Sensitivity:
        """Bound of the squared sensitivity of `C diag(column_scale)`.

        Args:
          column_scale: positive, [rounds].
          participation: a schema with as many rounds.
        """
        few = participation.count <= gram_envelope.MOST_COUNT
        if self.rounds > _MOST_PAIRED_ROUNDS or not few:
            return self._majorant(column_scale, participation)
        if self.rounds > _MOST_GRAM_ROUNDS:
            return gram_envelope.sensitivity(self._gram_columns(column_scale), participation)
        gram = self.gram(column_scale)
        upper = (gram[: j + 1, j] for j in range(self.rounds))
        found = gram_envelope.sensitivity(upper, participation)
        if found.is_exact:
            return found
        by_pairs = matrix_sensitivity.upper_bound(gram, participation)
        return min(by_pairs, found, key=lambda bound: bound.squared)

    def gram(self, column_scale: np.ndarray) -> np.ndarray:
        """Gram matrix of `C diag(column_scale)`, float64 [rounds, rounds], in O(rounds^2 d)."""
        gram = np.zeros((self.rounds, self.rounds))
        for j, column in enumerate(self._gram_columns(column_scale)):
            gram[: j + 1, j] = gram[j, : j + 1] = column
        return gram

    def _majorant(self, column_scale: np.ndarray, participation: Participation) -> Sensitivity:
        """The sensitivity of a scaled Toeplitz matrix that is nowhere smaller than |C|.

        Its coefficient of lag l is the largest gain times the largest scales times a bound on the
        buffers l rounds after an input, over all numbers of switches in between.
        """
        decay = self.decay.max(axis=0)
        carry = np.abs(self.carry).max(axis=0, initial=0.0)
        scale = (np.abs(self.scale) * self.gain[:, None]).max(axis=0)
        states = np.zeros((len(self.starts) + 1, decay.size))  # By the number of switches.
        coefficients = np.empty(self.rounds)
        coefficients[0] = self.gain.max()
        for lag in range(1, self.rounds):
            unswitched = decay * states if lag > 1 else np.zeros_like(states)
            if lag == 1:
                unswitched[0] = 1.0
            states = unswitched.copy()
            states[1:] = np.maximum(states[1:], unswitched[:-1] @ carry.T)
            coefficients[lag] = scale @ states.max(axis=0)
        falling = np.maximum.accumulate(coefficients[::-1])[::-1]
        bound = scaled_toeplitz.sensitivity(
            falling, column_scale, 1, participation, known_monotone=True
        )
        return bound._replace(is_exact=False)

    def _per_round(self, values: np.ndarray) -> np.ndarray:
        """Values of the segments, [segments, ...], for each round, [rounds, ...]."""
        return np.repeat(values, np.diff([0, *self.starts, self.rounds]), axis=0)

    def _maps(self) -> np.ndarray:
        """The maps of `kernels.StateSpace`, [rounds, 1 + d, 1 + d]."""
        segments, d = self.decay.shape
        one = np.zeros((segments, 1 + d, 1 + d))
        one[:, :, 0] = 1 / self.gain[:, None]
        one[:, :, 1:] = -self.scale[:, None]
        one[:, range(1, 1 + d), range(1, 1 + d)] += self.decay
        maps = self._per_round(one)
        for start, carry in zip(self.starts, self.carry, strict=True):
            maps[start, :, 1:] = maps[start, :, 1:] @ carry
        return maps

    def _states(self) -> Iterator[np.ndarray]:
        """Buffers at the beginning of each round t after an input of 1 in round u < t, [d, t]."""
        d = self.decay.shape[1]
        decay = self._per_round(self.decay)
        carried = dict(zip(self.starts, self.carry, strict=True))
        states = np.zeros((d, self.rounds))
        for t in range(self.rounds):
            if t:
                states[:, : t - 1] *= decay[t - 1, :, None]
                states[:, t - 1] = 1.0
            if t in carried:
                states[:, :t] = carried[t] @ states[:, :t]
            yield states[:, :t]

    def _gram_columns(self, column_scale: np.ndarray) -> Iterator[np.ndarray]:
        """The upper part of each column of G: entries [0, j] .. [j, j].

        G is the Gram matrix of `C diag(column_scale)`.

        An input in round i < j reaches the rounds from j on through the buffers a at the beginning
        of round j alone, so G_ij = q_j a, where q_j is what a unit in each buffer then has in
        common with an input in round j.
        """
        gain, decay = self._per_round(self.gain), self._per_round(self.decay)
        scale = self._per_round(self.scale)
        carried = dict(zip(self.starts, self.carry, strict=True))
        n, d = decay.shape
        # after: observability matrix of the buffers before round t, and before its carry.
        after = np.zeros((d, d))
        shared, norms = np.empty((n, d)), np.empty(n)
        for t in range(n - 1, -1, -1):
            power = gain[t] ** 2
            following = decay[t][:, None] * after
            shared[t] = power * scale[t] + following.sum(axis=1)
            norms[t] = power + after.sum()
            after = power * np.outer(scale[t], scale[t]) + following * decay[t]
            if t in carried:
                after = carried[t].T @ after @ carried[t]
        for j, states in enumerate(self._states()):
            column = np.append(shared[j] @ states, norms[j])
            yield column * (column_scale[: j + 1] * column_scale[j])


def is_switchable(mechanism: base.Mechanism) -> bool:
    """Whether a mechanism is a switched BLT, or a BLT with buffers whose decays are within [0, 1].

    Others, such as pairs of complex decays, have no form as a `SwitchedBlt`.
    """
    if not isinstance(mechanism, Blt):
        return isinstance(mechanism, SwitchedBlt)
    is_real = mechanism.imaginary_decay is None
    return is_real and mechanism.decay.size > 0 and bool(mechanism.decay.min() >= 0)


def as_switched(mechanism: 'Blt | SwitchedBlt') -> SwitchedBlt:
    """A BLT as a switched one with a single segment; a switched one as it is.

    Raises:
      ArgumentError: if it is neither, or a BLT that is not `is_switchable`.
    """
    if isinstance(mechanism, SwitchedBlt):
        return mechanism
    if not is_switchable(mechanism):
        raise errors.ArgumentError('first', errors.NOT_SHOWN, SWITCHABLE)
    d = mechanism.decay.size
    return SwitchedBlt(
        mechanism.rounds,
        (),
        mechanism.decay[None],
        mechanism.scale[None],
        np.ones(1),
        np.zeros((0, d, d)),
    )


def prefix_squared_error(maps: np.ndarray) -> np.ndarray:
    """Squared errors of the prefix sums for the maps of a `StateSpace`, float64 [rounds].

    From the covariance of the prefix sum and the buffers, round by round: O(n d^2).

    Args:
      maps: [rounds, 1 + d, 1 + d].
    """
    squared = np.empty(len(maps))
    step, covariance = np.zeros_like(maps[0]), np.zeros_like(maps[0])
    for t, linear_map in enumerate(maps):
        step[:] = linear_map
        step[:, 0] = 0.0
        step[0, 0] = 1.0  # The prefix sum stays, and the output is added to it.
        covariance = step_covariance(covariance, step, linear_map[:, 0])
        squared[t] = covariance[0, 0]
    return squared


def step_covariance(covariance: np.ndarray, step: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Covariance after a linear step with fresh unit noise, [..., size, size]."""
    return step @ covariance @ np.swapaxes(step, -1, -2) + noise[..., None] * noise[..., None, :]


def _array(name: str, value: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """A read-only float64 array of finite numbers of a shape; None is any length."""
    try:
        array = _validate.floats(value)
    except ValueError:
        raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be numbers') from None
    if array.size == 0:  # As JSON has it, without its shape.
        array = np.zeros([0 if each is None else each for each in shape])
    fits = array.ndim == len(shape) and all(
        wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ', '.join('any' if each is None else str(each) for each in shape)
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'has shape {list(array.shape)}, must have [{wanted}]'
        )
    if not (np.abs(array) <= rounding.LARGEST).all():
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'must be finite numbers, at most {rounding.LARGEST:g} in size'
        )
    array.setflags(write=False)
    return array
