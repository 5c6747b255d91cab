"""The true guarantees of mechanisms and logs, computed without the formulas of dpfl.

Sensitivities are found by trying all patterns and signs, matrices are computed from the parameters
by dense linear algebra, and epsilon by bisection of the exact delta of a Gaussian release.
"""

import functools
import itertools
import math

import numpy as np
from scipy import special

MOST_ROUNDS = 7


def strategy_matrix(values: dict) -> np.ndarray | None:
    """C of `Mechanism.to_dict`, [n, n]; None for the trees that have no closed form."""
    kind = values['mechanism']
    if kind == 'banded':
        table = np.array(values['diagonals'], float)
        return sum(np.diag(table[j:, j], -j) for j in range(table.shape[1]))
    n = values['rounds']
    if kind == 'gaussian':
        return np.eye(n)
    if kind == 'tree' and values['released'] == 'prefix_sums':
        lag = np.subtract.outer(np.arange(n), np.arange(n))
        widths = np.array([(t + 1) & -(t + 1) for t in range(n)])
        return ((lag >= 0) & (lag < widths[:, None])).astype(float)
    if kind == 'restarted':
        bounds = [0, *values['starts'], n]
        matrix = np.zeros((n, n))
        for start, end in itertools.pairwise(bounds):
            block = strategy_matrix(values['base'] | {'rounds': end - start})
            if block is None:
                return None
            matrix[start:end, start:end] = block[: end - start, : end - start]
        return matrix
    if kind == 'banded_toeplitz':
        return _toeplitz(np.array(values['coefficients'], float), n)
    if kind == 'banded_inverse':
        return np.linalg.inv(_toeplitz(np.array(values['inverse_coefficients'], float), n))
    if kind == 'blt':
        decay, scale = np.array(values['decay'], float), np.array(values['scale'], float)
        column = [1.0, *((scale * decay**i).sum() for i in range(n - 1))]
        return _toeplitz(np.array(column), n)
    return None


def nodes(rounds: int) -> np.ndarray:
    """The nodes of the forest of complete subtrees, [nodes, rounds]."""
    rows = [
        [start <= t < start + 2**level for t in range(rounds)]
        for level in range(rounds.bit_length())
        for start in range(0, rounds - 2**level + 1, 2**level)
    ]
    return np.array(rows, float)


def _toeplitz(column: np.ndarray, n: int) -> np.ndarray:
    full = np.zeros(n)
    full[: column.size] = column[:n]
    return sum(np.diag(np.full(n - i, full[i]), -i) for i in range(n))


def squared_sensitivity(matrix: np.ndarray, rounds: int, separation: int, most: int) -> float:
    """Largest squared norm of `matrix @ u` over the admitted patterns and signs."""
    released = matrix[:, :rounds] @ _admitted(rounds, separation, most)
    return float((released**2).sum(axis=0).max())


@functools.lru_cache(maxsize=4096)
def _admitted(rounds: int, separation: int, most: int) -> np.ndarray:
    """All u of {-1, 0, 1}^rounds that a schema admits, [rounds, patterns]."""
    found = []
    for u in itertools.product((0, 1, -1), repeat=rounds):
        places = [t for t in range(rounds) if u[t]]
        if (
            0 < len(places) <= most
            and u[places[0]] == 1
            and all(j - i >= separation for i, j in itertools.pairwise(places))
        ):
            found.append(u)
    return np.array(found, float).T


def epsilon(mu: float, delta: float) -> float:
    """A lower bound of the epsilon of a Gaussian release, exact to a relative error of 1e-9."""

    def log_delta(eps):
        above = special.log_ndtr(mu / 2 - eps / mu)
        below = eps + special.log_ndtr(-mu / 2 - eps / mu)
        return above + math.log1p(-math.exp(below - above)) if below < above else -math.inf

    if mu < 1e-8 or log_delta(0.0) <= math.log(delta):
        return 0.0
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) > math.log(delta) else (low, middle)
    return low
