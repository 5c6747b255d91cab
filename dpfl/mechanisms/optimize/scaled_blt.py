"""Optimiser of BLT mechanisms with scaled columns."""

import sys
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.mechanisms.block_blt import BlockBlt
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import cache, scaled_search, toeplitz_error
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.participation import Participation

_VERSION = 1


def optimize_scaled_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> ColumnScaled:
    """Finds the BLT with scaled columns of least loss.

    Its noise takes the memory of a BLT of so many buffers. The loss that is minimised holds the
    proven sensitivity, and is at most that of `optimize_blt`. There are at most 256 scales. The
    columns are not scaled if the separation is shorter than 1/256 of the run and a client can take
    part in more than 32 rounds. It is deterministic, and results are cached on disk, see
    `optimize.cache`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, the largest number of buffers.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. For others the result is
        the better of the BLT optimised for A and the scaled one optimised for the prefix sums.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    _validate.choice('loss', loss, ('max', 'rms'))
    workload = toeplitz_error.checked_workload(workload, participation.rounds)

    def report(stage: str, value: float) -> None:
        if progress:
            print(f'optimize_scaled_blt: {stage}: {loss} loss {value:.6f}', file=sys.stderr)

    def proven(mechanism: ColumnScaled) -> float:
        return loss_of(mechanism, participation, loss, workload)

    def compute() -> ColumnScaled:
        blt = optimize_blt(participation, num_buffers, loss, workload=workload)
        candidates = [ColumnScaled(blt, np.ones(1), participation.rounds)]
        report('not scaled', proven(candidates[0]))
        if workload is not None:
            candidates.append(optimize_scaled_blt(participation, num_buffers, loss))
        else:
            for found in scaled_search.search(blt, participation, loss):
                candidates.append(found)
                report(f'{found.scale.size} scales', proven(found))
        return min(candidates, key=proven)

    key = {
        'version': _VERSION,
        'participation': cache.participation_key(participation),
        'num_buffers': num_buffers,
        'loss': loss,
        'workload': cache.array_key(workload),
    }
    return cache.cached('optimize_scaled_blt', ColumnScaled, key, compute, make=from_entry)


def from_entry(base: dict[str, Any], **values: Any) -> ColumnScaled:
    """The mechanism of a cached entry's values; the argument `make` of `cache.cached`.

    Args:
      base: values of the base, as its `to_dict` gives them.
      **values: the other values of the mechanism, by name.

    Raises:
      KeyError: if the base is neither a `Blt` nor a `BlockBlt`.
    """
    kinds: dict[str, Any] = {Blt.name: Blt, BlockBlt.name: BlockBlt}
    parameters = {name: value for name, value in base.items() if name != 'mechanism'}
    return ColumnScaled(kinds[base['mechanism']](**parameters), **values)
