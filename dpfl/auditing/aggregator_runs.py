"""Runs of an aggregator alone, with a canary client for each coordinate.

A canary is a client whose update is far longer than the clip norm, along one coordinate, in some
rounds. Canary j uses coordinate j. The releases in coordinate j depend on canary j and on the noise
of coordinate j, and on no other canary: clipping looks at one update at a time, and the noise is
the same linear map of independent normal variables in every coordinate. So one run with D
coordinates is D independent trials of one and the same experiment, "a client takes part or not",
against a fixed cohort. The coordinates are those of several tensors, in order: a fault that spares
the first tensor shows in the others.

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
LENGTH = 100.0
# The first tensors have this share of the coordinates each, the last one the others.
_SHARES = (0.25, 0.25)


def tensor_sizes(size: int) -> list[int]:
    """Numbers of coordinates of the tensors of an update with `size` of them."""
    first = [int(share * size) for share in _SHARES]
    return [count for count in (*first, size - sum(first)) if count]


def released(
    plan: accounting.PrivacyPlan,
    updates: np.ndarray,
    *,
    seed: int | None = None,
    resume_after: int | None = None,
    supplied_noise: bool = False,
    on_round: Callable[[], object] = lambda: None,
) -> np.ndarray:
    """Releases of a plan's aggregator in a run with canaries, in clip norms.

    Args:
      plan: the plan.
      updates: directions of the canaries' updates: entry (t, j) is 1 or -1 if canary j takes part
        in round t, else 0, [rounds, D]. A canary stands for `plan.group_size` clients.
      seed: of the noise; None for a key from the operating system.
      resume_after: number of rounds after which the state is written as bytes, and read by an
        aggregator that is built anew; None for a run without an interruption.
      supplied_noise: whether past noise is kept by a ring outside of the state.
      on_round: called after every round.

    Returns:
      The noised sum of every round divided by the clip norm in use, float64 [rounds, D].

    Raises:
      ArgumentError: if the estimator of the plan is not the fixed one, the cohort is too small for
        the canaries, or `resume_after` is not within the run.
    """
    rounds, size = updates.shape
    most = int(np.count_nonzero(updates, axis=1).max()) * plan.group_size
    _check(plan, most)
    if resume_after is not None:
        _validate.integer('resume_after', resume_after, minimum=1, maximum=rounds - 1)
    results = np.empty((rounds, size))
    with contextlib.ExitStack() as stack:
        aggregator = stack.enter_context(_Aggregator(plan, size, most, seed, supplied_noise))
        state = aggregator.initial_state()
        for t in range(rounds):
            if t == resume_after:
                saved = _saved(state)
                new = _Aggregator(plan, size, most, seed, supplied_noise)
                aggregator = stack.enter_context(new)
                state = _restored(saved, aggregator.initial_state())
            results[t], state = aggregator.round(state, updates[t])
            on_round()
    return results


def _check(plan: accounting.PrivacyPlan, most: int) -> None:
    if plan.estimator.kind != 'fixed' or plan.estimator.example_cap is not None:
        raise errors.ArgumentError(
            'estimator', plan.estimator.kind, 'must be fixed, without weights, for an audit'
        )
    if plan.clients_per_round < most:
        needed = f'must be at least {most}, the canaries of a round'
        raise errors.ArgumentError('clients_per_round', plan.clients_per_round, needed)


class _Aggregator:
    """The query of a plan, with one compiled function that computes a round."""

    def __init__(
        self,
        plan: accounting.PrivacyPlan,
        size: int,
        most: int,
        seed: int | None,
        supplied: bool,
    ):
        """Args: size: coordinates; most: clients of a round; otherwise as `released`."""
        is_hardened = plan.noise == 'hardened'
        self._sizes = tensor_sizes(size)
        specs = [tf.TensorSpec([count], tf.float32) for count in self._sizes]
        self._query = aggregators.build_query(
            plan, seed, record_specs=specs, supplied_noise=supplied or is_hardened
        )
        self._ring: Any = None
        if is_hardened:
            self._ring = aggregators.HardenedRing(plan, show_progress=False)
        elif supplied:
            self._ring = aggregators.NoiseRing(plan, show_progress=False)
        self._plan, self._most = plan, most
        # TFF does not rewrite Python code either.
        self._round = tf.function(self._compute, autograph=False)

    def __enter__(self) -> '_Aggregator':
        return self

    def __exit__(self, *error: object) -> None:
        if self._ring is not None:
            self._ring.close()

    def initial_state(self) -> Any:
        return self._query.initial_global_state()

    def round(self, state: Any, updates: np.ndarray) -> tuple[np.ndarray, Any]:
        """The release in clip norms, float64 [D], and the next state, for updates [D]."""
        if self._ring is not None:
            state = self._ring.supply(state, updates)
        there = np.repeat(np.flatnonzero(updates), self._plan.group_size)
        # Of the same length in every round, so that the function is traced once.
        clients = np.zeros(self._most, np.int32)
        clients[: there.size] = there
        result, clip_norm, state = self._round(
            state,
            tf.constant(clients),
            tf.constant(there.size),
            tf.constant(updates, tf.float32),
        )
        in_clip_norms = self._plan.denominator / float(clip_norm)
        return np.asarray(result, np.float64) * in_clip_norms, state

    def _compute(
        self, state: Any, clients: tf.Tensor, count: tf.Tensor, updates: tf.Tensor
    ) -> tuple[Any, Any, Any]:
        params = self._query.derive_sample_params(state)
        clip_norm = queries.innermost(params)

        def add(i, total):
            length = tf.gather(updates, clients[i]) * LENGTH * clip_norm
            record = tf.one_hot(clients[i], sum(self._sizes), dtype=tf.float32) * length
            update = tf.split(record, self._sizes)
            return i + 1, self._query.accumulate_record(params, total, update)

        start = self._query.initial_sample_state([tf.zeros([count]) for count in self._sizes])
        _, total = tf.while_loop(
            lambda i, _: i < count, add, (tf.constant(0), start), parallel_iterations=1
        )
        result, state, _ = self._query.get_noised_result(total, state)
        return tf.concat(result, 0), clip_norm, state


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
