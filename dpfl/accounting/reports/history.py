"""What a report says about a run that did not simply train the rounds of its plan, as sentences."""

from collections.abc import Sequence
from typing import NamedTuple

from dpfl.accounting.plan import PrivacyPlan


class Extension(NamedTuple):
    """How a run went on with more rounds.

    Attributes:
      released: rounds that were released until then.
      planned: rounds that were planned until then.
      rounds: rounds that are planned since then.
    """

    released: int
    planned: int
    rounds: int


def sentences(
    plan: PrivacyPlan,
    extensions: Sequence[Extension],
    stop_at_accuracy: float | None,
    done: int | None,
) -> tuple[str, ...]:
    """How a run was extended, by which rule it stops, and which run it continues from.

    Args:
      plan: the plan of all of its rounds.
      extensions: how it went on with more rounds, in order.
      stop_at_accuracy: the accuracy at which the run stops, if there is such a rule.
      done: rounds in the participation log; None without a log.
    """
    return (
        *_extended(extensions),
        *_stopping(plan, stop_at_accuracy, done),
        *_forked(plan),
    )


def _forked(plan: PrivacyPlan) -> list[str]:
    if not plan.earlier:
        return []
    runs = '; '.join(
        f'{each.participation.rounds} rounds of {each.mechanism.name} with noise multiplier '
        f'{each.noise_multiplier:g} and clip norm {each.clip_norm:g}, at most '
        f'{each.participation.count} of them per client'
        for each in plan.earlier
    )
    own = plan.participation.rounds
    return [
        f'The run begins with the model of an earlier run ({runs}). The guarantee is that of all '
        f'rounds planned there and of the {own} rounds here together, for clients that take part '
        'in both as each plan allows. Sensitivity and noise multiplier are those of this run. '
        'Rounds that the earlier run trains beyond its plan, and other runs that begin with its '
        'model, are not part of it.'
    ]


def _extended(extensions: Sequence[Extension]) -> list[str]:
    if not extensions:
        return []
    last = extensions[-1].rounds
    return [
        *(
            f'It was planned for {planned} rounds, and extended to {rounds} when {released} had '
            'been released.'
            for released, planned, rounds in extensions
        ),
        f'The guarantee is that of all {last} rounds, as if they had been planned from the '
        'beginning: noise that was used keeps its amount, and epsilon is larger than that of the '
        'shorter run. If what was released had a part in the decision to go on, the number of '
        'rounds is itself a result; the guarantee does not cover that choice.',
    ]


def _stopping(plan: PrivacyPlan, accuracy: float | None, done: int | None) -> list[str]:
    if accuracy is None:
        return []
    planned = plan.participation.rounds
    stopped = f' It stopped after {done}.' if done is not None and done < planned else ''
    return [
        f'The run stops at the first evaluation with an accuracy of at least {accuracy:g}.'
        f'{stopped} This rule reads the data of the held-out clients without noise, so the number '
        'of rounds depends on their data, which the guarantee does not cover. For the clients '
        f'that train, the guarantee is that of all {planned} planned rounds, which is an upper '
        'bound however early the run stops.',
    ]
