"""The tasks of benchmarks/mechanisms.py, solved by jax_privacy in its own environment."""

import time

import jax
import numpy as np
import protocol
from jax_privacy.matrix_factorization import banded as column_normalised
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, toeplitz

_ERRORS = {'max': 'max', 'rms': 'mean'}


def blt(schema, size, loss, time_limit):
    del time_limit  # The optimiser stops by itself.
    rounds, min_separation, max_participations = schema
    found = buffered_toeplitz.optimize(
        n=rounds,
        min_sep=min_separation,
        max_participations=max_participations,
        error=_ERRORS[loss],
        min_buffers=size,
        max_buffers=size,
    )
    return {'rounds': rounds, 'decay': found.buf_decay, 'scale': found.output_scale}


def banded_dense(schema, size, loss, time_limit):
    """A dense matrix, optimised with bands and equal norms until it stops or time is up."""
    assert loss == 'rms'
    deadline = time.perf_counter() + time_limit

    def stop(step):
        return time.perf_counter() > deadline or dense.pg_tol_termination_fn(step)

    found = dense.optimize(schema[0], bands=size, equal_norm=True, callback=stop)
    return {'diagonals': _diagonals(found, size)}


def banded_start(schema, size, loss, time_limit):
    """The matrix that `banded.optimize` begins with: columns of the optimal Toeplitz matrix."""
    del loss, time_limit
    found = column_normalised.ColumnNormalizedBanded.default(schema[0], size)
    return {'diagonals': _diagonals(found.materialize(), size)}


def banded_normalised_toeplitz(schema, size, loss, time_limit):
    """A banded Toeplitz matrix, which its documentation recommends, with columns of equal norm."""
    del time_limit
    assert loss == 'rms'
    coefficients = toeplitz.optimize_banded_toeplitz(schema[0], size)
    found = column_normalised.ColumnNormalizedBanded.from_banded_toeplitz(schema[0], coefficients)
    return {'diagonals': _diagonals(found.materialize(), size)}


def banded(schema, size, loss, time_limit):
    """`banded.optimize` with its default number of steps."""
    del time_limit
    assert loss == 'rms'
    found = column_normalised.optimize(schema[0], bands=size)
    return {'diagonals': _diagonals(found.materialize(), size)}


def _diagonals(matrix, bands):
    matrix = np.asarray(matrix)
    diagonals = np.zeros((len(matrix), bands))
    for j in range(bands):
        diagonals[j:, j] = np.diagonal(matrix, -j)
    return diagonals


def banded_toeplitz(schema, size, loss, time_limit):
    """Takes the default number of steps, since this optimiser cannot be stopped early."""
    del time_limit
    assert loss == 'rms'
    coefficients = toeplitz.optimize_banded_toeplitz(schema[0], size)
    return {'rounds': schema[0], 'coefficients': coefficients}


if __name__ == '__main__':
    # The optimisers use float64 internally, but would round their results to float32.
    jax.config.update('jax_enable_x64', True)
    protocol.serve(
        {
            each.__name__: each
            for each in (
                blt,
                banded,
                banded_start,
                banded_normalised_toeplitz,
                banded_dense,
                banded_toeplitz,
            )
        }
    )
