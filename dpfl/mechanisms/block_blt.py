"""BLTs whose parameters change from block to block of rounds, while their buffers carry on."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import base, kernels, rounding
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.sensitivities import matrix_sensitivity, scaled_toeplitz
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.participation import Participation

_MOST_BUFFERS = 1024
_MOST_BLOCKS = 1024
# Limits of the bounds that look at all pairs of rounds, and of the one that keeps all pairs.
_MOST_PAIRED_ROUNDS = 10_000
_MOST_GRAM_ROUNDS = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class BlockBlt(base.Mechanism):
    """A BLT with other decays and scales in each block of rounds, without a restart.

    Round t of block a releases, for independent noise z and buffers s (a column of d),

        y_t = z_t / gain_a - scale_a s,        s <- decay_a s + y_t.

    So with the product F(t, u) of the decays of rounds u + 1 .. t - 1 (a row of d),

        C[t, t] = gain_t,        C[t, u] = gain_t scale_t F(t, u)^T   for u < t.

    With one block of gain 1 it is `Blt`. `optimize_block_blt` scales its columns besides.

    The sensitivity is that of the whole matrix for one schema. It is exact for non-negative
    parameters with which no entry rises along a column or a diagonal, and wherever else the
    pattern 0, b, 2b, .. attains the bound of `matrix_sensitivity.by_envelope`; otherwise it is a
    proven upper bound.

    Attributes:
      rounds: number of rounds, at least 1.
      starts: first round of every block except the first: integers that increase within
        1 .. rounds - 1.
      decay: float64 [blocks, d], each within [0, 1].
      scale: float64 [blocks, d], each at least 0.
      gain: positive, float64 [blocks]: the noise of a block is divided by its gain.

    Raises:
      ArgumentError: if a field is out of its range.

    Example:
      >>> blocks = BlockBlt(
      ...     rounds=4, starts=(2,), decay=np.array([[0.9], [0.8]]), scale=np.array([[0.5], [0.4]]),
      ...     gain=np.array([1.0, 1.0]))
      >>> blocks.strategy_matrix().round(3)
      array([[1.   , 0.   , 0.   , 0.   ],
             [0.5  , 1.   , 0.   , 0.   ],
             [0.36 , 0.4  , 1.   , 0.   ],
             [0.288, 0.32 , 0.4  , 1.   ]])
    """

    name: ClassVar[str] = 'unscaled_block_blt'
    rounds: int
    starts: tuple[int, ...]
    decay: np.ndarray
    scale: np.ndarray
    gain: np.ndarray

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, 'starts', base.checked_starts(self.starts, self.rounds))
        blocks = len(self.starts) + 1
        decay = _array('decay', self.decay, (blocks, None))
        if not 1 <= decay.shape[1] <= _MOST_BUFFERS or blocks > _MOST_BLOCKS:
            raise errors.ArgumentError(
                'decay',
                errors.NOT_SHOWN,
                f'must be for at most {_MOST_BLOCKS} blocks, and 1 .. {_MOST_BUFFERS} buffers',
            )
        if decay.min() < 0 or decay.max() > 1:
            raise errors.ArgumentError('decay', decay.tolist(), 'each entry must be within [0, 1]')
        object.__setattr__(self, 'decay', decay)
        scale = _array('scale', self.scale, decay.shape)
        if scale.min() < 0:
            raise errors.ArgumentError('scale', scale.tolist(), 'each entry must be >= 0')
        object.__setattr__(self, 'scale', scale)
        gain = _array('gain', self.gain, (blocks,))
        largest = (self.scale * gain[:, None]).max()
        if gain.min() < rounding.SMALLEST or largest > rounding.LARGEST:
            raise errors.ArgumentError(
                'gain',
                gain.tolist(),
                f'each entry must be >= {rounding.SMALLEST:g}, and its product with the scales of '
                f'its block <= {rounding.LARGEST:g} in size',
            )
        object.__setattr__(self, 'gain', gain)

    def with_rounds(self, rounds: int) -> 'BlockBlt':
        """The same mechanism for another number of rounds; the last block goes on."""
        starts = tuple(start for start in self.starts if start < rounds)
        kept = len(starts) + 1
        return BlockBlt(rounds, starts, self.decay[:kept], self.scale[:kept], self.gain[:kept])

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
        return np.sqrt(self._shared()[1])

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
          participation: a schema with the rounds of the mechanism.
        """
        few = participation.count <= matrix_sensitivity.MOST_COUNT
        if self.rounds > _MOST_PAIRED_ROUNDS or not few:
            return self._majorant(column_scale, participation)
        if self.rounds > _MOST_GRAM_ROUNDS:
            return matrix_sensitivity.by_envelope(self._gram_columns(column_scale), participation)
        gram = self.gram(column_scale)
        upper = (gram[: j + 1, j] for j in range(self.rounds))
        by_envelope = matrix_sensitivity.by_envelope(upper, participation)
        if by_envelope.is_exact:
            return by_envelope
        by_pairs = matrix_sensitivity.upper_bound(gram, participation)
        return min(by_pairs, by_envelope, key=lambda bound: bound.squared)

    def gram(self, column_scale: np.ndarray) -> np.ndarray:
        """Gram matrix of `C diag(column_scale)`, float64 [rounds, rounds], in O(rounds^2 d)."""
        gram = np.zeros((self.rounds, self.rounds))
        for j, column in enumerate(self._gram_columns(column_scale)):
            gram[: j + 1, j] = gram[j, : j + 1] = column
        return gram

    def _majorant(self, column_scale: np.ndarray, participation: Participation) -> Sensitivity:
        """The sensitivity of a scaled Toeplitz matrix that is nowhere smaller than C.

        Its coefficient of lag l is the largest scales times gains, times the largest decays to the
        power of l - 1.
        """
        decay = self.decay.max(axis=0)
        scale = (self.scale * self.gain[:, None]).max(axis=0)
        state, coefficients = np.ones(decay.size), np.empty(self.rounds)
        coefficients[0] = self.gain.max()
        for lag in range(1, self.rounds):
            coefficients[lag] = scale @ state
            state *= decay
        falling = np.maximum.accumulate(coefficients[::-1])[::-1]
        bound = scaled_toeplitz.sensitivity(falling, column_scale, 1, participation)
        return bound._replace(is_exact=False)

    def _per_round(self, values: np.ndarray) -> np.ndarray:
        """Values of the blocks, [blocks, ...], for each round, [rounds, ...]."""
        return np.repeat(values, np.diff([0, *self.starts, self.rounds]), axis=0)

    def _maps(self) -> np.ndarray:
        """The maps of `kernels.StateSpace`, [rounds, 1 + d, 1 + d]."""
        blocks, d = self.decay.shape
        maps = np.zeros((blocks, 1 + d, 1 + d))
        maps[:, :, 0] = 1 / self.gain[:, None]
        maps[:, :, 1:] = -self.scale[:, None]
        maps[:, range(1, 1 + d), range(1, 1 + d)] += self.decay
        return self._per_round(maps)

    def _states(self) -> Iterator[np.ndarray]:
        """Buffers at the beginning of each round t after an input of 1 in round u < t, [d, t]."""
        decay = self._per_round(self.decay)
        states = np.zeros((self.decay.shape[1], self.rounds))
        for t in range(self.rounds):
            if t:
                states[:, : t - 1] *= decay[t - 1, :, None]
                states[:, t - 1] = 1.0
            yield states[:, :t]

    def _gram_columns(self, column_scale: np.ndarray) -> Iterator[np.ndarray]:
        """The upper part of each column of G: entries [0, j] .. [j, j].

        G is the Gram matrix of `C diag(column_scale)`.

        An input in round i < j reaches the rounds from j on through the buffers a at the beginning
        of round j alone, so G_ij = q_j a, with q_j from `_shared`.
        """
        shared, norms = self._shared()
        for j, states in enumerate(self._states()):
            column = np.append(shared[j] @ states, norms[j])
            yield column * (column_scale[: j + 1] * column_scale[j])

    def _shared(self) -> tuple[np.ndarray, np.ndarray]:
        """Inner products of the responses to an input in round j and to a unit in a buffer.

        Returns:
          The inner products q_j, [rounds, d], and the squared norms of the columns, [rounds].
        """
        gain, decay = self._per_round(self.gain), self._per_round(self.decay)
        scale = self._per_round(self.scale)
        n, d = decay.shape
        # after: observability matrix of the buffers before round t.
        after = np.zeros((d, d))
        shared, norms = np.empty((n, d)), np.empty(n)
        for t in range(n - 1, -1, -1):
            power = gain[t] ** 2
            following = decay[t][:, None] * after
            shared[t] = power * scale[t] + following.sum(axis=1)
            norms[t] = power + max(after.sum(), 0.0)
            after = power * np.outer(scale[t], scale[t]) + following * decay[t]
        return shared, norms


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
        noise = linear_map[:, 0]
        covariance = step @ covariance @ step.T + np.outer(noise, noise)
        squared[t] = covariance[0, 0]
    return squared


def _array(name: str, value: Any, shape: tuple[int | None, ...]) -> np.ndarray:
    """A read-only float64 array of finite numbers of a shape; None is any length."""
    try:
        array = _validate.floats(value)
    except ValueError:
        raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must be numbers') from None
    if array.size == 0:  # As JSON has it, without its shape.
        array = np.zeros([0 if length is None else length for length in shape])
    fits = array.ndim == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ', '.join('any' if length is None else str(length) for length in shape)
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'has shape {list(array.shape)}, must have [{wanted}]'
        )
    if not (np.abs(array) <= rounding.LARGEST).all():
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'must be finite numbers, at most {rounding.LARGEST:g} in size'
        )
    array.setflags(write=False)
    return array
