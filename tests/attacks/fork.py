"""Looks for noise that repeats in forked processes, which would cancel between two releases.

  python -m tests.attacks.fork

An aggregator is built, and used once, before the process forks. Each child runs the first round,
one of them with a canary, at a noise multiplier of 1000. Exits with status 1 if the difference of
the two releases is closer to the canary than independent noise can be.
"""

import multiprocessing
import os
import sys

import numpy as np

from dpfl import Participation, accounting, aggregators, mechanisms

_SIZE, _NOISE_MULTIPLIER = 64, 1000.0


def main() -> None:
    found = [name for name, make in QUERIES.items() if repeats(make)]
    print(f'found: {", ".join(found)}' if found else f'nothing found in {", ".join(QUERIES)}')
    sys.exit(bool(found))


def _plan(mechanism, **changes):
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(4),
        clip_norm=1.0,
        noise_multiplier=_NOISE_MULTIPLIER,
        clients_per_round=1,
        **changes,
    )


_HARDENED = _plan(mechanisms.Blt(4, [0.9], [0.2]), noise='hardened')


def _query(plan):
    import tensorflow as tf

    return aggregators.build_query(
        plan, record_specs=tf.TensorSpec([_SIZE]), supplied_noise=plan.noise == 'hardened'
    )


QUERIES = {
    'independent': lambda: _query(_plan(mechanisms.Identity(4))),
    'blt': lambda: _query(_plan(mechanisms.Blt(4, [0.9], [0.2]))),
    'adaptive clip': lambda: _query(
        _plan(mechanisms.Identity(4), adaptive_clip=accounting.AdaptiveClip(count_stddev=1e4))
    ),
    'hardened': lambda: _query(_HARDENED),
}


def repeats(make) -> bool:
    """Whether two forked processes use the same noise."""
    context = multiprocessing.get_context('fork')
    # In a separate process: TensorFlow must not have started threads before the fork.
    receiver, sender = context.Pipe(False)
    parent = context.Process(target=_parent, args=(make, sender))
    parent.start()
    sender.close()
    try:
        first, second = receiver.recv()
    finally:
        parent.join()
    canary = np.zeros(_SIZE)
    canary[0] = 1.0
    # Independent noise differs by some 1400 standard units in each coordinate.
    return float(np.linalg.norm(second - first - canary)) < 100.0


def _parent(make, sender) -> None:
    import tensorflow as tf

    # One thread per session: a forked child would wait for threads that do not exist in it.
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, use_per_session_threads=True
    )
    query = make()
    context = multiprocessing.get_context('fork')
    graph = tf.Graph()
    with graph.as_default():
        update = tf.compat.v1.placeholder(tf.float32, [_SIZE])
        start = query.initial_global_state()
        state = tf.nest.map_structure(
            lambda leaf: tf.compat.v1.placeholder(leaf.dtype, leaf.shape), start
        )
        sample = query.accumulate_record(
            query.derive_sample_params(state),
            query.initial_sample_state(tf.TensorSpec([_SIZE])),
            update,
        )
        released = query.get_noised_result(sample, state)[0]

    def release(canary):
        value = np.zeros(_SIZE, np.float32)
        value[0] = canary
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            begun = session.run(start)
            if make is QUERIES['hardened']:
                with aggregators.HardenedRing(_HARDENED) as ring:
                    begun = ring.supply(begun, canary)
            leaves = zip(tf.nest.flatten(state), tf.nest.flatten(begun), strict=True)
            return session.run(released, {update: value, **dict(leaves)})

    release(0.0)  # Starts the generators of this process.
    ends = []
    for canary in (0.0, 1.0):
        end, child_end = context.Pipe(False)
        process = context.Process(target=lambda c=canary, e=child_end: e.send(release(c)))
        process.start()
        ends.append((end, process))
    sender.send([end.recv() for end, _ in ends])
    for _, process in ends:
        process.join()
    os._exit(0)


if __name__ == '__main__':
    main()
