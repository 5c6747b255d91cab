"""Which tests a participation log fails against the sampling of its plan."""

from typing import TYPE_CHECKING, Any

from dpfl import _json, _validate, errors
from dpfl.accounting.evidence import structure
from dpfl.accounting.evidence.log_test import LogTest
from dpfl.participation import ParticipationLog

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Probability with which a report finds fault with cohorts that were sampled as planned.
FALSE_ALARM = 1e-6

# It is split evenly over this number of tests (Bonferroni); no sampling has more.
MOST_TESTS = 8


def log_tests(plan: 'PrivacyPlan', log: ParticipationLog) -> tuple[LogTest, ...]:
    """All tests of a log with at least one round; none without sampling.

    A log that the sampling cannot produce gets no tests of chance. A client that is listed several
    times in a round counts once.
    """
    if plan.sampling is None or not log.rounds:
        return ()
    log = structure.without_repeats(log)
    too_many = structure.population(log.by_client().clients.size, plan.sampling.population)
    return tuple(too_many or plan.sampling.log_tests(plan, log))


def refutations(
    plan: 'PrivacyPlan', log: ParticipationLog, false_alarm: float = FALSE_ALARM
) -> tuple[LogTest, ...]:
    """The tests that refute the plan's sampling, at a total probability of a false alarm."""
    tests = log_tests(plan, log)
    return tuple(test for test in tests if test.p_value <= false_alarm / MOST_TESTS)


def read(plan: 'PrivacyPlan', values: Any) -> tuple[LogTest, ...]:
    """The refutations that a file states, as `LogTest.to_dict` wrote them.

    Raises:
      ArgumentError: if they are not results of different tests of the plan's sampling that refute
        it. Only the log can tell whether they are its results.
    """
    if plan.sampling is None:
        raise errors.ArgumentError(
            'refutations', errors.NOT_SHOWN, 'must be missing without sampling'
        )
    known = {each.key: each for each in (structure.POPULATION, *plan.sampling.statistics)}
    tests = []
    for stated in _json.list_of('refutations', values, 'objects'):
        stated = _json.checked_object('refutations', stated)
        statistic = known.pop(_validate.choice('test', stated.get('test'), [*known]))
        level = FALSE_ALARM / MOST_TESTS
        p_value = _validate.number('p_value', stated.get('p_value'), minimum=0, maximum=level)
        numbers = _json.list_of('numbers', stated.get('numbers'), 'numbers')
        tests.append(statistic.test(p_value, *numbers))
    return tuple(tests)
