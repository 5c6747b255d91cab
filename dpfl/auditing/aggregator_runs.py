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

Some pattern is the easiest to detect. A client with updates `u_t v`, for a unit vector v and u_t =
+-1 in the rounds of an admitted pattern, moves the releases of a mechanism by the norm of `C u`.
The sensitivity is at least the largest such norm, and it is equal if it is exact for the actual
releases.

Statistics tell from a sequence of releases whether a client took part. A sequence has the released
values of one coordinate of an aggregator in all rounds, in clip norms. If all is as planned it is
`u_t + z (C^-1 n)_t` with the client and `z (C^-1 n)_t` without it, for the noise multiplier z and
independent standard normal n.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy
import tensorflow as tf

from dpfl import _random, _validate, accounting, aggregators, errors
from dpfl.aggregators import query as queries
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.participation import Participation

# Length of a canary's update before clipping, in clip norms.
LENGTH = 100.0
# The first tensors have this share of the coordinates each, the last one the others.
_SHARES = (0.25, 0.25)
# Patterns to start from: fewer if a step takes long. A few steps from each are enough.
_STARTS = (4, 64)
_ENTRIES = 2**23
_MOST_STEPS = 50
_ROUNDING = 1e-12
# Variance that is added to every direction, as a share of the planned one. It is far above the
# rounding of releases to float32, and far below all noise.
_RIDGE = 1e-9


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
        _validate.integer('resume_after', resume_after, minimum=1)
        if resume_after >= rounds:
            below = f'must be below the number of rounds, which is {rounds}'
            raise errors.ArgumentError('resume_after', resume_after, below)
    results = np.empty((rounds, size))
    with contextlib.ExitStack() as stack:
        aggregator = stack.enter_context(_Aggregator(plan, size, most, seed))
        state = aggregator.initial_state()
        for t in range(rounds):
            if t == resume_after:
                saved = _saved(state)
                aggregator = stack.enter_context(_Aggregator(plan, size, most, seed))
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

    def __init__(self, plan: accounting.PrivacyPlan, size: int, most: int, seed: int | None):
        """Args: size: coordinates; most: clients of a round; otherwise as `released`."""
        is_hardened = plan.noise == 'hardened'
        self._sizes = tensor_sizes(size)
        specs = [tf.TensorSpec([count], tf.float32) for count in self._sizes]
        self._query = aggregators.build_query(
            plan, seed, record_specs=specs, supplied_noise=is_hardened
        )
        self._ring: Any = None
        if is_hardened:
            self._ring = aggregators.build_noise_ring(plan, show_progress=False)
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


def worst_pattern(matrix: np.ndarray, participation: Participation) -> np.ndarray:
    """An admitted pattern with signs, for which the norm of `C u` is as large as was found.

    The square of the norm is convex in u. So the pattern that is best for its slope at some u is at
    least as good as u, and is found exactly by dynamic programming. Then single participations move
    to better places. Both are repeated until nothing improves, from many patterns. The
    result is a local maximum: a lower bound of the sensitivity.

    Args:
      matrix: C, which maps a sequence of updates to the releases, [any, rounds of the schema].
      participation: the schema.

    Returns:
      u: 1 or -1 in the rounds of the pattern and 0 in others, float64 [rounds].
    """
    gram = matrix.T @ matrix
    best, largest = np.zeros(participation.rounds), -1.0
    for start in _starts(participation):
        u = start
        for _ in range(_MOST_STEPS):
            following = _moved(gram, _best_for_slope(gram @ u, participation), participation)
            if _squared(gram, following) <= _squared(gram, u) * (1 + _ROUNDING):
                break
            u = following
        if _squared(gram, u) > largest * (1 + _ROUNDING):
            best, largest = u, _squared(gram, u)
    return best


def _squared(gram: np.ndarray, u: np.ndarray) -> float:
    """The squared norm of `C u`."""
    return float(u @ gram @ u)


def _moved(gram: np.ndarray, u: np.ndarray, participation: Participation) -> np.ndarray:
    """The pattern after each participation, in turn, has moved to its best place between others."""
    u = u.copy()
    places = np.flatnonzero(u)
    for i, place in enumerate(places):
        low = places[i - 1] + participation.min_separation if i else 0
        end = participation.rounds
        if i + 1 < places.size:
            end = places[i + 1] - participation.min_separation + 1
        u[place] = 0.0
        slope = gram[low:end] @ u
        new = int(np.argmax(np.diag(gram)[low:end] + 2 * np.abs(slope)))
        places[i] = low + new
        u[places[i]] = -1.0 if slope[new] < 0 else 1.0
    return u


def _starts(participation: Participation) -> Iterator[np.ndarray]:
    """The patterns 0, b, 2b, .. and random ones, with equal, alternating or random signs."""
    rounds, separation, most = (
        participation.rounds,
        participation.min_separation,
        participation.count,
    )
    rng = _random.generator('worst pattern', rounds, separation, most)
    for start in range(int(np.clip(_ENTRIES // (rounds * (rounds + 20 * most)), *_STARTS))):
        count = most if start < 2 else int(rng.integers(1, most + 1))
        slack = rounds - 1 - (count - 1) * separation
        # The rounds, less the separations before them.
        places = np.zeros(count, int) if start < 2 else np.sort(rng.integers(0, slack + 1, count))
        signs = (-1.0) ** (start * np.arange(count)) if start % 3 else rng.choice([-1, 1], count)
        u = np.zeros(rounds)
        u[places + separation * np.arange(count)] = 1.0 if start == 0 else signs
        yield u


def _best_for_slope(slope: np.ndarray, participation: Participation) -> np.ndarray:
    """The admitted pattern with signs of the largest product with `slope`."""
    weights = np.broadcast_to(np.abs(slope), (participation.count, slope.size))
    _, pattern = matrix_sensitivity.heaviest_by_position(weights, participation.min_separation)
    u = np.zeros(slope.size)
    u[pattern] = np.where(slope[pattern] < 0, -1.0, 1.0)
    return u


class Sequences(NamedTuple):
    """Released sequences.

    Attributes:
      present: with the client, float64 [rounds, any].
      absent: without it, float64 [rounds, any].
    """

    present: np.ndarray
    absent: np.ndarray

    def halves(self) -> tuple['Sequences', 'Sequences']:
        """The first half of the trials of either kind, and the others."""
        pairs = [np.split(trials, [trials.shape[1] // 2], axis=1) for trials in self]
        first, second = zip(*pairs, strict=True)
        return Sequences(*first), Sequences(*second)


def likelihood_ratio(
    sequences: Sequences, matrix: np.ndarray, pattern: np.ndarray, noise_multiplier: float
) -> tuple[np.ndarray, np.ndarray]:
    """The best statistic if all is as planned.

    `C` turns a sequence into `C u + z n`: a normal vector with independent entries. By the lemma of
    Neyman and Pearson the best tests compare its projection on `C u` with a threshold.

    Args:
      sequences: of all trials.
      matrix: C, [rounds, rounds].
      pattern: u, [rounds].
      noise_multiplier: z, above 0.

    Returns:
      The statistics with and without the client, of variance 1 if all is as planned.
    """
    moved = matrix @ pattern
    weights = matrix.T @ moved / (np.linalg.norm(moved) * noise_multiplier)
    return weights @ sequences.present, weights @ sequences.absent


def learned(
    known: Sequences, others: Sequences, matrix: np.ndarray, noise_multiplier: float
) -> tuple[Sequences, Sequences]:
    """The best linear statistic according to some trials, whatever was planned.

    It finds faults that the likelihood ratio of the plan cannot see, such as noise that is used
    twice and cancels in a difference of two rounds. The direction is that of Fisher's discriminant:
    the inverse covariance of the sequences times the difference of their means.

    Args:
      known: trials to learn from.
      others: other trials.
      matrix, noise_multiplier: as for `likelihood_ratio`; they only set the scale of the entries.

    Returns:
      Statistics of both, each [1, any].
    """
    white = [
        Sequences(*(matrix @ trials / noise_multiplier for trials in sequences))
        for sequences in (known, others)
    ]
    means = [trials.mean(axis=1) for trials in white[0]]
    spread = np.hstack(
        [trials - mean[:, None] for trials, mean in zip(white[0], means, strict=True)]
    )
    covariance = spread @ spread.T / spread.shape[1]
    covariance[np.diag_indices_from(covariance)] += _RIDGE
    weights = scipy.linalg.solve(covariance, means[0] - means[1], assume_a='pos')
    weights /= max(float(np.linalg.norm(weights)), np.finfo(float).tiny)
    statistics = [
        Sequences(*((weights @ trials)[None] for trials in sequences)) for sequences in white
    ]
    return statistics[0], statistics[1]
