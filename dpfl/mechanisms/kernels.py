"""How to stream the noise `C^-1 z` of a mechanism, as data, and its NumPy interpreter.

A kernel holds numbers only. It is interpreted here, in float64, as the oracle, and in
`dpfl.aggregators.noise` in TensorFlow for real runs; the tests hold the two together.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class StateSpace:
    """Linear recurrence with `d` buffers, each of the shape of one round's noise.

    In round t, for independent noise z_t and buffers s_1 .. s_d (zero at first):

        y_t  =  z_t - sum_j read[t, j] s_j
        s_j <-  decay[t, j] s_j + feed_noise[t, j] z_t + feed_output[t, j] y_t

    and y_t is row t of `C^-1 z`. A table with one row holds for every round.

    Attributes:
      read, decay, feed_noise, feed_output: float64 [rounds or 1, d].
    """

    read: np.ndarray
    decay: np.ndarray
    feed_noise: np.ndarray
    feed_output: np.ndarray

    def __post_init__(self):
        shapes = {table.shape for table in self.tables()}
        if len(shapes) != 1 or self.read.ndim != 2:
            raise ValueError(f'kernel tables have shapes {sorted(shapes)}: must be one [rounds, d]')

    def tables(self) -> tuple[np.ndarray, ...]:
        """The four tables in the order of the fields."""
        return self.read, self.decay, self.feed_noise, self.feed_output

    @property
    def buffers(self) -> int:
        """Copies of one round's noise that the state holds: memory per model coordinate."""
        return self.read.shape[1]

    def row(self, round_index: int) -> int:
        """Row of the tables that holds for a round."""
        return round_index if self.read.shape[0] > 1 else 0


def stream(kernel: StateSpace, noise: np.ndarray) -> np.ndarray:
    """Rows of `C^-1 z`, one after the other, in float64.

    Args:
      kernel: of a mechanism with at least as many rounds as `noise` has rows.
      noise: z, [rounds, ...].

    Returns:
      float64 of the shape of `noise`.
    """
    noise = np.asarray(noise, dtype=np.float64)
    state = np.zeros((kernel.buffers,) + noise.shape[1:])
    column = (slice(None),) + (None,) * (noise.ndim - 1)
    outputs = np.empty_like(noise)
    for t, z in enumerate(noise):
        read, decay, feed_noise, feed_output = (table[kernel.row(t)] for table in kernel.tables())
        y = z - np.tensordot(read, state, axes=1)
        state = decay[column] * state + feed_noise[column] * z + feed_output[column] * y
        outputs[t] = y
    return outputs
