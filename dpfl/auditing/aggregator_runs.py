"""Runs of an aggregator alone, with a canary client for each coordinate.

A canary is a client whose update is far longer than the clip norm, along one coordinate, in the
rounds of a pattern; or that is not there. Canary j uses coordinate j. What the aggregator releases
in coordinate j depends on canary j and on the noise of coordinate j, and on no other canary:
clipping looks at one update at a time, and the noise is the same linear map of independent normal
variables in every coordinate. So one run with D coordinates is D independent trials of one and the
same experiment, "a client takes part or not", against a fixed cohort.

The code that runs is that of a training run: the query that `aggregators.build_query` makes from
the plan. TFF runs the same query round by round.
"""

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _validate, accounting, aggregators, errors
from dpfl.aggregators import query as queries

# Length of a canary's update before clipping, in clip norms.
_LENGTH = 100.0


def released(
    plan: accounting.PrivacyPlan,
    pattern: np.ndarray,
    is_present: np.ndarray,
    *,
    seed: int | None = None,
    resume_after: int | None = None,
    supplied_noise: bool = False,
    on_round: Callable[[], object] = lambda: None,
) -> np.ndarray:
    """What the aggregator of a plan releases in a run with canaries, in clip norms.

    Args:
      plan: the plan; for `replace_one` a canary that is not present has the opposite update.
      pattern: 1 or -1 in the rounds of the canaries, with the sign of their updates, and 0 in
        others, [rounds].
      is_present: which canaries take part; as many as coordinates, bool [D].
      seed: of the noise; None for a key from the operating system.
      resume_after: after so many rounds the state is written as bytes, and read by an aggregator
        that is built anew; None for a run without an interruption.
      supplied_noise: whether past noise is kept by a ring outside of the state.
      on_round: called after every round.

    Returns:
      The noised sum of every round divided by the clip norm in use, float64 [rounds, D].

    Raises:
      ArgumentError: if the estimator of the plan is not the fixed one, the cohort is too small for
        the canaries, or `resume_after` is not within the run.
    """
    rounds, size = plan.participation.rounds, len(is_present)
    _check(plan, is_present)
    if resume_after is not None:
        _validate.integer('resume_after', resume_after, minimum=1, maximum=rounds - 1)
    signs = np.where(is_present, 1.0, -1.0 if plan.adjacency == 'replace_one' else 0.0)
    clients = np.repeat(np.flatnonzero(signs), plan.group_size)
    nobody = clients[:0]
    results = np.empty((rounds, size))
    with contextlib.ExitStack() as stack:
        aggregator = stack.enter_context(_Aggregator(plan, size, seed, supplied_noise))
        state = aggregator.initial_state()
        for t in range(rounds):
            if t == resume_after:
                saved = _saved(state)
                aggregator = stack.enter_context(_Aggregator(plan, size, seed, supplied_noise))
                state = _restored(saved, aggregator.initial_state())
            there = clients if pattern[t] else nobody
            results[t], state = aggregator.round(state, there, signs[there] * pattern[t])
            on_round()
    return results


def _check(plan: accounting.PrivacyPlan, is_present: np.ndarray) -> None:
    if plan.estimator.kind != 'fixed' or plan.estimator.example_cap is not None:
        raise errors.ArgumentError(
            'estimator', plan.estimator.kind, 'must be fixed, without weights, for an audit'
        )
    present = len(is_present) if plan.adjacency == 'replace_one' else int(np.sum(is_present))
    if plan.clients_per_round < present * plan.group_size:
        raise errors.ArgumentError(
            'clients_per_round',
            plan.clients_per_round,
            f'must be at least {present * plan.group_size}, the canaries of a round',
        )


class _Aggregator:
    """The query of a plan, with one compiled function that computes a round."""

    def __init__(self, plan: accounting.PrivacyPlan, size: int, seed: int | None, supplied: bool):
        is_hardened = plan.noise == 'hardened'
        specs = tf.TensorSpec([size], tf.float32)
        self._query = aggregators.build_query(
            plan, seed, record_specs=specs, supplied_noise=supplied or is_hardened
        )
        self._ring: Any = None
        if is_hardened:
            self._ring = aggregators.HardenedRing(plan, show_progress=False)
        elif supplied:
            self._ring = aggregators.NoiseRing(plan, show_progress=False)
        self._denominator, self._size = plan.denominator, size
        self._round = tf.function(self._compute)

    def __enter__(self) -> '_Aggregator':
        return self

    def __exit__(self, *error: object) -> None:
        if self._ring is not None:
            self._ring.close()

    def initial_state(self) -> Any:
        return self._query.initial_global_state()

    def round(self, state: Any, clients: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, Any]:
        """The release in clip norms, float64 [D], and the next state."""
        if self._ring is not None:
            state = self._ring.supply(state)
        result, clip_norm, state = self._round(
            state, tf.constant(clients, tf.int32), tf.constant(signs, tf.float32)
        )
        return np.float64(result) * (self._denominator / float(clip_norm)), state

    def _compute(self, state: Any, clients: tf.Tensor, signs: tf.Tensor) -> tuple[Any, Any, Any]:
        params = self._query.derive_sample_params(state)
        clip_norm = queries.clip_norm_of(params)

        def add(i, total):
            length = signs[i] * _LENGTH * clip_norm
            record = tf.one_hot(clients[i], self._size, dtype=tf.float32) * length
            return i + 1, self._query.accumulate_record(params, total, record)

        start = self._query.initial_sample_state(tf.zeros([self._size]))
        _, total = tf.while_loop(
            lambda i, _: i < tf.size(clients), add, (tf.constant(0), start), parallel_iterations=1
        )
        result, state, _ = self._query.get_noised_result(total, state)
        return result, clip_norm, state


def _saved(state: Any) -> bytes:
    """All tensors of a state, in order, as the bytes of an npz file."""
    file = io.BytesIO()
    np.savez(file, *map(np.asarray, tf.nest.flatten(state)))
    return file.getvalue()


def _restored(saved: bytes, structure: Any) -> Any:
    """A state of a given structure from `_saved`."""
    with np.load(io.BytesIO(saved), allow_pickle=False) as arrays:
        leaves = [tf.constant(arrays[f'arr_{i}']) for i in range(len(arrays.files))]
    return tf.nest.pack_sequence_as(structure, leaves)
