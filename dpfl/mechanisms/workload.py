"""Workloads `A`: the linear combinations of the rounds' updates whose noise should be small.

A workload is a float64 array. [n] is the first column of a lower-triangular Toeplitz matrix,
[n, n] is the matrix. If a workload is optional, None stands for the prefix sums (all ones).
"""

import numpy as np
from numpy.typing import ArrayLike

from dpfl import _validate, errors
from dpfl.mechanisms import toeplitz


def momentum(rounds: int, beta: float) -> np.ndarray:
    """Workload of SGD with momentum: coefficients 1 + beta + .. + beta^i, [n].

    Row t gives the model after round t as a sum of the updates.
    """
    _validate.integer('rounds', rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
    _validate.number('beta', beta, minimum=0, below=1)
    return np.cumsum(beta ** np.arange(rounds))


def learning_rate_schedule(
    rates: ArrayLike, beta: float = 0.0, *, nesterov: bool = False
) -> np.ndarray:
    """Workload of SGD with momentum and a learning rate for each round, [n, n].

    Entry (t, j) is `sum_{s=j..t} rates[s] beta^(s - j)`: the effect of update j on the model after
    round t. With Nesterov's momentum, round s moves the model by `rates[s]` times the update plus
    beta times the new velocity, so `beta^(s - j)` is multiplied by beta, and 1 is added for s = j.

    Args:
      rates: learning rates, [n].
      beta: momentum, at least 0 and below 1.
      nesterov: whether the momentum is Nesterov's.
    """
    rates = _validate.vector('rates', rates)
    _validate.number('beta', beta, minimum=0, below=1)
    steps = np.arange(rates.size)
    lag = steps[:, None] - steps
    velocity = np.where(lag >= 0, float(beta) ** np.maximum(lag, 0), 0.0)
    steps_back = beta * velocity + np.eye(rates.size) if nesterov else velocity
    return np.cumsum(rates[:, None] * steps_back, axis=0)


def cut(workload: np.ndarray, rounds: int) -> np.ndarray:
    """The first rounds of a workload: its first column, [rounds], or the matrix, [rounds, rounds].

    Raises:
      ArgumentError: if it has fewer rounds, has an entry that is not finite, or is a matrix that is
        not lower-triangular.
    """
    workload = np.asarray(workload, dtype=np.float64)
    if workload.ndim not in (1, 2) or min(workload.shape) < rounds:
        raise errors.ArgumentError(
            'workload',
            errors.NOT_SHOWN,
            f'has shape {workload.shape}, must have at least {rounds} rounds',
        )
    block = workload[(slice(rounds),) * workload.ndim]
    if not np.isfinite(block).all():
        raise errors.ArgumentError('workload', errors.NOT_SHOWN, 'must have finite entries')
    if block.ndim == 2 and np.triu(block, 1).any():
        raise errors.ArgumentError(
            'workload',
            errors.NOT_SHOWN,
            'must be lower-triangular, because a model cannot depend on later updates',
        )
    return block


def matrix(workload: np.ndarray | None, rounds: int) -> np.ndarray:
    """The workload as a matrix [rounds, rounds]: the leading block if it has more rounds.

    Raises:
      ArgumentError: as `cut`.
    """
    if workload is None:
        return np.tril(np.ones((rounds, rounds)))
    block = cut(workload, rounds)
    return block if block.ndim == 2 else toeplitz.matrix(block)
