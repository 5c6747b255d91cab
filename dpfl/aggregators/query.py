"""The query of a privacy plan: what clients and server compute in one round.

A state goes on only under the plan that it was made with. Strategy, noise and denominator are
constants of the code, not parts of a state. So the state of each query has a digest of everything
that noise and result depend on, one number for each item. A round compares them with those of its
own plan. What only accounting reads, such as the population or the size of groups, is in no digest.
"""

import collections
import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp
import tree

from dpfl import _validate, accounting
from dpfl.aggregators import clipping, flat
from dpfl.aggregators.noise import correlated, draws

_ITEMS = (
    'mechanism',
    'noise_multiplier',
    'noise',
    'clip_norm',
    'discretization',
    'estimator',
    'clients_per_round',
    'clip',
)
_ADVICE = 'a state goes on only under the plan that it was made with'
_P = TypeVar('_P')
# The name that `tfp.TreeResidualSumQuery` gives to the clip norm.
CLIP_METRIC = 'tree_agg_dpftrl_clip'


def plan_digest(plan: accounting.PrivacyPlan, clip: Any) -> np.ndarray:
    """The digests of the items of a plan, int64 [items].

    Args:
      plan: the plan.
      clip: how updates are clipped.
    """
    fields = plan.to_dict()
    # In the order of `_ITEMS`.
    items = (
        [plan.participation.rounds, plan.mechanism_of_run.digest()],
        fields['noise_multiplier'],
        [fields['noise'], None],  # As in states of earlier versions, whose digests had two.
        [fields[name] for name in ('clip_norm', 'clip_schedule', 'adaptive_clip')],
        fields['discretization'],
        fields['estimator'],
        fields['clients_per_round'],
        getattr(clip, '__name__', repr(clip)),
    )
    texts = [json.dumps(item, sort_keys=True) for item in items]
    digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts]
    return np.frombuffer(b''.join(digests), '<i8').astype(np.int64)


def plan_differences(one: Any, other: Any) -> list[str]:
    """Names of the items in which two digests of plans differ, but not of how updates are clipped.

    How updates are clipped is an argument of the query, not part of a plan.
    """
    differs = np.asarray(one) != np.asarray(other)
    return [name for name, is_other in zip(_ITEMS[:-1], differs[:-1], strict=True) if is_other]


def require_plan(digest: Any, plan: accounting.PrivacyPlan, own: np.ndarray) -> list[tf.Operation]:
    """Checks that the digest in a state is that of the query; a graph waits for the operations.

    Args:
      digest: of the plan in the state, int64 [items].
      plan: plan of the query.
      own: its digest.

    Raises:
      tf.errors.InvalidArgumentError: (when executed) if not; the message names the items.
    """
    shown = dict.fromkeys(_ITEMS, '') | {
        'mechanism': f' (here {plan.mechanism.name} for {plan.participation.rounds} rounds)',
        'noise_multiplier': f' (here {plan.noise_multiplier:g})',
        'clip_norm': f' or its rule (here {plan.clip_norm:g})',
        'clients_per_round': f' (here {plan.clients_per_round})',
    }
    names = tf.constant([f'{name}{text}' for name, text in shown.items()])
    differs = tf.not_equal(digest, own)
    message = tf.strings.join(
        [
            'state: was made under a plan with another ',
            tf.strings.reduce_join(tf.boolean_mask(names, differs), separator=', '),
            f'; {_ADVICE}',
        ]
    )
    if tf.executing_eagerly():
        if tf.reduce_any(differs):
            raise tf.errors.InvalidArgumentError(None, None, message.numpy().decode())
        return []
    return [tf.debugging.Assert(~tf.reduce_any(differs), [message])]


# What `get_noised_result` returns: result, state of the next round, event of this round.
NoisedResult = tuple[Any, Any, dp_accounting.DpEvent]


class WrappedQuery(tfp.SumAggregationDPQuery):
    """A query around another one. Subclasses change what clients send.

    A query that adds to the state, or to the parameters of a round, has those of the inner query
    in a field `inner`; see `innermost`.
    """

    def __init__(self, inner: tfp.SumAggregationDPQuery):
        self._inner = inner

    def initial_global_state(self) -> Any:
        return self._inner.initial_global_state()

    def derive_sample_params(self, global_state: Any) -> Any:
        return self._inner.derive_sample_params(global_state)

    def initial_sample_state(self, template: Any = None) -> Any:
        return self._inner.initial_sample_state(template)

    def preprocess_record(self, params: Any, record: Any) -> Any:
        return self._inner.preprocess_record(params, record)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> NoisedResult:
        return self._inner.get_noised_result(sample_state, global_state)

    def derive_metrics(self, global_state: Any) -> collections.OrderedDict[str, Any]:
        return self._inner.derive_metrics(global_state)


class QueryState(NamedTuple):
    """State of the query that adds the noise, between two rounds.

    Attributes:
      clip_norm: in use, float32 scalar.
      noise: state of the noise.
      plan: digest of the plan, from `plan_digest`.
    """

    clip_norm: Any
    noise: correlated.NoiseState
    plan: Any


class CorrelatedNoiseQuery(tfp.SumAggregationDPQuery):
    """Sum of clipped records plus noise: `sum + clip_norm * noise_multiplier * (C^-1 z)_t`.

    A `tfp.DPQuery`: the client side is `preprocess_record`, the server side `get_noised_result`.
    The event of each round is `UnsupportedDpEvent`: only the whole run has a guarantee, that of
    the plan.
    """

    def __init__(
        self,
        plan: accounting.PrivacyPlan,
        record_specs=None,
        seed: int | None = None,
        clip=clipping.clip_flat,
        supplied_noise: bool = False,
    ):
        """Args: as `build_query`."""
        _check_norm('clip_norm', plan.clip_norm)
        for _, norm in plan.clip_schedule:
            _check_norm('clip_schedule norm', norm)
        self._plan = plan
        self._record_specs = record_specs
        self._clip = clip
        self._digest = plan_digest(plan, clip)
        rounds = plan.participation.rounds
        self._kernel = plan.mechanism_of_run.kernel()
        correlated.require_stable(self._kernel, rounds, plan.mechanism.name)
        self._root_key = draws.root_key_source(seed)
        self._is_supplied = supplied_noise
        if record_specs is not None and not supplied_noise:
            correlated.require_moderate_size(self._kernel, record_specs)

    def initial_global_state(self) -> QueryState:
        """State before the first round; without a seed each call draws a new root key.

        Raises:
          ValueError: in a graph, which a state with noise buffers cannot enter without specs.
        """
        if self._record_specs is None and not tf.executing_eagerly():
            correlated.require_no_buffers(self._kernel)
        return QueryState(
            tf.cast(self._plan.clip_norm, tf.float32),
            correlated.initial_state(
                self._kernel,
                self._plan.participation.rounds,
                self._record_specs,
                self._root_key(),
                is_supplied=self._is_supplied,
            ),
            tf.constant(self._digest),
        )

    def derive_sample_params(self, global_state: Any) -> Any:
        """Parameters of a round for clients: the clip norm, float32 scalar."""
        return global_state.clip_norm

    def preprocess_record(self, params: Any, record: Any) -> Any:
        """Clips one client's record: a structure of float32 or float64 tensors.

        Raises:
          TypeError: if the record has a tensor of another type.
          ValueError, tf.errors.InvalidArgumentError: if it has other shapes than the specs.
        """
        return self._clip(checked(record, self._record_specs), params)

    def derive_metrics(self, global_state: Any) -> collections.OrderedDict[str, Any]:
        return public_metrics(self._plan, global_state)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> NoisedResult:
        """The sum plus the noise of this round, the state of the next round, and the event.

        Raises (when executed):
          tf.errors.InvalidArgumentError: if the state was made under another plan, or all rounds
            are done.
        """
        with tf.control_dependencies(require_plan(global_state.plan, self._plan, self._digest)):
            sample_state = tf.nest.map_structure(tf.identity, sample_state)
        specs = self._record_specs
        if specs is None:
            specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, sample_state)
        stddev = global_state.clip_norm * self._plan.update_noise_multiplier
        unit_noise, noise_state = correlated.next_noise(
            self._kernel,
            self._plan.participation.rounds,
            global_state.noise,
            specs,
            context=(sample_state, stddev),
        )
        # In float64: rounding before the noise is added could move the sum by more than one update.
        noised = [
            tf.cast(tf.cast(total, tf.float64) + tf.cast(stddev, tf.float64) * unit, spec.dtype)
            for total, unit, spec in zip(
                *map(tf.nest.flatten, (sample_state, unit_noise, specs)), strict=True
            )
        ]
        return (
            tf.nest.pack_sequence_as(sample_state, noised),
            QueryState(next_clip_norm(self._plan, global_state), noise_state, global_state.plan),
            dp_accounting.UnsupportedDpEvent(),
        )


def next_clip_norm(plan: accounting.PrivacyPlan, state: QueryState) -> tf.Tensor:
    """The clip norm of the round after the state's, by the schedule of the plan."""
    clip_norm, following = state.clip_norm, state.noise.round + 1
    for first, norm in plan.clip_schedule:
        # In TFF's graphs `==` compares tensors by identity.
        is_first = tf.equal(following, first)
        clip_norm = tf.where(is_first, tf.cast(norm, tf.float32), clip_norm)
    return clip_norm


def public_metrics(
    plan: accounting.PrivacyPlan, state: QueryState
) -> collections.OrderedDict[str, Any]:
    """Metrics of a state that follow from the plan alone, so that anybody may see them.

    Returns:
      - `CLIP_METRIC`: the clip norm of the next round, float32 scalar;
      - `round`: rounds done, int64 scalar;
      - `noise_stddev`: standard deviation of the entries of z in the next round, in the scale of
        the sum, float32 scalar.
    """
    return collections.OrderedDict(
        {
            CLIP_METRIC: state.clip_norm,
            'round': state.noise.round,
            'noise_stddev': state.clip_norm * plan.update_noise_multiplier,
        }
    )


def checked(record: Any, specs: Any) -> Any:
    """A client's record, after a check of its types and, unless the specs are None, its shapes.

    A sum would broadcast a tensor of another shape, over more coordinates than were clipped.

    Raises:
      TypeError: if noise cannot be added to a type; the message names the first such tensor.
      ValueError, tf.errors.InvalidArgumentError: if the shapes are not those of the specs.
    """
    for path, leaf in tree.flatten_with_path(record):
        dtype = tf.as_dtype(leaf.dtype)
        if dtype not in flat.DTYPES:
            name = '/'.join(['record', *map(str, path)])
            raise TypeError(
                f'{name} has a {dtype.name} tensor: must be float32 or float64, or a 16-bit float '
                'where record_specs are given'
            )
    if specs is None:
        return record
    pairs = zip(tf.nest.flatten(record), tf.nest.flatten(specs), strict=True)
    return tf.nest.pack_sequence_as(
        record, [tf.ensure_shape(leaf, spec.shape) for leaf, spec in pairs]
    )


def _check_norm(name, value):
    _validate.number(name, value, minimum=clipping.SMALLEST_NORM, maximum=clipping.LARGEST_NORM)


def parts(state: Any, kind: type[_P]) -> list[_P]:
    """The parts of a state that are of one type, in the order of `tree.flatten`."""
    matching: list[_P] = []

    def visit(part: Any) -> None:
        if isinstance(part, kind):
            matching.append(part)

    tree.traverse(visit, state)
    return matching


def replaced(state: Any, kind: type[_P], replace: Callable[[_P], Any]) -> Any:
    """A state with `replace` of each part of one type, but for parts within such a part."""
    return tree.traverse(lambda part: replace(part) if isinstance(part, kind) else None, state)


def innermost(nested: Any) -> Any:
    """The part that belongs to the query that adds the noise, inside of the queries around it.

    Args:
      nested: the state of a query, or its parameters of a round.

    Returns:
      The `QueryState`, or the clip norm that clients use, float32 scalar.
    """
    while hasattr(nested, 'inner'):
        nested = nested.inner
    return nested


def with_clip_norm(state: Any, clip_norm: tf.Tensor) -> Any:
    """The state of a query with another clip norm, float32 scalar, for when noise restarts."""
    if hasattr(state, 'inner'):
        return state._replace(inner=with_clip_norm(state.inner, clip_norm))
    return state._replace(clip_norm=clip_norm)
