"""Optimiser of one BLT for several participation schemas.

The separation of a run is known only when it ends ([McMahan24], section 4). So this file minimises
relative losses: the loss of the mechanism under a schema, divided by the least that a BLT of as
many buffers has there. With relative losses r_i and weights w_i that sum to 1, it minimises

    (sum_i w_i r_i^p)^(1/p),

where p = 1 is the expected relative loss, and p to infinity the worst. The search is that of
`optimize.blt`: every schema has the same coordinates.
"""

import sys
from collections.abc import Sequence

import numpy as np
from scipy import optimize

from dpfl import _validate
from dpfl.mechanisms import blt
from dpfl.mechanisms.optimize import blt_loss, cache, relative_loss
from dpfl.mechanisms.optimize.blt import Search, grid_starts, optimize_blt
from dpfl.mechanisms.optimize.power_mean import power_mean
from dpfl.mechanisms.optimize.proven_loss import loss_of
from dpfl.participation import Participation

_VERSION = 1
# p of the stages of the worst relative loss. With p, log(number of schemas) / p is the most by
# which the mean is below the maximum.
_WORST_POWERS = (10.0, 100.0, 1000.0)
# Two designs with relative losses that differ by less count as equal.
_TOLERANCE = 1e-9
# Places between the least and the largest separation for starts between single-schema optima.
_MIXTURES = 3
_POLISH_ITERATIONS = 200


def optimize_robust_blt(
    schemas: Sequence[Participation],
    weights: Sequence[float] | np.ndarray | None = None,
    num_buffers: int = 4,
    loss: str = 'max',
    criterion: str = 'expected',
    *,
    starts: int = 3,
    progress: bool = False,
) -> blt.Blt:
    """Finds the BLT with the least expected or worst relative loss over several schemas.

    The relative loss under a schema is the loss divided by that of `optimize_blt` for this schema,
    with as many buffers. The mechanism may be run under any schema: its sensitivity is computed
    for the schema of the run as that of any BLT, and the guarantee does not depend on the weights.

    The search is deterministic, and results are cached on disk, see `optimize.cache`.

    Args:
      schemas: schemas that the run may have. Their rounds may differ; the mechanism has as many
        rounds as the longest.
      weights: how likely each schema is: non-negative numbers with a positive sum, [schemas]; None
        for equal weights. `worst` considers all schemas whose weight is not 0.
      num_buffers: d, the largest number of buffers; the result has fewer if more do not help.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`, of the prefix sums.
      criterion: 'expected' for the weighted mean of the relative losses, 'worst' for the largest.
      starts: number of starting points, 1 to 8, besides the optima of the schemas and those between
        them.
      progress: whether to show the relative loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    _validate.choice('loss', loss, ('max', 'rms'))
    _validate.integer('starts', starts, minimum=1, maximum=8)
    chances = relative_loss.chances(schemas, weights, criterion)

    def report(stage: str, value: float) -> None:
        if progress:
            shown = f'relative {loss} loss {np.exp(value / 2):.6f}'
            print(f'optimize_robust_blt: {stage}: {shown}', file=sys.stderr)

    def compute() -> blt.Blt:
        singles = [optimize_blt(schema, num_buffers, loss) for schema in chances]
        combined = _Relative(chances, singles, loss)
        rounds = max(schema.rounds for schema in chances)
        search = Search(rounds, num_buffers, report)
        begin = _starts(list(chances), singles, 2 * num_buffers, starts)
        found = search.run_from(combined, begin)
        if criterion == 'worst':
            for power in _WORST_POWERS:
                combined.power = power
                found = search.run_from(combined, [found, *begin] if power < 20 else [found])
            found = _polished(combined, found)
        return search.mechanism(found)

    key = {
        'version': _VERSION,
        'schemas': [
            [*cache.participation_key(schema), chance] for schema, chance in chances.items()
        ],
        'num_buffers': num_buffers,
        'loss': loss,
        'criterion': criterion,
        'starts': starts,
    }
    return cache.cached('optimize_robust_blt', blt.Blt, key, compute)


class _Relative:
    """Log of the squared power mean of the relative losses: an `ObjectiveFunction`.

    Attributes:
      power: p.
    """

    def __init__(self, chances: dict[Participation, float], singles: list[blt.Blt], loss: str):
        self.power = 1.0
        self._log_weights = np.log(list(chances.values()))
        self._objectives = [
            blt_loss.Objective(schema, blt_loss.PrefixError(schema.rounds, loss))
            for schema in chances
        ]
        least = [
            loss_of(single, schema, loss) for schema, single in zip(chances, singles, strict=True)
        ]
        self._least = 2 * np.log(least)

    def each(
        self, coordinates: np.ndarray, barrier: float = 0.0, last_is_free: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log of the squared relative loss for each schema, [schemas], and gradients, [schemas, d].

        The barrier is the same for all schemas.
        """
        values, slopes = zip(
            *(objective(coordinates, barrier, last_is_free) for objective in self._objectives),
            strict=True,
        )
        return np.array(values) - self._least, np.array(slopes)

    def __call__(
        self, coordinates: np.ndarray, barrier: float = 0.0, last_is_free: bool = False
    ) -> tuple[float, np.ndarray]:
        values, slopes = self.each(coordinates, barrier, last_is_free)
        value, shares = power_mean(values, self._log_weights, self.power)
        return value, shares @ slopes


def _starts(
    schemas: list[Participation], singles: list[blt.Blt], most_rates: int, grids: int
) -> list[np.ndarray]:
    """Log rates: a pair, optima of schemas, optima between them, and grids."""
    by_separation = sorted(schemas, key=lambda schema: schema.min_separation / schema.rounds)
    pair, *others = grid_starts(by_separation[len(by_separation) // 2], most_rates)
    known = {}
    for schema, single in zip(schemas, singles, strict=True):
        log_rates = _log_rates(single)
        if log_rates is not None:
            known[schema] = log_rates
    ordered = [known[schema] for schema in by_separation if schema in known]
    between = []
    if len(ordered) > 1:
        first, last = ordered[0], ordered[-1]
        for share in np.linspace(0, 1, _MIXTURES + 2)[1:-1]:
            if first.size == last.size:
                between.append((1 - share) * first + share * last)
    return [pair, *ordered, *between, *others[:grids]]


def _log_rates(mechanism: blt.Blt) -> np.ndarray | None:
    """The free rates of a BLT, increasing, as `optimize.blt_loss` has them; None if it has not."""
    inverse, _ = mechanism.inverse_parameters()
    rates = np.sort(np.concatenate([1 - mechanism.decay, 1 - inverse]))
    log_rates = np.log(rates[rates > 0])
    return log_rates if (np.diff(log_rates) > 0).all() else None


def _polished(combined: _Relative, log_rates: np.ndarray) -> np.ndarray:
    """The least worst relative loss nearby: SLSQP on `t` with `t >= each relative loss`."""
    last_is_free = bool(log_rates[-1] > 0)
    start = blt_loss.coordinates_of(log_rates, last_is_free)

    def slack(point: np.ndarray) -> np.ndarray:
        return point[-1] - combined.each(point[:-1], last_is_free=last_is_free)[0]

    def slack_slopes(point: np.ndarray) -> np.ndarray:
        slopes = combined.each(point[:-1], last_is_free=last_is_free)[1]
        return np.hstack([-slopes, np.ones((len(slopes), 1))])

    worst = combined.each(start, last_is_free=last_is_free)[0].max()
    direction = np.append(np.zeros(start.size), 1.0)
    result = optimize.minimize(
        lambda point: point[-1],
        np.append(start, worst),
        jac=lambda point: direction,
        constraints={'type': 'ineq', 'fun': slack, 'jac': slack_slopes},
        bounds=[(value - 1, value + 1) for value in start] + [(None, None)],
        method='SLSQP',
        options={'maxiter': _POLISH_ITERATIONS, 'ftol': 1e-12},
    )
    better = result.x[:-1]
    if not np.isfinite(better).all():
        return log_rates
    if combined.each(better, last_is_free=last_is_free)[0].max() > worst - _TOLERANCE:
        return log_rates
    return blt_loss.log_rates_of(better, last_is_free)
