"""The state of a learning process as a list of arrays, and back."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
import tree

from dpfl import accounting, errors
from dpfl.accounting.records import ledger_lines
from dpfl.aggregators import adaptive_clip, query
from dpfl.aggregators.noise import correlated
from dpfl.simulation import checkpoint

_P = TypeVar('_P')


def leaves(state: Any) -> list[np.ndarray | bytes]:
    """The arrays and bytes of a state, in the order of `tree.flatten`."""
    return [leaf if isinstance(leaf, bytes) else np.asarray(leaf) for leaf in tree.flatten(state)]


def restore(saved: Sequence[np.ndarray | bytes], template: Any) -> Any:
    """Rebuilds a state from its leaves.

    Args:
      saved: the result of `leaves`.
      template: a state of the same process; its values do not matter.

    Raises:
      CheckpointError: if number, types or shapes of the leaves differ from the template's.
    """
    expected = tree.flatten(template)
    if len(saved) != len(expected):
        raise checkpoint.CheckpointError(
            f'the checkpoint has {len(saved)} arrays, the state of the process {len(expected)}'
        )
    paths = (path for path, _ in tree.flatten_with_path(template))
    restored = map(_restore_leaf, paths, saved, expected)
    return tree.unflatten_as(template, list(restored))


def require_places(
    saved: Sequence[np.ndarray | bytes], template: Any, plan: accounting.PrivacyPlan
) -> None:
    """Checks that a process with another plan keeps past noise where the one before kept it.

    Args: as `restore_longer`.

    Raises:
      CheckpointError: if not.
    """
    if len(saved) != len(tree.flatten(template)):
        raise checkpoint.CheckpointError(
            f'past noise of {plan.mechanism.num_buffers()} copies of the model would be kept in '
            'another place than before, so the run cannot go on with this plan'
        )


def restore_longer(
    saved: Sequence[np.ndarray | bytes], template: Any, plan: accounting.PrivacyPlan
) -> Any:
    """Rebuilds a state for a process with more rounds, or with another matrix for later rounds.

    These may need other buffers of past noise. What a buffer holds is a function of the noise key
    and of the rounds done, so it is computed anew. After the last round of a segment of the
    noise an adaptive clip norm changes, unless there is no round to follow: now there is one.

    Args:
      saved: the result of `leaves`.
      template: a state of the process with more rounds.
      plan: the plan of that process; its first rounds are those of the process before.

    Raises:
      CheckpointError: if anything else of the state differs, such as where past noise is kept.
    """
    require_places(saved, template, plan)
    kernel = plan.mechanism.with_rounds(plan.participation.rounds).kernel()
    expected = tree.flatten(template)
    found = list(saved)
    places = tree.unflatten_as(template, range(len(expected)))
    for adaptive in _parts(places, adaptive_clip.AdaptiveState):
        if int(np.asarray(saved[adaptive.noise.round])) in plan.fresh_rounds:
            for inner in _parts(adaptive.inner, query.QueryState):
                found[inner.clip_norm] = saved[adaptive.estimate]
    for part in _parts(places, correlated.NoiseState):
        if not isinstance(part.past, Mapping):
            continue  # Nothing is kept, or a ring outside of the state keeps it.
        key, done = np.asarray(saved[part.key]), int(np.asarray(saved[part.round]))
        for name, place in part.past.items():
            # A kernel with one row for all rounds has the same buffers whatever their number is.
            if kernel.table.shape[0] > 1 or np.shape(saved[place]) != np.shape(expected[place]):
                size = np.shape(expected[place])[1]
                dtype = tf.as_dtype(name)
                buffers = correlated.buffers_after(kernel, key, done, dtype, size)
                found[place] = buffers.numpy()
    return restore(found, template)


def _restore_leaf(path: tuple, leaf: np.ndarray | bytes, expected: Any) -> Any:
    if _kind(leaf) != _kind(expected):
        name = '/'.join(map(str, path))
        raise checkpoint.CheckpointError(
            f'the checkpoint has {_kind(leaf)} for {name}, the process {_kind(expected)}'
        )
    is_scalar = isinstance(expected, np.generic)
    return leaf[()] if is_scalar and isinstance(leaf, np.ndarray) else leaf


def _kind(leaf: Any) -> str:
    return 'bytes' if isinstance(leaf, bytes) else f'{np.asarray(leaf).dtype}{np.shape(leaf)}'


def ledger_entry(state: Any, cohort: Sequence[int], data: str) -> ledger_lines.Entry:
    """The ledger entry of the round that starts from a state.

    Args:
      state: state of the learning process.
      cohort: the clients of the round.
      data: digest of the data that they train on, from `data_digest.of_cohort`.

    Raises:
      ValueError: if the state has no noise of a privacy plan.
    """
    noise = noise_digest(state)
    return ledger_lines.Entry(
        cohort=ledger_lines.cohort_digest(cohort),
        model=ledger_lines.digest(tree.flatten(state.global_model_weights)),
        noise=noise,
        data=data,
    )


def noise_digest(state: Any) -> str:
    """Digest of the noise keys of a state and of their positions.

    Raises:
      ValueError: if the state has no noise of a privacy plan.
    """
    positions = [[part.key, part.round] for part in _noise(state)]
    return ledger_lines.digest(tree.flatten(positions))


def rounds_done(state: Any) -> int:
    """The number of rounds that a state has behind it.

    Raises:
      ValueError: if the state has no noise of a privacy plan.
    """
    return int(np.asarray(_noise(state)[0].round))


def _noise(state: Any) -> list[correlated.NoiseState]:
    found = _parts(state, correlated.NoiseState)
    if not found:
        raise errors.ArgumentError(
            'process', errors.NOT_SHOWN, 'must hold the noise of a privacy plan in its state'
        )
    return found


def _parts(state: Any, kind: type[_P]) -> list[_P]:
    """The parts of a state that are of one type."""
    found: list[_P] = []

    def visit(part: Any) -> None:
        if isinstance(part, kind):
            found.append(part)

    tree.traverse(visit, state)
    return found
