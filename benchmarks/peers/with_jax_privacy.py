"""The tasks of benchmarks/mechanisms.py, solved by jax_privacy in its own environment."""

import time

import jax
import numpy as np
import protocol
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


def banded(schema, size, loss, time_limit):
    """As its documentation says for min-separation participation: bands, and equal norms."""
    assert loss == 'rms'
    deadline = time.perf_counter() + time_limit

    def stop(step):
        return time.perf_counter() > deadline or dense.pg_tol_termination_fn(step)

    found = np.asarray(dense.optimize(schema[0], bands=size, equal_norm=True, callback=stop))
    diagonals = np.zeros((schema[0], size))
    for j in range(size):
        diagonals[j:, j] = np.diagonal(found, -j)
    return {'diagonals': diagonals}


def banded_toeplitz(schema, size, loss, time_limit):
    """Takes the default number of steps, since this optimiser cannot be stopped early."""
    del time_limit
    assert loss == 'rms'
    coefficients = toeplitz.optimize_banded_toeplitz(schema[0], size)
    return {'rounds': schema[0], 'coefficients': coefficients}


if __name__ == '__main__':
    # The optimisers use float64 internally, but would round their results to float32.
    jax.config.update('jax_enable_x64', True)
    protocol.serve({'blt': blt, 'banded': banded, 'banded_toeplitz': banded_toeplitz})
