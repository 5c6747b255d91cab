"""The state of a learning process as a list of arrays, and back."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import tree

from dpfl import accounting, errors
from dpfl.accounting.records import journal
from dpfl.aggregators import discretized, extension, query
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
    _require_number(saved, template)
    paths = (path for path, _ in tree.flatten_with_path(template))
    restored = map(_restore_leaf, paths, saved, expected)
    return tree.unflatten_as(template, list(restored))


def _require_number(saved: Sequence[np.ndarray | bytes], template: Any) -> None:
    expected = len(tree.flatten(template))
    if len(saved) != expected:
        raise checkpoint.CheckpointError(
            f'the checkpoint has {len(saved)} arrays, the state of the process {expected}'
        )


def with_model(saved: Sequence[np.ndarray | bytes], template: Any) -> Any:
    """A state with the model of a checkpoint, whose first leaves it is.

    Args:
      saved: the result of `leaves`, perhaps of a process with fewer rounds.
      template: a state of the process; the rest is taken from it.
    """
    own = tree.flatten(template)
    count = len(tree.flatten(template.global_model_weights))
    return tree.unflatten_as(template, [*saved[:count], *own[count:]])


def with_keys(state: Any, key: Callable[[str], bytes]) -> Any:
    """A state before the first round, whose secret keys follow from one root.

    Args:
      state: of a process that takes its keys from the operating system.
      key: key of the run for a purpose, 32 bytes, as `RunDirectory.key`.
    """
    number = itertools.count()

    def noise(part: correlated.NoiseState) -> Any:
        return part._replace(key=_words(key(f'noise {next(number)}'), part.key))

    def rotation(part: discretized.DiscretizedState) -> Any:
        return part._replace(key=_words(key('rotation'), part.key))

    state = query.replaced(state, correlated.NoiseState, noise)
    return query.replaced(state, discretized.DiscretizedState, rotation)


def _words(key: bytes, like: Any) -> np.ndarray:
    return np.frombuffer(key, '<i8', np.size(like)).astype(np.int64)


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
    """Rebuilds a state for a process with more rounds.

    These may need other buffers of past noise. The content of a buffer is a function of the keys of
    the rounds done, so it is computed anew. After the last round of a segment of the noise an
    adaptive clip norm changes, unless there is no round to follow: now there is one.

    Args:
      saved: the result of `leaves`.
      template: a state of the process with more rounds.
      plan: the plan of that process; its first rounds are those of the process before.

    Raises:
      CheckpointError: if anything else of the state differs, such as where past noise is kept.
    """
    require_places(saved, template, plan)
    state = tree.unflatten_as(template, list(saved))
    return restore(leaves(extension.with_plan(state, plan)), template)


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


def began(t: int, state: Any, model: str, cohort: Sequence[int], data: str) -> journal.Began:
    """The event of a round that starts from a state.

    Args:
      t: the round, counted from 0.
      state: state of the learning process.
      model: digest of its model, see `digests`.
      cohort: the clients of the round.
      data: digest of the data that they train on, from `data_digest.of_cohort`.

    Raises:
      ValueError: if the state has no noise of a privacy plan.
    """
    return journal.Began(
        round=t,
        cohort=journal.cohort_digest(cohort),
        model=model,
        noise=noise_digest(state),
        data=data,
    )


def digests(state: Any) -> tuple[str, str]:
    """Digests of the model of a state, and of the whole state."""
    return _digests(tree.flatten(state), state)


def digest_of_saved(saved: Sequence[np.ndarray | bytes], template: Any) -> str:
    """Digest of the whole state that `leaves` gave, as in `digests`.

    Args:
      saved: the result of `leaves`.
      template: a state of the process, perhaps of one with more rounds.

    Raises:
      CheckpointError: if the number of the leaves differs from the template's.
    """
    _require_number(saved, template)
    return _digests(saved, template)[1]


def _digests(own: Sequence[Any], template: Any) -> tuple[str, str]:
    paths = [path for path, _ in tree.flatten_with_path(template)]
    parts: tuple[list[Any], list[Any]] = ([], [])  # The rest, and the model.
    for path, leaf in zip(paths, own, strict=True):
        parts[path[0] == 'global_model_weights'].append(leaf)
    model = journal.digest(parts[True])
    return model, journal.digest([model.encode(), *parts[False]])


def noise_digest(state: Any, rounds_ago: int = 0) -> str:
    """Digest of the noise keys of a state and of their positions, now or some rounds ago.

    Raises:
      ValueError: if the state has no noise of a privacy plan.
    """
    positions = [[part.key, np.asarray(part.round) - rounds_ago] for part in _noise(state)]
    return journal.digest(tree.flatten(positions))


def require_plan(state: Any, plan: accounting.PrivacyPlan) -> None:
    """Checks that the noise in a state is that of a plan.

    Raises:
      ArgumentError: if the state has no noise of a privacy plan, that of another one, or that of
        several aggregators, of which a plan counts one.
    """
    _noise(state)
    own, parts = query.plan_digest(plan, None), query.parts(state, query.QueryState)
    if len(parts) > 1:
        raise errors.ArgumentError(
            'process',
            errors.NOT_SHOWN,
            f'must have one aggregator with noise, has {len(parts)}: the plan counts one release '
            'in a round',
        )
    for part in parts:
        for name in query.plan_differences(part.plan, own):
            raise errors.ArgumentError(
                'plan', errors.NOT_SHOWN, f'has another {name} than the aggregator of the process'
            )


def rounds_done(state: Any) -> int:
    """The number of rounds that a state has behind it.

    Raises:
      ValueError: if the state has no noise of a privacy plan.
    """
    return int(np.asarray(_noise(state)[0].round))


def _noise(state: Any) -> list[correlated.NoiseState]:
    states = query.parts(state, correlated.NoiseState)
    if not states:
        raise errors.ArgumentError(
            'process', errors.NOT_SHOWN, 'must hold the noise of a privacy plan in its state'
        )
    return states
