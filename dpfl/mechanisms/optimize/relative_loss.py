"""Losses of a mechanism under several schemas, relative to the BLT optimised for each."""

import math
from collections.abc import Sequence

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.participation import Participation

CRITERIA = ('expected', 'worst')


def relative_losses(
    mechanism: Mechanism, schemas: Sequence[Participation], num_buffers: int = 4, loss: str = 'max'
) -> np.ndarray:
    """Loss under each schema, divided by that of the BLT optimised for it, [schemas].

    Args:
      mechanism: any mechanism that can have the rounds of all schemas.
      schemas: the schemas.
      num_buffers: buffers of the BLTs that it is compared with.
      loss: 'max' or 'rms'.
    """
    _validate.choice('loss', loss, ('max', 'rms'))
    ratios = []
    for schema in schemas:
        best = optimize_blt(schema, num_buffers, loss)
        ratios.append(loss_of(mechanism, schema, loss) / loss_of(best, schema, loss))
    return np.array(ratios)


def chances(
    schemas: Sequence[Participation],
    weights: Sequence[float] | np.ndarray | None,
    criterion: str,
) -> dict[Participation, float]:
    """Share of each schema that counts.

    Equal schemas count together, those of weight 0 not at all. For the worst relative loss all
    others count alike.

    Args:
      schemas: at least one.
      weights: how likely each of them is, with any positive sum; None for equal weights.
      criterion: one of `CRITERIA`.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.choice('criterion', criterion, CRITERIA)
    if not schemas or not all(isinstance(schema, Participation) for schema in schemas):
        raise errors.ArgumentError('schemas', errors.NOT_SHOWN, 'must be schemas, at least one')
    given = np.ones(len(schemas)) if weights is None else _validate.vector('weights', weights)
    if given.size != len(schemas) or given.min() < 0 or not 0 < given.sum() < math.inf:
        raise errors.ArgumentError(
            'weights',
            given.tolist(),
            f'must be {len(schemas)} numbers >= 0, one for each schema, with a positive sum',
        )
    found: dict[Participation, float] = {}
    for schema, weight in zip(schemas, given / given.sum(), strict=True):
        if weight:
            reachable = Participation(schema.rounds, schema.min_separation, schema.count)
            found[reachable] = found.get(reachable, 0.0) + float(weight)
    return dict.fromkeys(found, 1 / len(found)) if criterion == 'worst' else found
