"""Optimiser of lagged BLTs with scaled columns."""

import sys

import numpy as np

from dpfl import _validate
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import cache, scaled_entry, toeplitz_error
from dpfl.mechanisms.optimize.lagged_blt import default_lags, optimize_lagged_blt
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.mechanisms.optimize.scaled_blt import optimize_scaled_blt
from dpfl.participation import Participation

_VERSION = 1


def optimize_scaled_lagged_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    draws: int = 2,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> ColumnScaled:
    """Finds a lagged BLT with scaled columns of small loss.

    The lagged BLT and the scales are not optimised together: the scales are those of the optimal
    scaled BLT, with and without a factor that gives the columns the norms that they have there. The
    result is the best of these, of the scaled BLT, and of the lagged BLT, by the proven loss.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, within 1 .. 20.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      draws: independent noises drawn in a round, see `optimize_lagged_blt`.
      workload: A, see `mechanisms.workload`; None for the prefix sums.
      progress: whether to show the loss of each stage on standard error.

    Returns:
      The mechanism. It is deterministic, and results are cached on disk, see `optimize.cache`.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    _validate.integer('draws', draws, minimum=1)
    _validate.choice('loss', loss, ('max', 'rms'))
    rounds = participation.rounds
    workload = toeplitz_error.checked_workload(workload, rounds)

    def proven(mechanism: ColumnScaled) -> float:
        return loss_of(mechanism, participation, loss, workload)

    def compute() -> ColumnScaled:
        lagged = optimize_lagged_blt(
            participation, num_buffers, loss, draws=draws, workload=workload, progress=progress
        )
        scaled = optimize_scaled_blt(
            participation, num_buffers, loss, workload=workload, progress=progress
        )
        length = scaled.block_length
        ratios = scaled.base.column_norms() / lagged.column_norms() * scaled.column_scales()
        firsts = np.arange(0, rounds, length)
        means = np.add.reduceat(ratios, firsts) / np.diff(firsts, append=rounds)
        candidates = [
            scaled,
            ColumnScaled(lagged, np.ones(1), rounds),
            ColumnScaled(lagged, scaled.scale, rounds, length),
            ColumnScaled(lagged, means, rounds, length),
        ]
        found = min(candidates, key=proven)
        if progress:
            text = f'optimize_scaled_lagged_blt: scaled: {loss} loss {proven(found):.6f}'
            print(text, file=sys.stderr)
        return found

    key = {
        'version': _VERSION,
        'participation': cache.participation_key(participation),
        'num_buffers': num_buffers,
        'loss': loss,
        'lags': list(default_lags(participation, draws)),
        'workload': cache.array_key(workload),
    }
    return cache.cached(
        'optimize_scaled_lagged_blt', ColumnScaled, key, compute, make=scaled_entry.make
    )
