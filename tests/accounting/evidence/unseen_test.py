"""What the tests of a log cannot see: against tails and powers from scipy's laws."""

import numpy as np
import pytest
from scipy import special, stats

from dpfl import accounting
from dpfl.accounting.evidence import independent_rounds, laws, refutation, unseen
from dpfl.accounting.evidence.independent_rounds import Rule
from tests.accounting.evidence import dishonest_logs
from tests.accounting.evidence.dishonest_logs import CASES

_LEVEL = refutation.FALSE_ALARM / refutation.MOST_TESTS


@pytest.mark.parametrize(
    'clients, size, rounds, factor', [(1000, 100, 30, 1.0907), (10**6, 1000, 1000, 1.0052)]
)
def test_the_least_excess_of_a_rate(clients, size, rounds, factor):
    plan = dishonest_logs.plan('poisson', rounds, clients_per_round=size, population=clients)
    trials, rate = clients * rounds, size / clients
    value = stats.binom.isf(_LEVEL, trials, rate) + 1
    median = special.betaincinv(value, trials - value + 1, 0.5)
    assert unseen.least_excess(Rule(clients, size), rounds) == pytest.approx(
        median / rate, abs=1 / (trials * rate)
    )
    assert f'{factor} times' in unseen.unseen(plan, rounds)[0]


def test_the_least_excess_with_a_cap_has_power_one_half():
    cases = CASES['truncated_poisson']
    rule = Rule(1000, 100, cap=110)
    assert cases.plan.sampling == accounting.TruncatedPoisson(population=1000, cohort_cap=110)
    factor = unseen.least_excess(rule, 30)
    rng = np.random.default_rng(5)
    totals = np.minimum(rng.binomial(1000, 0.1 * factor, (2000, 30)), 110).sum(axis=1)
    cohort = independent_rounds.capped_cohort(rule, 0.1)
    p_values = {k: laws.tails_of_total(k, [(cohort, 30)])[1] for k in np.unique(totals).tolist()}
    seen = np.mean([p_values[k] <= _LEVEL for k in totals.tolist()])
    assert 0.4 < seen < 0.6


def test_one_client_with_twice_the_rate():
    plan = CASES['poisson'].plan
    counts = np.arange(32)
    value = counts[1000 * stats.binom.sf(counts - 1, 30, 0.1) <= _LEVEL][0]
    power = stats.binom.sf(value - 1, 30, 0.2)
    assert unseen.twice_as_often(Rule(1000, 100), 30) == pytest.approx(power, rel=1e-6)
    assert 'practically never (probability 1.8e-06)' in unseen.unseen(plan, 30)[1]


@pytest.mark.parametrize('case', CASES)
def test_every_sampling_says_what_a_log_cannot_show(case):
    for rounds in (1, 60):
        sentences = unseen.unseen(CASES[case].plan, rounds)
        assert 3 <= len(sentences) <= 4
        assert 'always come together' in sentences[-2]
        assert all(each.endswith('.') for each in sentences)
        assert 'secret' in sentences[-1]


def test_nothing_to_see_without_sampling_or_rounds():
    assert unseen.unseen(CASES['poisson'].plan, 0) == []
    assert unseen.unseen(dishonest_logs.plan('none', 3, clients_per_round=1), 3) == []
