"""Optimiser of BLT mechanisms ([McMahan24], section 3.3 and algorithm 4).

The search is over interlaced BLTs (theta_1 > theta^_1 > theta_2 > ..), whose scales are all
positive. In its local minima some neighbouring buffers of C and C^-1 coincide and cancel. So the
search uses several starts. It also removes buffers without effect from a result, and adds a new
pair where that lowers the loss most, until no pair does.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dpfl import _validate
from dpfl.mechanisms import blt
from dpfl.mechanisms.optimize import blt_loss, driver
from dpfl.participation import Participation

_VERSION = 1
# Strength of the penalties of algorithm 4. Here they are added to the log of the squared loss.
_BARRIER = 1e-7
# Bounds of the log gap between neighbouring log rates, and of the logit of a free last rate. The
# gaps range from negligible to a factor of a million between rates.
_BOUNDS = (np.log(1e-6), np.log(14.0))
_LOGIT_BOUNDS = (-14.0, 14.0)
_MAX_ITERATIONS = 300
# Penalty and tolerance of each stage of a minimisation.
_COARSE = ((_BARRIER, 1e-8),)
_FINE = ((0.0, 1e-15),)
_TWO_STAGES = ((_BARRIER, 1e-10), (0.0, 1e-13))
# Differences of the log squared loss: no improvement, and small enough to try fewer buffers.
_TOLERANCE = 1e-10
_PRUNING_TOLERANCE = 1e-4
# Log rate of a decay near 0.
_NEAR_ZERO = -0.05
# Number of places where a new pair of rates is tried, and the log ratios of the pair.
_PLACES = 32
_PAIR_WIDTHS = (0.02, 0.3, 1.2)
_MAX_STARTS = 8


def optimize_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    starts: int = 5,
    progress: bool = False,
) -> blt.Blt:
    """Finds the BLT of least loss among those with non-negative, non-increasing coefficients.

    The sensitivity of such a BLT is exact ([McMahan24], theorem 3.1). The search uses L-BFGS in
    float64 with analytic gradients. For prefix sums its time does not depend on the number of
    rounds. It is deterministic, and results are cached on disk, see `optimize.driver`.

    Only interlaced BLTs are searched: scales are positive, decays are within [0, 1], and decays of
    the inverse are above -1 and as far below 0 as c_1 <= c_0 allows.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, the largest number of buffers; the result has fewer if more do not help.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. A step takes O(n) for [n]
        and O(n^2) for [n, n]. The search for any workload starts from the optimum for the prefix
        sums.
      starts: number of starting points, 1 to 8, besides one that grows pair by pair.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> blt = optimize_blt(Participation(2000, min_separation=400), num_buffers=2)
      >>> blt.decay.shape
      (2,)
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    _validate.integer('starts', starts, minimum=1, maximum=_MAX_STARTS)
    problem = driver.Problem('optimize_blt', participation, loss, workload, progress)

    def optimum() -> blt.Blt:
        error = blt_loss.prefix_error(participation.rounds, loss)
        grids = _grid_starts(participation, 2 * num_buffers)[: 1 + starts]
        log_rates = Search(problem, num_buffers, error).run_from(grids)
        if problem.workload is not None:
            log_rates = driver.over_workload(
                problem,
                log_rates,
                blt_loss.series_error,
                lambda start, error: Search(problem, num_buffers, error).run_from([start]),
                functools.partial(of_log_rates, participation.rounds),
            )
        return of_log_rates(participation.rounds, log_rates)

    return problem.solve(
        blt.Blt, lambda: [optimum()], version=_VERSION, num_buffers=num_buffers, starts=starts
    )


def of_log_rates(rounds: int, log_rates: np.ndarray) -> blt.Blt:
    """The BLT with these rates, see `blt_loss`."""
    rates, scale = blt_loss.parameters(log_rates)
    # Monotone by construction (interlaced, c_1 <= c_0), and here also after rounding.
    scale *= min(1.0, (1 - 1e-14) / scale.sum())
    return blt.Blt(rounds, 1 - rates, scale)


def _grid_starts(participation: Participation, most_rates: int) -> list[np.ndarray]:
    """Log rates to start from: a single pair, and then `_MAX_STARTS` grids of most_rates rates."""
    n, b = participation.rounds, participation.min_separation
    between = 1 / np.sqrt(n * b)
    # Smallest and largest rate, and whether a decay is exactly 1.
    grids = (
        (1 / n, 0.95, False),
        (0.1 / b, 0.5, False),
        (1 / b, 0.95, False),
        (1 / n, 0.95, True),
        (between, 0.8, False),
        (1 / n, 0.5, False),
        (0.1 / n, 0.8, False),
        (1 / b, 0.8, True),
    )
    log_rates = [np.log([min(0.2, max(1 / n**0.5, 1 / n)), 0.3])]
    for least, greatest, constant in grids:
        first, last = np.log([min(least, greatest / 4), greatest])
        log_rates.append(np.linspace(first, last, max(2, most_rates - constant)))
    return log_rates


class _Point(NamedTuple):
    """Log rates (see `blt_loss`), and the log of their squared loss."""

    value: float
    log_rates: np.ndarray


class Search:
    """Search for the at most `2 num_buffers` rates where the loss is least.

    Args:
      problem: the problem; its workload counts through `error` only.
      num_buffers: largest number of buffers.
      error: of the rates and weights of C^-1.
    """

    def __init__(self, problem: driver.Problem, num_buffers: int, error: blt_loss.ErrorFunction):
        self._rounds = problem.participation.rounds
        self._most_rates = 2 * num_buffers
        self._report = problem.report
        sensitivity = functools.partial(
            blt_loss.log_sensitivity, participation=problem.participation
        )
        self._objective: Callable[..., tuple[float, np.ndarray]] = functools.partial(
            blt_loss.log_loss, error, sensitivity
        )

    def run_from(self, log_rates: Sequence[np.ndarray]) -> np.ndarray:
        """Log rates of least loss, from the first start and the best of the others."""
        first, *others = (
            # An earlier result may have a negative inverse decay.
            self._minimize(start + min(0.0, _NEAR_ZERO - start[-1]), _COARSE)
            for start in log_rates
        )
        improved = [self._improve(first)]
        self._report('grown', improved[0].value)
        if others:
            best = min(others, key=lambda other: other.value)
            self._report('best start', best.value)
            improved.append(self._improve(best))
        best = self._beyond_zero(min(improved, key=lambda point: point.value))
        self._report('found', best.value)
        return best.log_rates

    def _minimize(self, log_rates, stages=_FINE, last_is_free=False) -> _Point:
        """Local minimum, in stages of a penalty and a tolerance each."""
        coordinates = blt_loss.coordinates_of(log_rates, last_is_free)
        bounds = [_BOUNDS] * coordinates.size
        if last_is_free:
            bounds[-1] = _LOGIT_BOUNDS
        for barrier, tolerance in stages:
            value, coordinates = driver.descend(
                functools.partial(self._objective, barrier=barrier, last_is_free=last_is_free),
                coordinates,
                iterations=_MAX_ITERATIONS,
                tolerance=tolerance,
                pairs=20,
                bounds=bounds,
            )
        return _Point(value, blt_loss.log_rates_of(coordinates, last_is_free))

    def _improve(self, point: _Point) -> _Point:
        """Removes buffers without effect, and adds pairs of rates while that lowers the loss."""
        point = self._stripped(point)
        while True:
            room = self._most_rates - point.log_rates.size
            candidates = []
            if room >= 2:
                candidates += self._with_a_pair(point.log_rates)
            if room >= 1 and point.log_rates.size % 2:
                # Turn a decay of exactly 1 into one that is nearly 1.
                least = min(point.log_rates[0] - 2, np.log(1e-3 / self._rounds))
                candidates.append(self._value(np.append(least, point.log_rates)))
            if not candidates:
                return point
            start = min(candidates, key=lambda candidate: candidate.value)
            better = self._minimize(start.log_rates, _COARSE)
            better = self._stripped(better)
            if better.value >= point.value - _TOLERANCE:
                return point
            point = better

    def _stripped(self, point: _Point) -> _Point:
        """The local minimum nearby, without buffers that have no effect."""
        while point.log_rates.size > 2:
            candidates = [self._value(point.log_rates[1:])]
            if point.log_rates.size > 3:
                closest = int(np.diff(point.log_rates).argmin())
                fewer = np.delete(point.log_rates, [closest, closest + 1])
                candidates.append(self._value(fewer))
            best = min(candidates, key=lambda candidate: candidate.value)
            if best.value > point.value + _PRUNING_TOLERANCE:
                break
            best = self._minimize(best.log_rates)
            if best.value > point.value + _TOLERANCE:
                break
            point = best
        return self._minimize(point.log_rates)

    def _with_a_pair(self, log_rates) -> list[_Point]:
        """The best place for another pair of neighbouring rates, for each width of the pair."""
        candidates = []
        for width in _PAIR_WIDTHS:
            tried = []
            for place in np.linspace(np.log(0.03 / self._rounds), -0.01, _PLACES):
                ends = [place - width / 2, min(place + width / 2, -0.01)]
                # The kinds keep alternating only if the pair lies within one interval.
                if np.ptp(np.searchsorted(log_rates, ends)) == 0:
                    wider = np.sort(np.append(log_rates, ends))
                    if np.diff(wider).min() > 1e-3:
                        tried.append(self._value(wider))
            if tried:
                candidates.append(min(tried, key=lambda point: point.value))
        return candidates

    def _beyond_zero(self, point: _Point) -> _Point:
        """Lets the smallest inverse decay become negative, with and without a new decay near 0."""
        starts = [point.log_rates] if point.log_rates[-1] > _NEAR_ZERO else []
        if self._most_rates - point.log_rates.size >= 2:
            top = [min(point.log_rates[-1], 2 * _NEAR_ZERO), _NEAR_ZERO, -_NEAR_ZERO]
            if point.log_rates[-2] < top[0]:
                starts.append(np.append(point.log_rates[:-1], top))
        for start in starts:
            free = self._minimize(start, _TWO_STAGES, last_is_free=True)
            if free.value < point.value - _TOLERANCE:
                point = free
        return point

    def _value(self, log_rates) -> _Point:
        return _Point(self._objective(blt_loss.coordinates_of(log_rates))[0], log_rates)
