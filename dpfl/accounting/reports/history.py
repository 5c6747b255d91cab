"""What a report says about a run that did not simply train the rounds of its plan."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpfl import _json, _validate, errors
from dpfl.accounting.plan import PrivacyPlan

if TYPE_CHECKING:
    from dpfl.accounting.reports.report_values import ReportValues


@dataclasses.dataclass(frozen=True)
class Extension(_json.JsonFields):
    """How a run went on with more rounds.

    Attributes:
      released: rounds that were released until then.
      planned: rounds that were planned until then.
      rounds: rounds that are planned since then.

    Raises:
      ArgumentError: if a field is no number of rounds, or they do not ascend.
    """

    released: int
    planned: int
    rounds: int

    def __post_init__(self) -> None:
        for name, value in self.to_dict().items():
            _validate.integer(name, value, minimum=0, maximum=_validate.MOST_ROUNDS)
        if not self.released <= self.planned < self.rounds:
            raise errors.ArgumentError('rounds', self.rounds, f'must be above {self.planned}')


def extensions(name: str, values: Any) -> tuple[Extension, ...]:
    """Extensions from their JSON form, a list of objects; the error names it."""
    values = _json.list_of(name, values, 'objects')
    if any('switched' in _json.checked_object(name, value) for value in values):
        raise errors.ArgumentError(name, errors.NOT_SHOWN, errors.removed('has another matrix'))
    return tuple(Extension.from_dict(value) for value in values)


def check(report: 'ReportValues') -> None:
    """Checks that extensions follow each other, and lead to the plan of a report and to its log.

    Raises:
      ArgumentError: if they do not.
    """
    steps = report.extensions
    released = [each.released for each in steps]
    planned = [*(each.planned for each in steps[1:]), report.plan.participation.rounds]
    follows = [each.rounds for each in steps] == planned and released == sorted(released)
    # The last round that began may have no cohort yet.
    begun = math.inf if report.observed is None else report.observed.rounds + 1
    if steps and not (follows and released[-1] <= begun):
        raise errors.ArgumentError(
            'extensions',
            [dataclasses.astuple(each) for each in steps],
            f'must begin with the rounds of the one before, and end with the {planned[-1]} rounds '
            'of the plan and no more released rounds than the log has',
        )


def sentences(report: 'ReportValues') -> tuple[str, ...]:
    """How a run was extended, by which rule it stops, and which run it continues from."""
    return (*_extended(report.extensions), *_stopping(report), *_forked(report.plan))


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
            for released, planned, rounds in map(dataclasses.astuple, extensions)
        ),
        f'The guarantee is that of all {last} rounds, as if they had been planned from the '
        'beginning: noise that was used keeps its amount, and epsilon is larger than that of the '
        'shorter run. If what was released had a part in the decision to go on, the number of '
        'rounds is itself a result; the guarantee does not cover that choice.',
    ]


def _stopping(report: 'ReportValues') -> list[str]:
    accuracy, planned, seen = (
        report.stop_at_accuracy,
        report.plan.participation.rounds,
        report.observed,
    )
    if accuracy is None:
        return []
    stopped = f' It stopped after {seen.rounds}.' if seen and seen.rounds < planned else ''
    return [
        f'The run stops at the first evaluation with an accuracy of at least {accuracy:g}.'
        f'{stopped} This rule reads the data of the held-out clients without noise, so the number '
        'of rounds depends on their data, which the guarantee does not cover. For the clients '
        f'that train, the guarantee is that of all {planned} planned rounds, which is an upper '
        'bound however early the run stops.',
    ]
