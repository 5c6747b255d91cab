"""A mechanism of benchmarks/mechanism_table.py, optimised by jax_privacy in its own environment.

  with_jax_privacy.py <mechanism> <schema, size and loss as JSON>

Prints JSON: the fields of dpfl's mechanism of the same form, and the seconds without imports.
"""

import json
import sys
import time

import jax
import numpy as np
from jax_privacy.matrix_factorization import banded as column_normalised
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

_ERRORS = {'max': 'max', 'rms': 'mean'}


def blt(schema, size, loss):
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


def banded_normalised_toeplitz(schema, size, loss):
    """A banded Toeplitz matrix, which its documentation recommends, with columns of equal norm."""
    assert loss == 'rms'
    coefficients = toeplitz.optimize_banded_toeplitz(schema[0], size)
    found = column_normalised.ColumnNormalizedBanded.from_banded_toeplitz(schema[0], coefficients)
    matrix = np.asarray(found.materialize())
    diagonals = np.zeros((len(matrix), size))
    for j in range(size):
        diagonals[j:, j] = np.diagonal(matrix, -j)
    return {'diagonals': diagonals}


def banded_toeplitz(schema, size, loss):
    assert loss == 'rms'
    coefficients = toeplitz.optimize_banded_toeplitz(schema[0], size)
    return {'rounds': schema[0], 'coefficients': coefficients}


if __name__ == '__main__':
    # The optimisers use float64 internally, but would round their results to float32.
    jax.config.update('jax_enable_x64', True)
    tasks = {each.__name__: each for each in (blt, banded_normalised_toeplitz, banded_toeplitz)}
    started = time.perf_counter()
    fields = tasks[sys.argv[1]](**json.loads(sys.argv[2]))
    fields = {name: np.asarray(value).tolist() for name, value in fields.items()}
    print(json.dumps({'fields': fields, 'seconds': time.perf_counter() - started}))
