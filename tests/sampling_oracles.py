"""Exact privacy curves of sampled releases, by integration of their densities."""

import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy import optimize, stats

_REACH = 9.0  # Standard deviations beyond the means that the grids cover.


def curve_of_patterns(
    matrix: np.ndarray,
    patterns: Iterable[tuple[float, np.ndarray]],
    stddev: float,
    points: int = 60,
) -> Callable[[float], float]:
    """delta(epsilon) of `C u + z` against `z`, the larger of both directions, by brute force.

    The release of a client with random updates u is a mixture of Gaussians in as many dimensions as
    there are rounds. Its density ratio only depends on the space that the means span. Along the sum
    of the means the ratio grows, so that the integral in this direction has a closed form; the
    other directions are integrated by a grid.

    Args:
      matrix: C, [rounds, rounds]; no two means have an angle above 90 degrees.
      patterns: probability and updates [rounds] of each way to take part.
      stddev: standard deviation of the entries of z.
      points: of the grid, in each dimension.
    """
    weights, updates = map(np.array, zip(*patterns, strict=True))
    means = updates @ matrix.T / stddev
    directions, sizes = np.linalg.qr(np.concatenate([[means.sum(axis=0)], means]).T)
    directions = directions[:, np.abs(sizes).max(axis=1) > 1e-12]
    means = means @ directions * np.sign(means.sum(axis=0) @ directions[:, 0])
    along, across = means[:, 0], means[:, 1:]
    assert (along > -1e-12).all()
    axes = [
        np.linspace(low - _REACH, high + _REACH, points)
        for low, high in zip(across.min(axis=0), across.max(axis=0), strict=True)
    ]
    places = np.array(list(itertools.product(*axes))).reshape(points ** len(axes), len(axes))
    cell = math.prod(axis[1] - axis[0] for axis in axes)
    without = stats.norm.pdf(places).prod(axis=1)
    parts = weights * stats.norm.pdf(places[:, None] - across).prod(axis=2)
    with np.errstate(divide='ignore'):
        log_parts = np.log(parts) - along**2 / 2 - np.log(without)[:, None]

    def crossing(log_ratio: float) -> np.ndarray:
        """Where the ratio is that, along the first direction, [places]."""
        # By Newton's method from the right: the logarithm is convex, so that no step goes too far.
        x = np.full(len(places), 60.0)
        for _ in range(40):
            logs = log_parts + along * x[:, None]
            largest = logs.max(axis=1)
            shares = np.exp(logs - largest[:, None])
            total = shares.sum(axis=1)
            slope = np.maximum((shares * along).sum(axis=1) / total, 1e-300)
            x = np.maximum(x - (largest + np.log(total) - log_ratio) / slope, -60.0)
        return x

    def delta(epsilon: float) -> float:
        more, less = crossing(epsilon), crossing(-epsilon)
        removed = (parts * stats.norm.sf(more[:, None] - along)).sum()
        removed -= math.exp(epsilon) * (without * stats.norm.sf(more)).sum()
        added = (without * stats.norm.cdf(less)).sum()
        added -= math.exp(epsilon) * (parts * stats.norm.cdf(less[:, None] - along)).sum()
        return float(max(removed, added)) * cell

    return delta


def bin_patterns(rounds: int, groups: int) -> list[tuple[float, np.ndarray]]:
    """The rounds of each bin, as updates 1, and its probability."""
    turns = np.arange(rounds) % groups
    return [(1 / groups, (turns == first).astype(float)) for first in range(groups)]


def cyclic_patterns(
    rounds: int, groups: int, group: int, probability: float
) -> list[tuple[float, np.ndarray]]:
    """Every way in which a client of a group takes part, with updates 1, and its probability."""
    turns = range(group, rounds, groups)
    found = []
    for chosen in itertools.product((0, 1), repeat=len(turns)):
        updates = np.zeros(rounds)
        updates[list(turns)] = chosen
        weight = math.prod(probability if part else 1 - probability for part in chosen)
        found.append((weight, updates))
    return found


def separated_patterns(
    rounds: int, separation: int, probability: float
) -> list[tuple[float, np.ndarray]]:
    """Every way in which a client of b-min-sep sampling takes part, and its probability."""
    found: dict[tuple[int, ...], float] = {}

    def extend(t: int, weight: float, chosen: tuple[int, ...]) -> None:
        if t >= rounds:
            found[chosen] = found.get(chosen, 0.0) + weight
            return
        extend(t + 1, weight * (1 - probability), chosen)
        extend(t + separation, weight * probability, (*chosen, t))

    # The last round before round 0 was -k with the probability of any round in a long run.
    rate = 1 / (separation - 1 + 1 / probability)
    for k in range(1, separation):
        extend(separation - k, rate, ())
    extend(0, 1 - (separation - 1) * rate, ())
    updates = np.zeros((len(found), rounds))
    for row, chosen in zip(updates, found, strict=True):
        row[list(chosen)] = 1
    return [pair for pair in zip(found.values(), updates, strict=True) if pair[0]]


def epsilon_of(curve: Callable[[float], float], delta: float) -> float:
    """The epsilon at which a curve has a delta; 0 if it is below everywhere."""
    if curve(0.0) <= delta:
        return 0.0
    high = 1.0
    while curve(high) > delta:
        high *= 2
    return float(optimize.brentq(lambda epsilon: curve(epsilon) - delta, 0.0, high, xtol=1e-9))
