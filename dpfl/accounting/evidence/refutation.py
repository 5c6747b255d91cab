"""Which tests a participation log fails against the sampling of its plan."""

from typing import TYPE_CHECKING

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
    too_many = structure.population(log, plan.sampling.population)
    return tuple(too_many or plan.sampling.log_tests(plan, log))


def refutations(
    plan: 'PrivacyPlan', log: ParticipationLog, false_alarm: float = FALSE_ALARM
) -> tuple[LogTest, ...]:
    """The tests that refute the plan's sampling, at a total probability of a false alarm."""
    tests = log_tests(plan, log)
    return tuple(test for test in tests if test.p_value <= false_alarm / MOST_TESTS)
