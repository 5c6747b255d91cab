"""Optimiser of one BLT with scaled columns for several participation schemas.

The error of a mechanism does not depend on the separation and the participations of the run. So
one that is good under several schemas is one whose sensitivities are small under all of them, and
the search is that for a single schema with more patterns, see `optimize.scaled_search`.
"""

import sys
from collections.abc import Sequence

import numpy as np

from dpfl import _validate
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import cache, relative_loss, scaled_entry, scaled_search
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.mechanisms.optimize.robust_blt import optimize_robust_blt
from dpfl.participation import Participation

_VERSION = 1


def optimize_robust_scaled_blt(
    schemas: Sequence[Participation],
    weights: Sequence[float] | np.ndarray | None = None,
    num_buffers: int = 4,
    loss: str = 'max',
    criterion: str = 'expected',
    *,
    progress: bool = False,
) -> ColumnScaled:
    """Finds a BLT with scaled columns of small expected or worst relative loss over schemas.

    Its noise takes the memory of a BLT of so many buffers. The relative loss under a schema is the
    loss with the proven sensitivity, divided by that of `optimize_blt`, without scales, for this
    schema, as in `optimize_robust_blt`. So it can be below 1. The criterion is at most that of the
    result of `optimize_robust_blt`, from which the search starts.

    The result may be run under any schema: its sensitivity is computed for the schema of the run.
    The search is deterministic, and results are cached on disk, see `optimize.cache`. The columns
    are not scaled if the shortest separation is below 1/256 of the rounds and a client can take
    part in more than 32 of them.

    Args:
      schemas: schemas that the run may have. Their rounds may differ; the mechanism has as many
        rounds as the longest.
      weights: how likely each schema is: non-negative numbers with a positive sum, [schemas]; None
        for equal weights. `worst` considers all schemas whose weight is not 0.
      num_buffers: d, the largest number of buffers.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`, of the prefix sums.
      criterion: 'expected' for the weighted mean of the relative losses, 'worst' for the largest.
      progress: whether to show the relative loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    _validate.choice('loss', loss, ('max', 'rms'))
    chances = relative_loss.chances(schemas, weights, criterion)
    shares = np.array(list(chances.values()))

    def compute() -> ColumnScaled:
        single = [optimize_blt(schema, num_buffers, loss) for schema in chances]
        least = [loss_of(blt, schema, loss) for blt, schema in zip(single, chances, strict=True)]

        def criterion_of(mechanism: ColumnScaled) -> float:
            losses = [loss_of(mechanism, schema, loss) for schema in chances]
            relative = np.array(losses) / least
            return float(shares @ relative if criterion == 'expected' else relative.max())

        start = optimize_robust_blt(
            list(chances), shares, num_buffers, loss, criterion, progress=progress
        )
        candidates = [ColumnScaled(start, np.ones(1), start.rounds)]
        goals = [
            scaled_search.Goal(schema, value, share)
            for (schema, share), value in zip(chances.items(), least, strict=True)
        ]
        for found in scaled_search.search(start, goals, loss, criterion):
            candidates.append(found)
            if progress:
                shown = f'{criterion} relative {loss} loss {criterion_of(found):.6f}'
                print(
                    f'optimize_robust_scaled_blt: {found.scale.size} scales: {shown}',
                    file=sys.stderr,
                )
        return min(candidates, key=criterion_of)

    key = {
        'version': _VERSION,
        'schemas': [
            [*cache.participation_key(schema), chance] for schema, chance in chances.items()
        ],
        'num_buffers': num_buffers,
        'loss': loss,
        'criterion': criterion,
    }
    return cache.cached(
        'optimize_robust_scaled_blt', ColumnScaled, key, compute, make=scaled_entry.make
    )
