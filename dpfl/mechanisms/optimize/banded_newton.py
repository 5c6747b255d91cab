"""Newton's method for banded strategies, by preconditioned conjugate gradients."""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpfl.mechanisms.optimize import banded_objective

_MAX_STEPS = 60
# X must stay positive definite even if a step were longer by this factor.
_MARGIN = 1.5
_MAX_INNER_STEPS = 60
# Conjugate gradients stop when a step adds less than this share of the model's decrease so far.
_INNER_TOLERANCE = 0.01


class Search(NamedTuple):
    """Settings of a search.

    Attributes:
      loss: 'rms' or 'max'.
      deadline: value of `time.monotonic` at which to stop.
      report: called with the number of rounds and the value after each step.
    """

    loss: str
    deadline: float
    report: Callable[[int, float], None]

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline


def minimise(
    objective: banded_objective.Objective, gram: np.ndarray, search: Search, tolerance: float
) -> banded_objective.Point:
    """Newton's method with backtracking, from a positive definite X.

    Args:
      objective: what is minimised.
      gram: bands of X, float64 [n, bands].
      search: settings.
      tolerance: share of the value; a step that is expected to gain less is the last.

    Returns:
      The last point.
    """
    point = objective.evaluate(gram)
    assert point is not None, 'the start is not positive definite'
    for _ in range(_MAX_STEPS):
        if search.is_over():
            break
        direction = _newton_direction(objective, point, search)
        decrease = -banded_objective.inner(point.gradient, direction)
        lower = _lower(objective, point, direction, decrease)
        if lower is None:
            break
        point = lower
        search.report(len(point.gram), point.value)
        if decrease <= tolerance * point.value:
            break
    return point


def _lower(
    objective: banded_objective.Objective,
    point: banded_objective.Point,
    direction: np.ndarray,
    decrease: float,
) -> banded_objective.Point | None:
    """First point with a low enough value at the steps 1, 1/2, 1/4, ..; None if there is none.

    It keeps away from the edge of the positive definite matrices, where later steps get stuck.
    """
    step = 1.0
    while step > 1e-6:
        if objective.is_definite(point.gram + _MARGIN * step * direction):
            trial = objective.evaluate(point.gram + step * direction)
            if trial is not None and trial.value <= point.value - 1e-4 * step * decrease:
                return trial
        step /= 2
    return None


def _newton_direction(
    objective: banded_objective.Objective, point: banded_objective.Point, search: Search
) -> np.ndarray:
    """Minimiser of the quadratic model by preconditioned conjugate gradients."""
    precondition = objective.preconditioner(point)
    direction = np.zeros_like(point.gram)
    residual = -point.gradient
    scaled = precondition(residual)
    conjugate = scaled
    product = banded_objective.inner(residual, scaled)
    gained = 0.0
    for _ in range(_MAX_INNER_STEPS):
        if product <= 0:  # Solved, or X has no free entry.
            break
        curved = objective.curvature(point, conjugate)
        curve = banded_objective.inner(conjugate, curved)
        if curve <= 0:  # Only rounding errors are left.
            break
        length = product / curve
        direction += length * conjugate
        gained += length * product
        if length * product <= _INNER_TOLERANCE * gained or search.is_over():
            break
        residual = residual - length * curved
        scaled = precondition(residual)
        last, product = product, banded_objective.inner(residual, scaled)
        conjugate = scaled + product / last * conjugate
    return direction
