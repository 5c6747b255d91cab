"""A process that measures rounds of an aggregator, in turn with rounds of a plain mean.

  aggregate.py <contender> <options as JSON: coordinates, clients, pairs> <file for the result>

Aggregators of TFF run in TFF's own runtime, as their users run them; `stock_tree_in_dpfl` and the
aggregators of dpfl run in dpfl's. The result is JSON: lists of the wall-clock and CPU seconds of
the rounds, the size of the state and the peak memory in bytes, and the seconds of the floor.
"""

import contextlib
import json
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks.peers import family
from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.mechanisms.discretization import Discretization
from dpfl.runtime import contexts

_ROUNDS, _SEPARATION, _BANDS = 2052, 342, 342
_NORM, _NOISE = 1.0, 1.0
_BITS = 20

_private = tff.aggregators.DifferentiallyPrivateFactory


def _plan(mechanism, clients, **changes):
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(_ROUNDS, _SEPARATION),
        clip_norm=_NORM,
        noise_multiplier=_NOISE,
        clients_per_round=clients,
        **changes,
    )


def _blt():
    return mechanisms.Blt(_ROUNDS, [0.999, 0.97, 0.8, 0.3], [0.02, 0.05, 0.1, 0.2])


def _discretization(shapes, clients):
    size = sum(int(np.prod(shape)) for shape in shapes)
    return Discretization.for_bits(_BITS, clients, size, _NORM)


# For the contenders with past noise in a ring: as many bands as BandMF. The values of the
# parameters do not affect the time.
_IN_RING = {
    'blt_in_ring': _blt,
    'banded': lambda: mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, _BANDS),
}
_HARDENED = {
    'hardened': lambda: mechanisms.Identity(_ROUNDS),
    'hardened_blt': _blt,
}


def _of(make_mechanism, noise='default', **options):
    return lambda shapes, clients: aggregators.build_aggregator(
        _plan(make_mechanism(), clients, noise=noise), **options
    )


CONTENDERS = {
    **{name: _of(make, supplied_noise=True) for name, make in _IN_RING.items()},
    **{name: _of(make, noise='hardened', supplied_noise=True) for name, make in _HARDENED.items()},
    'gaussian': _of(lambda: mechanisms.Identity(_ROUNDS)),
    'blt': _of(_blt),
    'honaker': _of(lambda: mechanisms.HonakerTree(_ROUNDS)),
    'tree': _of(lambda: mechanisms.BinaryTree(_ROUNDS)),
    'banded_inverse': _of(lambda: mechanisms.BandedInverse.square_root(_ROUNDS, 8)),
    'secure': lambda shapes, clients: aggregators.build_aggregator(
        _plan(
            mechanisms.Identity(_ROUNDS), clients, discretization=_discretization(shapes, clients)
        ),
        secure_sum=True,
    ),
    'stock_gaussian': lambda shapes, clients: _private.gaussian_fixed(_NOISE, clients, _NORM),
    'stock_tree': lambda shapes, clients: _private.tree_aggregation(
        _NOISE, clients, _NORM, [tf.TensorSpec(shape) for shape in shapes]
    ),
    # Its clip norm is always adaptive, which takes less noise for so few clients.
    'stock_ddp': lambda shapes, clients: tff.learning.ddp_secure_aggregator(
        0.02 * clients, clients, bits=_BITS, zeroing=False
    ),
}
CONTENDERS['stock_tree_in_dpfl'] = CONTENDERS['stock_tree']
_SECURE = ('secure', 'stock_ddp')
_IN_RUNTIME_OF_TFF = ('stock_gaussian', 'stock_tree', 'stock_ddp')


def shapes_of(coordinates: int) -> list[tuple[int, ...]]:
    """Shapes of the tensors of a model: an embedding, a matrix, and two vectors."""
    rows = coordinates // 200
    half, quarter = (rows, 100), (rows, 50)
    rest = coordinates - 150 * rows
    return [half, quarter, (rest // 2,), (rest - rest // 2,)]


class _Rounds:
    """Runs rounds of an aggregation process, and records the time of each."""

    def __init__(self, factory, shapes, secure, ring=None):
        process = factory.create(tff.to_type([(np.float32, shape) for shape in shapes]))
        self._next = process.next
        if secure:
            self._next = tff.backends.test.replace_secure_intrinsics_with_bodies(process.next)
        self._ring = ring
        self.state, self.seconds, self.cpu_seconds = process.initialize(), [], []

    def run(self, values) -> None:
        started, cpu_started = time.perf_counter(), family.cpu_seconds()
        state = self._ring.supply(self.state, len(self.seconds)) if self._ring else self.state
        output = self._next(state, values)
        # A computation with replaced intrinsics returns a dictionary.
        self.state = output['state'] if isinstance(output, dict) else output.state
        self.seconds.append(time.perf_counter() - started)
        self.cpu_seconds.append(family.cpu_seconds() - cpu_started)

    def state_bytes(self) -> int:
        return sum(np.asarray(leaf).nbytes for leaf in tf.nest.flatten(self.state))


def measure(contender: str, coordinates: int, clients: int, pairs: int) -> dict:
    shapes = shapes_of(coordinates)
    rng = np.random.default_rng(0)
    values = [
        [rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(clients)
    ]
    past_bytes = 0
    with contextlib.ExitStack() as stack:
        if contender in _IN_RUNTIME_OF_TFF:
            tff.backends.native.set_sync_local_cpp_execution_context()
        else:
            stack.enter_context(contexts.local_runtime())
        ring = None
        if contender in _IN_RING:
            plan = _plan(_IN_RING[contender](), clients)
            past_bytes = plan.mechanism.kernel().buffers * coordinates * 4
            _require_memory(past_bytes)
            ring = stack.enter_context(aggregators.NoiseRing(plan))
        if contender in _HARDENED:
            plan = _plan(_HARDENED[contender](), clients, noise='hardened')
            past_bytes = plan.mechanism.kernel().buffers * coordinates * 8
            ring = stack.enter_context(aggregators.HardenedRing(plan))
        plain = _Rounds(tff.aggregators.UnweightedMeanFactory(), shapes, secure=False)
        private = _Rounds(
            CONTENDERS[contender](shapes, clients), shapes, contender in _SECURE, ring
        )
        for number in range(pairs + 1):
            plain.run(values)
            private.run(values)
            if contender in _IN_RING and number == 0:
                _fill(ring)
        state_bytes = private.state_bytes() + past_bytes
        peak_bytes = family.peak_bytes()
    floor = _floor(coordinates, private.state_bytes())
    return {
        # The first round compiles.
        'plain_seconds': plain.seconds[1:],
        'seconds': private.seconds[1:],
        'plain_cpu_seconds': plain.cpu_seconds[1:],
        'cpu_seconds': private.cpu_seconds[1:],
        'state_bytes': state_bytes,
        'peak_bytes': peak_bytes,
        'floor': floor,
    }


def _require_memory(size: int) -> None:
    free = os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    if size > 0.8 * free:
        sys.exit(f'its noise takes {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free')


def _fill(ring) -> None:
    """Fills the state as after many rounds, since untouched memory takes no space or time."""
    for stream in ring._streams.values():
        stream._past[...] = 1e-3


def _floor(coordinates: int, state_bytes: int) -> float:
    """Seconds of one normal draw per coordinate and of copying the state."""
    draw = tf.function(lambda key: tf.random.stateless_normal([coordinates], key, alg='philox'))
    state = np.ones(state_bytes, np.uint8)

    def once(number):
        started = time.perf_counter()
        draw(tf.constant([number, 0], tf.int64)).numpy()
        state.copy()
        return time.perf_counter() - started

    once(0)
    return statistics.median(once(number) for number in range(1, 6))


if __name__ == '__main__':
    name, options, path = sys.argv[1:]
    pathlib.Path(path).write_text(json.dumps(measure(name, **json.loads(options))))
