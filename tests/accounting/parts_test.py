"""The parts of a plan: their order, what they know of each other, and one that is not known."""

import dataclasses
import doctest

import dp_accounting
import pytest

from dpfl import accounting, errors
from dpfl.accounting import hardened, part
from dpfl.accounting import plan as plan_lib
from dpfl.accounting.reports import two_reports
from dpfl.accounting.sampling import kinds
from tests.accounting import plans

# Fields of a plan that are not optional: what every run has.
_CORE = {
    'mechanism',
    'participation',
    'clip_norm',
    'noise_multiplier',
    'clients_per_round',
    'adjacency',
    'group_size',
}
# Each part, in the order of the fold.
_ORDER = (
    'IntegerUpdates',
    'ClipSchedule',
    'AdaptiveClip',
    'Estimator',
    'Poisson',
    'WithoutReplacement',
    'Earlier',
    'Before',
    'Hardened',
)
_WORDS = (accounting.ReleaseBefore('words', 8.0, delta=1e-9),)
_PLANS = (
    plans.sampled('poisson', noise='hardened', clip_schedule=((2, 0.5),)),
    plans.sampled(
        'without_replacement',
        before=_WORDS,
        earlier=(plans.sampled('without_replacement'),),
        adaptive_clip=accounting.AdaptiveClip(count_stddev=4.0),
        discretization=accounting.Discretization(100.0, 1000, 1.0),
    ),
)


def test_a_plan_folds_its_parts_in_one_order():
    fields = {field.name for field in dataclasses.fields(accounting.PrivacyPlan)}
    assert set(plan_lib.FOLD) | _CORE == fields
    names_of = [[type(each).__name__ for each in plan.parts] for plan in _PLANS]
    assert {name for names in names_of for name in names} == set(_ORDER)
    for names in names_of:
        assert names == sorted(names, key=_ORDER.index)


def test_a_group_and_a_shift_multiply_before_hardened_noise_adds_its_rounding():
    plan = plans.plan(noise='hardened', adjacency='replace_one', group_size=3)
    plain = dataclasses.replace(plan, noise='default', adjacency='zero_out', group_size=1)
    last = plan.parts[-1]
    assert isinstance(last, hardened.Hardened)
    assert plan.sensitivity == last.sensitivity(plan, 6 * plain.sensitivity)
    assert plan.sensitivity > 6 * plain.sensitivity


def test_the_order_of_what_is_composed_does_not_change_the_guarantee():
    plan = plans.plan(before=_WORDS, earlier=(plans.plan(noise_multiplier=3.0),))
    turned = part.Run(plan.run.reach, plan.run.mu)
    for each in reversed(plan.parts):
        turned = each.run(plan, turned)
    assert turned.total_mu == pytest.approx(plan.mu, rel=1e-14)
    epsilon = turned.bound(1e-6, 'best', plan.neighbours).epsilon
    assert epsilon == pytest.approx(plan.epsilon(1e-6, 'best'), rel=1e-12)


@dataclasses.dataclass(frozen=True)
class _Survey(part.Part):
    """A release after training, which the package does not know."""

    mu: float

    @property
    def words(self):
        return 'a survey'

    def run(self, plan, run):
        return run.then(dp_accounting.GaussianDpEvent(1 / self.mu), mus=(self.mu,))

    def facts(self, report, facts):
        facts.put('assumption', 'survey', 'Clients answered once: mu is {mu:g}.', mu=self.mu)
        facts.change('assumption', 'clip_norm', changes=' {always}')


def test_a_part_that_is_not_known_is_composed_and_refused_by_proofs_that_do_not_know_it(
    monkeypatch,
):
    survey = _Survey(0.5)
    monkeypatch.setitem(plan_lib.FOLD, 'estimator', lambda value: survey)
    plan = plans.plan(noise_multiplier=4.0)
    assert plan.parts == (survey,)
    own = plan.sensitivity / 4.0
    assert plan.mu == pytest.approx((own**2 + 0.25) ** 0.5, rel=1e-12)
    report = plans.report(plan, [1e-6], [[0]] * 4, 'analytic_gaussian')
    assumptions = report.to_dict()['assumptions']
    assert assumptions[-1] == 'Clients answered once: mu is 0.5.'
    assert 'at most 0.5 {always}, because' in '\n'.join(assumptions)
    assert plans.read(report) == report
    exact = accounting.epsilon_from_mu(0.5, 1e-6, 'analytic_gaussian')
    assert report.pattern_guarantee.epsilons[0] > exact
    with pytest.raises(errors.ArgumentError, match='noise=hardened: must be default with a survey'):
        plans.plan(noise='hardened')
    with pytest.raises(errors.ArgumentError, match='cannot be composed with a survey'):
        plans.sampled('balls_in_bins')
    # Composed with another run, it counts once.
    both = two_reports.guarantee([report, plans.report(plans.plan())])
    assert both.rho > report.guarantee.rho
    # The noise for a target leaves room for it.
    found = plans.calibrated(plan, 3.0)
    assert 2.999 < found.epsilon(1e-6, 'analytic_gaussian') <= 3.0


class _Leak(_Survey):
    """A part with which a client moves the whole run farther."""

    def sensitivity(self, plan, sensitivity):
        return sensitivity + 1.0


def test_a_part_that_adds_to_the_sensitivity_of_a_run_is_refused_by_samplings(monkeypatch):
    plain = plans.plan().sensitivity
    monkeypatch.setitem(plan_lib.FOLD, 'estimator', lambda value: _Leak(0.5))
    assert plans.plan().sensitivity == plain + 1.0
    for name, kind in kinds.KINDS.items():
        refused = 'cannot be composed' if kind.caveat else 'does not count what'
        with pytest.raises(errors.ArgumentError, match=refused):
            plans.sampled(name)


def test_facts_are_put_changed_and_dropped_by_key():
    assert doctest.testmod(part, extraglobs={'accounting': accounting}).failed == 0
    found = part.Facts()
    found.put('assumption', 'own', 'Last.')
    found.put('assumption', 'noise@1', 'Second.')
    found.put('assumption', 'noise@0', 'First.')
    found.put('not_covered', 'noise', 'Else.')
    with pytest.raises(KeyError, match='noise@0 has no stddev'):
        found.change('assumption', 'noise@0', stddev=1)
    with pytest.raises(KeyError):
        found.change('assumption', 'clip_norm', norm=1)
    assert found.bullets('assumption') == ['Second.', 'First.', 'Last.']
    found.drop('assumption', 'noise')
    assert found.bullets('assumption') == ['Last.']
    assert found.bullets('not_covered') == ['Else.']


def test_an_earlier_run_that_is_no_gaussian_release_is_composed_and_not_lost():
    earlier = plans.sampled('poisson', noise_multiplier=0.7)
    plan = plans.sampled('poisson', earlier=(earlier,))
    run = plan.run_of_sensitivity(plan.sensitivity)
    assert run.mu is not None and run.total_mu is None
    rounds = dp_accounting.GaussianDpEvent(1 / run.mu)
    both = dp_accounting.ComposedDpEvent([rounds, earlier.dp_event()])
    assert run.event() == both
    unamplified = run.bound(1e-6, 'rdp', plan.neighbours).epsilon
    assert unamplified >= plan.epsilon(1e-6, 'rdp') > plans.sampled('poisson').epsilon(1e-6, 'rdp')
    alone = dataclasses.replace(plan, earlier=()).run_of_sensitivity(plan.sensitivity)
    assert unamplified > alone.bound(1e-6, 'rdp', plan.neighbours).epsilon
