"""Optimiser of the tail of a banded matrix that goes on beyond its rounds."""

import numpy as np
from scipy import linalg, optimize

from dpfl import _validate, errors
from dpfl.mechanisms import toeplitz
from dpfl.mechanisms.banded import Banded
from dpfl.mechanisms.continued import Continued
from dpfl.mechanisms.optimize.banded_toeplitz import optimize_banded_toeplitz
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.participation import Participation

# Links from which the search starts.
_LINKS = (0.2, 0.6, 1.0)
_MAX_ITERATIONS = 200


def optimize_continued(base: Banded, participation: Participation, loss: str = 'max') -> Continued:
    """Finds the tail with which a banded matrix goes on to the rounds of a schema.

    The shape of the tail is that of `optimize_banded_toeplitz` with the bands of the base. Its
    size and the link to the base are those of least loss over all rounds.

    Args:
      base: the matrix of the first rounds, which may have been released.
      participation: the schema of all rounds, more than the base has; its separation is at least
        the bands of the base.
      loss: 'max' or 'rms', of the prefix sums.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.choice('loss', loss, ('max', 'rms'))
    if not isinstance(base, Banded):
        raise errors.ArgumentError('base', errors.NOT_SHOWN, 'must be a banded mechanism')
    _validate.integer('rounds', participation.rounds, minimum=base.rounds + 1)
    if participation.min_separation < base.bands:
        raise errors.ArgumentError(
            'min_separation', participation.min_separation, f'must be >= {base.bands}, the bands'
        )

    shape = optimize_banded_toeplitz(participation, base.bands, loss='rms').coefficients
    tail = _Tail(base, shape, participation, loss)
    result = min(
        (
            optimize.minimize(
                lambda point: tail.log_loss(point[0], np.exp(point[1])),
                [link, 0.0],
                method='Nelder-Mead',
                options={'xatol': 1e-4, 'fatol': 1e-8, 'maxiter': _MAX_ITERATIONS},
            )
            for link in _LINKS
        ),
        key=lambda one: one.fun,
    )
    link, gain = float(result.x[0]), float(np.exp(result.x[1]))
    return Continued(base, gain * shape, link, participation.rounds)


class _Tail:
    """Losses for a shape of the tail, as a function of the link and of a factor, the gain.

    Let T be the Toeplitz matrix of the shape, P the last row of the base's A C^-1, and W the
    product of what T has left of column n with C^-1 of the base. A prefix sum after round n is then

        (P - link K_t W) z_before + (1 / gain) k_t z_after,

    where K_t and k_t are rows of the prefix sums of T^-1. So the squared error is a polynomial in
    the link plus a multiple of 1 / gain^2, and the squared column norms are likewise.
    """

    def __init__(self, base: Banded, shape: np.ndarray, participation: Participation, loss: str):
        n, bands, rounds = base.rounds, base.bands, participation.rounds
        self._schema, self._loss = participation, loss
        self._before = base.squared_error()
        inverse = linalg.solve_triangular(base.strategy_matrix(), np.eye(n), lower=True)
        last = inverse.sum(axis=0)
        column = np.zeros(rounds - n)
        column[: shape.size] = shape[: column.size]
        sums = np.cumsum(
            linalg.solve_triangular(toeplitz.matrix(column), _first(column.size), lower=True)
        )
        self._new = np.cumsum(sums**2)
        # reach[i, j]: coefficient of round n - 1 - j in round n + i.
        lag = np.add.outer(np.arange(min(bands - 1, column.size)), np.arange(min(bands - 1, n))) + 1
        reach = np.where(lag < shape.size, shape[np.minimum(lag, shape.size - 1)], 0.0)
        product = reach @ inverse[::-1][: reach.shape[1]]
        kernel = np.tril(linalg.toeplitz(sums))[:, : len(reach)]
        self._constant = float(last @ last)
        self._linear = -2 * kernel @ (product @ last)
        self._square = np.einsum('ti,ij,tj->t', kernel, product @ product.T, kernel, optimize=True)
        self._norms = base.column_norms() ** 2
        self._linked = np.zeros(n)
        self._linked[::-1][: reach.shape[1]] = (reach**2).sum(axis=0)
        self._after = np.cumsum(column**2)[::-1]

    def log_loss(self, link: float, gain: float) -> float:
        """Log of the squared loss."""
        after = self._constant + link * self._linear + link**2 * self._square + self._new / gain**2
        error = np.concatenate([self._before, after])
        norms = [self._norms + (link * gain) ** 2 * self._linked, gain**2 * self._after]
        squared = matrix_sensitivity.heaviest_pattern(np.concatenate(norms), self._schema)
        return float(np.log(error.max() if self._loss == 'max' else error.mean()) + np.log(squared))


def _first(size: int) -> np.ndarray:
    return np.eye(size, 1)[:, 0]
