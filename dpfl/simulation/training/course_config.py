"""Settings of how a run begins and ends. Does not import TensorFlow."""

import dataclasses
from collections.abc import Callable

from dpfl import accounting
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class CourseConfig(Settings):
    """How a run begins, and when it stops before its last round."""

    fork_from: str | None = setting(
        None,
        'Directory of an earlier run, finished or not: begin with the model of its latest '
        'checkpoint, for instance with another noise and clip norm ([McMahan18], figure 4). The '
        'guarantee is that of both runs together. The momentum of the server begins anew.',
    )
    warm_start_is_public: bool = setting(
        False,
        'Declare that the model of --warm_start learned from public data only. Its run is then not '
        'counted, and the report states the declaration. Without it the model must be that of a '
        'run, and the guarantee is that of both runs together.',
    )
    stop_at_epsilon: float | None = setting(
        None,
        'Stop before the round that would raise epsilon above this value at --delta. The number of '
        'rounds follows from the plan alone, so the report gives the guarantee of the rounds that '
        'are run.',
        above=0,
    )
    stop_at_accuracy: float | None = setting(
        None,
        'Stop at the first evaluation with at least this accuracy. The rule reads the data of the '
        'held-out clients without noise, and the report says so; the guarantee stays that of all '
        '--rounds.',
        above=0,
        maximum=1,
    )


def within_epsilon(
    plan: accounting.PrivacyPlan,
    target: float,
    delta: float,
    accountant: str,
    tell: Callable[[str], None],
) -> accounting.PrivacyPlan:
    """The plan of as many rounds as keep epsilon at `delta` within a target.

    Args:
      plan: of all rounds.
      target: largest epsilon.
      delta: strictly between 0 and 1.
      accountant: by which epsilon is computed.
      tell: called with a message if there are fewer rounds than in the plan.

    Raises:
      ArgumentError: if a single round has a larger epsilon, or the mechanism cannot stop early.
    """

    def of(rounds: int) -> accounting.PrivacyPlan:
        return plan.with_participation(plan.participation.within(rounds))

    def epsilon(rounds: int) -> float:
        return of(rounds).epsilon(delta, accountant)

    planned = plan.participation.rounds
    if epsilon(planned) <= target:
        return plan
    if not plan.mechanism.shortens:
        raise ArgumentError(
            'stop_at_epsilon', target, f'mechanism={plan.mechanism.name} cannot stop early'
        )
    if epsilon(1) > target:
        raise ArgumentError(
            'stop_at_epsilon', target, f'must be at least {epsilon(1):.6g}, epsilon of one round'
        )
    # Epsilon of `low` rounds is within the target, that of `high` rounds is not.
    low, high = 1, planned
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(middle) <= target else (low, middle)
    tell(
        f'stops after {low} of {planned} rounds, with epsilon {epsilon(low):.6g}; '
        f'one more round has {epsilon(high):.6g}'
    )
    return of(low)
