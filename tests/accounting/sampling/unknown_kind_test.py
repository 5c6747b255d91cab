"""A kind of sampling that the package does not know: planned, trained, reported and verified."""

import dataclasses
from typing import ClassVar

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting
from dpfl.accounting import gaussian
from dpfl.accounting.evidence.refutation import Statistic
from dpfl.accounting.records import verification
from dpfl.accounting.reports import two_reports
from dpfl.accounting.sampling import independent_cohorts, kinds
from dpfl.simulation.training import train
from tests.accounting import plans
from tests.simulation.training import small_config

_DELTA = 1e-3
_TWICE = Statistic('twice', 'once', 'A client took part {} times.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Shuffled(independent_cohorts.IndependentRounds):
    """A random order of the clients, which take part once: a pass over the population."""

    name: ClassVar[str] = 'shuffled'
    has_one_size: ClassVar[bool] = True
    has_own_bound: ClassVar[bool] = True
    statistics: ClassVar[tuple[Statistic, ...]] = (_TWICE,)

    def schema(self, rounds):
        return Participation(rounds, 1, 1)

    def cohorts(self, clients_per_round, seed):
        order = np.random.default_rng(seed).permutation(self.population)
        return lambda t: order[t * clients_per_round : (t + 1) * clients_per_round]

    def event(self, plan, noise_multiplier):
        return dp_accounting.GaussianDpEvent(noise_multiplier / plan.shift)

    def _round(self, plan, release):
        return release

    def bound(self, plan, delta):
        """Of one round: the others do not have the client."""
        return gaussian.bound(plan.shift / plan.noise_multiplier, delta, 'analytic_gaussian')

    def noise_for(self, plan, epsilon, delta):
        return plan.shift / accounting.mu_from_epsilon(epsilon, delta, 'analytic_gaussian') * 1.0001

    def log_tests(self, plan, log):
        most = log.by_client().counts.max(initial=0)
        return [_TWICE.test(0.0, most)] if most > 1 else []

    def unseen(self, plan, rounds):
        return ['No log shows that the order was random.']

    def describe(self, plan):
        return f'the {self.population} clients were put into a random order'

    def title(self):
        return 'a random order'

    def accounted(self, plan, deltas):
        return ['Each client is accounted for in one round.']


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(kinds.KINDS, _Shuffled.name, _Shuffled)


def test_it_plans_and_reports_and_reads():
    plan = plans.independent(4, sampling=_Shuffled(population=40), clients_per_round=10)
    once = accounting.epsilon_from_mu(0.5, _DELTA, 'analytic_gaussian')
    assert plan.epsilon(_DELTA, 'best') == once and plan.accountants == ('best',)
    found = accounting.PrivacyPlan.from_dict(plan.to_dict(), plan.mechanism)
    assert found == plan
    draw = plan.sampling.cohorts(10, 0)
    report = plans.report(plan, [_DELTA], [draw(t) for t in range(4)])
    assert report.basis == 'plan' and report.guarantee.epsilons == (once,)
    text = report.to_json() + report.render()
    assert 'the 40 clients were put into a random order.' in text and 'a random order, 10' in text
    assert plans.read(report) == report
    # No event says its bound, so a composition has the event alone.
    both = two_reports.guarantee(
        [report, report.__class__.from_plan(plans.independent(1), [_DELTA])]
    )
    assert both.epsilon > accounting.epsilon_from_mu(0.5**0.5, _DELTA, 'analytic_gaussian') > once
    # A log that it cannot have made loses it, and is accounted for as it is.
    twice = plans.report(plan, [_DELTA], [draw(0), draw(0)])
    assert 'A client took part 2 times.' in twice.observed.violations
    assert plans.read(twice) == twice
    assert twice.guarantee.epsilons[0] > once


def test_other_runs_and_hardened_noise_are_composed_without_its_own_bound():
    plan = plans.independent(4, sampling=_Shuffled(population=40), clients_per_round=10)
    once, twice = plan.epsilon(_DELTA, 'best'), 2**0.5 / 2
    for earlier in (dict(earlier=(plan,)), dict(before=(accounting.ReleaseBefore('words', 2.0),))):
        both = dataclasses.replace(plan, **earlier)
        exact = accounting.epsilon_from_mu(twice, _DELTA, 'analytic_gaussian')
        assert once < exact <= both.epsilon(_DELTA, 'best') * (1 + 1e-9)
        # Nor is the noise for a target.
        found = plans.calibrated(both, 3 * once, 'best', _DELTA, clip_norm=1.0)
        assert found.epsilon(_DELTA, 'best') <= 3 * once
    hardened = dataclasses.replace(plan, noise='hardened')
    assert hardened.epsilon(_DELTA, 'best') > once


@pytest.mark.tff
@pytest.mark.standard
def test_it_trains(tmp_path):
    config = small_config.GAUSSIAN.with_values(
        {'sampling': 'shuffled', 'min_separation': 1, 'noise_seed': None}
    )
    result = train(config, tmp_path / 'run', progress=False)
    assert result.report.plan.sampling == _Shuffled(population=16)
    assert result.report.basis == 'plan' and result.report.observed.limits.max_participations == 1
    assert verification.verify(tmp_path / 'run').differences == ()
    log = ParticipationLog.load(tmp_path / 'run' / 'participation.npz')
    assert sorted(np.concatenate([log.cohort(t) for t in range(4)])) == list(range(16))
