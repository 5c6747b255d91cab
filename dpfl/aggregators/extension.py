"""States that go on under a plan with more rounds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import accounting, errors
from dpfl.aggregators import adaptive_clip, query
from dpfl.aggregators.noise import correlated


def extended_state(state: Any, before: accounting.PrivacyPlan, plan: accounting.PrivacyPlan) -> Any:
    """A state of a run under one plan, as a state under a plan with more rounds.

    The noise so far and that which follows have the matrix of the new plan, and so its guarantee.
    The next round refuses the plan before.

    Args:
      state: of a query or process whose aggregator was built from `before`, or a structure that
        holds one.
      before: the plan under which the rounds so far were released.
      plan: has the matrix of `before` in all of its rounds, and differs in nothing but rounds.

    Raises:
      ArgumentError: if the state is not one of `before`, the plans differ in anything else, or
        `plan` has another matrix in the rounds of `before`.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> longer = plan.with_participation(Participation(8, min_separation=8))
      >>> state = build_query(plan).initial_global_state()
      >>> state = extended_state(state, plan, longer)  # Goes on with `build_query(longer)`.
    """
    digests = [query.plan_digest(before, None), query.plan_digest(plan, None)]
    parts = query.parts(state, query.QueryState)
    if not parts:
        raise errors.ArgumentError('state', errors.NOT_SHOWN, 'must be that of a private query')
    for name in query.plan_differences(parts[0].plan, digests[0]):
        raise errors.ArgumentError('before', errors.NOT_SHOWN, f'has another {name} than the state')
    for name in query.plan_differences(*digests):
        if name != 'mechanism':
            raise errors.ArgumentError(
                name, getattr(plan, name), f'must be {getattr(before, name)}, as in the plan before'
            )
    matrix, other = plan.mechanism_of_run, before.mechanism_of_run
    if not matrix.begins_like(other, other.rounds):
        raise errors.ArgumentError(
            'mechanism',
            plan.mechanism.name,
            f'must have the strategy of the plan before in its {other.rounds} rounds',
        )
    return with_plan(state, plan)


def with_plan(state: Any, plan: accounting.PrivacyPlan) -> Any:
    """`extended_state` without its checks.

    The new plan may need other buffers of past noise. What a buffer holds is a function of the keys
    of the rounds done, so it is computed anew. After the last round of a segment of the noise an
    adaptive clip norm changes, unless there is no round to follow: now there is one.
    """
    kernel, rounds = plan.mechanism_of_run.kernel(), plan.participation.rounds

    def restarted(part: adaptive_clip.AdaptiveState) -> adaptive_clip.AdaptiveState:
        if int(part.noise.round) not in plan.fresh_rounds:
            return part
        return query.with_clip_norm(part, part.estimate)

    def stamped(part: query.QueryState) -> query.QueryState:
        digest = query.plan_digest(plan, None)
        digest[-1] = part.plan[-1]  # How updates are clipped stays as it is.
        return part._replace(plan=digest)

    def longer(part: correlated.NoiseState) -> correlated.NoiseState:
        done = int(part.round)
        drawn = np.zeros([rounds, np.shape(part.drawn)[1]], np.int64)
        drawn[:done] = np.asarray(part.drawn)[:done]
        if not isinstance(part.past, Mapping):
            if part.past == () and done:  # Nothing was kept, so nothing can be needed.
                correlated.require_no_buffers(kernel)
            return part._replace(drawn=drawn)  # Otherwise a ring keeps it.
        container: Any = type(part.past)
        past = {}
        for name, buffers in part.past.items():
            if kernel.table.shape[0] == 1 and np.shape(buffers)[0] == kernel.buffers:
                past[name] = buffers  # One row for all rounds: the same whatever their number is.
            else:
                dtype, size = tf.as_dtype(name), np.shape(buffers)[1]
                past[name] = correlated.buffers_after(kernel, drawn, done, dtype, size).numpy()
        return part._replace(drawn=drawn, past=container(past))

    state = query.replaced(state, adaptive_clip.AdaptiveState, restarted)
    state = query.replaced(state, query.QueryState, stamped)
    return query.replaced(state, correlated.NoiseState, longer)
