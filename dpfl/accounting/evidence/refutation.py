"""Which tests a participation log fails against the sampling of its plan."""

from collections.abc import Callable

from dpfl.accounting.evidence import bins, separated
from dpfl.accounting.evidence.log_test import LogTest
from dpfl.accounting.plan import PrivacyPlan
from dpfl.participation import ParticipationLog

# Probability with which a report finds fault with cohorts that were sampled as planned. It is split
# evenly over the tests of a report (Bonferroni).
FALSE_ALARM = 1e-6

# The tests of each sampling.
_TESTS: dict[str, Callable[[PrivacyPlan, ParticipationLog], list[LogTest]]] = {
    'balls_in_bins': bins.balls_in_bins,
    'random_allocation': bins.random_allocation,
    'b_min_sep': separated.tests,
}


def log_tests(plan: PrivacyPlan, log: ParticipationLog) -> tuple[LogTest, ...]:
    """All tests of a log with at least one round; none without sampling."""
    if plan.sampling == 'none' or not log.rounds:
        return ()
    return tuple(_TESTS[plan.sampling](plan, log))


def refutations(
    plan: PrivacyPlan, log: ParticipationLog, false_alarm: float = FALSE_ALARM
) -> tuple[LogTest, ...]:
    """The tests that refute the plan's sampling, at a total probability of a false alarm."""
    tests = log_tests(plan, log)
    return tuple(test for test in tests if test.p_value <= false_alarm / len(tests))
