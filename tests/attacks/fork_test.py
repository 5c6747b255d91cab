"""Noise does not repeat in forked processes, where it would cancel between two releases.

An aggregator is built, and used once, before the process forks. Each child runs the first round,
one of them with a canary, at a noise multiplier of 1000. The difference of the two releases must
not be closer to the canary than independent noise can be.
"""

import multiprocessing
import os

import numpy as np
import pytest

from dpfl import accounting, aggregators, mechanisms
from tests.accounting import plans

_SIZE = 64
_FORK = multiprocessing.get_context('fork')
_BLT = mechanisms.Blt(4, [0.9], [0.2])
_PLANS = {
    'independent': {},
    'blt': dict(mechanism=_BLT),
    'adaptive clip': dict(adaptive_clip=accounting.AdaptiveClip(count_stddev=1e4)),
    'hardened': dict(mechanism=_BLT, noise='hardened'),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _PLANS)
def test_noise_does_not_repeat_in_forked_processes(name):
    receiver, sender = multiprocessing.Pipe(False)
    # A new process: TensorFlow must not have started threads before the fork.
    spawned = multiprocessing.get_context('spawn').Process(target=_parent, args=(name, sender))
    spawned.start()
    sender.close()
    first, second = receiver.recv()
    spawned.join()
    # Independent noise differs by some 1400 standard units in each coordinate.
    assert np.linalg.norm(second - first - np.eye(_SIZE)[0]) > 100


def _parent(name, sender) -> None:
    import tensorflow as tf

    # One thread per session: a forked child would wait for threads that do not exist in it.
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, use_per_session_threads=True
    )
    plan = plans.independent(4, noise_multiplier=1000.0, clients_per_round=1, **_PLANS[name])
    is_hardened = plan.noise == 'hardened'
    spec = tf.TensorSpec([_SIZE])
    query = aggregators.build_query(plan, record_specs=spec, supplied_noise=is_hardened)
    with tf.Graph().as_default() as graph:
        update = tf.compat.v1.placeholder(tf.float32, [_SIZE])
        start = query.initial_global_state()
        state = tf.nest.map_structure(
            lambda leaf: tf.compat.v1.placeholder(leaf.dtype, leaf.shape), start
        )
        params, sample = query.derive_sample_params(state), query.initial_sample_state(spec)
        sample = query.accumulate_record(params, sample, update)
        released = query.get_noised_result(sample, state)[0]

    def release(canary):
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            begun = session.run(start)
            if is_hardened:
                with aggregators.build_noise_ring(plan) as ring:
                    begun = ring.supply(begun, canary)
            leaves = zip(tf.nest.flatten(state), tf.nest.flatten(begun), strict=True)
            return session.run(released, {update: canary * np.eye(_SIZE)[0], **dict(leaves)})

    release(0.0)  # Starts the generators of this process.
    ends = []
    for canary in (0.0, 1.0):
        end, child_end = _FORK.Pipe(False)
        process = _FORK.Process(target=lambda c=canary, e=child_end: e.send(release(c)))
        process.start()
        ends.append((end, process))
    sender.send([end.recv() for end, _ in ends])
    for _, process in ends:
        process.join()
    os._exit(0)
