"""Which tests a participation log fails against the sampling of its plan."""

from collections.abc import Callable

from dpfl.accounting.evidence import bins, independent_rounds, separated, structure
from dpfl.accounting.evidence.log_test import LogTest
from dpfl.accounting.plan import PrivacyPlan
from dpfl.participation import ParticipationLog

# Probability with which a report finds fault with cohorts that were sampled as planned.
FALSE_ALARM = 1e-6

# It is split evenly over this number of tests (Bonferroni); no sampling has more.
MOST_TESTS = 8

# The tests of each sampling.
_TESTS: dict[str, Callable[[PrivacyPlan, ParticipationLog], list[LogTest]]] = {
    'poisson': independent_rounds.poisson,
    'cyclic_poisson': independent_rounds.poisson,
    'truncated_poisson': independent_rounds.truncated_poisson,
    'without_replacement': independent_rounds.without_replacement,
    'balls_in_bins': bins.balls_in_bins,
    'random_allocation': bins.random_allocation,
    'b_min_sep': separated.b_min_sep,
}


def log_tests(plan: PrivacyPlan, log: ParticipationLog) -> tuple[LogTest, ...]:
    """All tests of a log with at least one round; none without sampling.

    A log that the sampling cannot produce gets no tests of chance. A client that is listed several
    times in a round counts once.
    """
    if plan.sampling == 'none' or not log.rounds:
        return ()
    log = structure.without_repeats(log)
    return tuple(structure.population(plan, log) or _TESTS[plan.sampling](plan, log))


def refutations(
    plan: PrivacyPlan, log: ParticipationLog, false_alarm: float = FALSE_ALARM
) -> tuple[LogTest, ...]:
    """The tests that refute the plan's sampling, at a total probability of a false alarm."""
    tests = log_tests(plan, log)
    return tuple(test for test in tests if test.p_value <= false_alarm / MOST_TESTS)
