"""Brute force and dense linear algebra on small cases: what the library is held against."""

import fractions
import functools
import itertools
import math

import numpy as np

from dpfl import Participation, mechanisms


@functools.cache
def patterns(participation: Participation) -> list[tuple[int, ...]]:
    """Every non-empty pattern that the schema admits, straight from its definition."""
    longest = participation.max_participations or participation.rounds
    return [
        pattern
        for size in range(1, min(longest, participation.rounds) + 1)
        for pattern in itertools.combinations(range(participation.rounds), size)
        if all(j - i >= participation.min_separation for i, j in itertools.pairwise(pattern))
    ]


def squared_sensitivity(matrix: np.ndarray, participation: Participation) -> float:
    """Largest squared norm of `matrix @ u` over all admitted patterns u and signs of its entries.

    For a matrix without negative entries the signs do not matter, and neither do updates that are
    vectors: the norm is largest when all of them are equal.
    """
    gram = matrix[:, : participation.rounds].T @ matrix[:, : participation.rounds]
    if (matrix >= 0).all():
        u = _indicators(participation)
        return float((u @ gram * u).sum(axis=1).max())
    worst = 0.0
    for pattern in patterns(participation):
        block = gram[np.ix_(pattern, pattern)]
        u = _signs(len(pattern))
        worst = max(worst, (u @ block * u).sum(axis=1).max())
    return float(worst)


def exact_squared_sensitivity(matrix, schema) -> fractions.Fraction:
    """Largest squared norm over admitted patterns and signs, in rational numbers."""
    columns = [[fractions.Fraction(float(value)) for value in column] for column in matrix.T]
    others = (1,) if (matrix >= 0).all() else (1, -1)
    squares = []
    for pattern in patterns(schema):
        rows = list(zip(*(columns[t] for t in pattern), strict=True))
        for signs in itertools.product((1,), *[others] * (len(pattern) - 1)):
            sums = (sum(a * b for a, b in zip(signs, row, strict=True)) for row in rows)
            squares.append(sum(value**2 for value in sums))
    return max(squares)


@functools.cache
def _indicators(participation: Participation) -> np.ndarray:
    """A row for each pattern: 1 in its rounds, 0 in the others."""
    found = patterns(participation)
    rows = np.zeros((len(found), participation.rounds))
    for row, pattern in zip(rows, found, strict=True):
        row[list(pattern)] = 1
    return rows


@functools.cache
def _signs(count: int) -> np.ndarray:
    """Every choice of signs of which the first is positive, a row each."""
    return np.array([(1, *others) for others in itertools.product((1, -1), repeat=count - 1)])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float, cell: float) -> float:
    """Delta of two densities on a grid with cells of that size, in the worse order."""
    orders = ((p, q), (q, p))
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in orders) * cell


def small_schemas(rounds: int) -> list[Participation]:
    """All schemas of so many rounds: every separation and every number of participations."""
    return [
        Participation(rounds, separation, count)
        for separation in range(1, rounds + 1)
        for count in range(1, rounds + 1)
    ]


def streamed_by_solving(mechanism: mechanisms.Mechanism, noise: np.ndarray) -> np.ndarray:
    """`C^-1 z` by a dense solve; `noise` is [rounds, ...]."""
    flat = noise.reshape(noise.shape[0], -1)
    return np.linalg.solve(mechanism.strategy_matrix(), flat).reshape(noise.shape)


def squared_error(mechanism: mechanisms.Mechanism) -> np.ndarray:
    """Squared row norms of `A C^-1` from dense matrices."""
    inverse = np.linalg.inv(mechanism.strategy_matrix())
    return (np.cumsum(inverse, axis=0) ** 2).sum(axis=1)
