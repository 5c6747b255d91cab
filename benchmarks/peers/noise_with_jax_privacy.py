"""Noise for benchmarks/aggregators.py from jax_privacy's streaming matrices, in its environment.

  noise_with_jax_privacy.py <contender> <options as JSON> <file for the result>

A round is one compiled call that draws a vector and multiplies by the next row of the inverse. The
call takes over the state, so that it can change it in place.
"""

import functools
import json
import pathlib
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import protocol
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

_BANDS = 342


def _blt():
    return buffered_toeplitz.BufferedToeplitz.build(
        buf_decay=[0.999, 0.97, 0.8, 0.3],
        output_scale=[0.02, 0.05, 0.1, 0.2],
        dtype=jnp.float32,
    ).inverse_as_streaming_matrix()


def _banded():
    return toeplitz.inverse_as_streaming_matrix(toeplitz.optimal_max_error_strategy_coefs(_BANDS))


_MATRICES = {'jax_blt': _blt, 'jax_banded': _banded}


def measure(contender: str, coordinates: int, clients: int, pairs: int) -> dict:
    del clients  # there are none
    matrix = _MATRICES[contender]()
    state = matrix.init_multiply(jnp.zeros(coordinates, jnp.float32))
    state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))

    @functools.partial(jax.jit, donate_argnums=0)
    def next_round(state, key):
        return matrix.multiply_next(jax.random.normal(key, (coordinates,), jnp.float32), state)

    seconds, cpu_seconds = [], []
    for number in range(pairs + 1):
        started, cpu_started = time.perf_counter(), time.process_time()
        noise, state = next_round(state, jax.random.key(number))
        jax.block_until_ready((noise, state))
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(time.process_time() - cpu_started)
    return {
        'plain_seconds': [0.0] * pairs,
        'seconds': seconds[1:],
        'plain_cpu_seconds': [0.0] * pairs,
        'cpu_seconds': cpu_seconds[1:],
        'state_bytes': state_bytes,
        'peak_bytes': protocol.peak_bytes(),
        'floor': _floor(coordinates),
    }


def _floor(coordinates: int) -> float:
    """Seconds of one normal draw per coordinate in JAX."""
    draw = jax.jit(lambda key: jax.random.normal(key, (coordinates,), jnp.float32))
    times = []
    for number in range(6):
        started = time.perf_counter()
        jax.block_until_ready(draw(jax.random.key(number)))
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


if __name__ == '__main__':
    name, options, path = sys.argv[1:]
    pathlib.Path(path).write_text(json.dumps(measure(name, **json.loads(options))))
