"""The best of several runs, against the exact distribution of the largest of several numbers."""

import json
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import stats

from dpfl import accounting
from dpfl.accounting import events, selection
from dpfl.accounting.selection import Selection
from tests import json_values, oracles
from tests.accounting import plans


def _slopes(chosen: Selection):
    """Derivative of E[s^K] for the number K of runs, by the definition of its distribution."""
    counts = np.arange(1, 4000)
    if chosen.distribution == 'poisson':
        weights = stats.poisson.pmf(counts, chosen.mean)
    elif chosen.distribution == 'geometric':
        weights = stats.geom.pmf(counts, 1 / chosen.mean)
    else:
        shares = np.linspace(0.5, 0.9999, 200_000)
        means = -shares / ((1 - shares) * np.log1p(-shares))
        weights = stats.logser.pmf(counts, np.interp(chosen.mean, means, shares))
    assert counts @ weights == pytest.approx(chosen.mean, rel=1e-3)
    terms = list(zip(counts[:400], weights[:400], strict=True))
    return lambda s: sum(k * weight * s ** (k - 1) for k, weight in terms)


@pytest.mark.parametrize(
    'distribution, mu',
    [('poisson', 0.3), ('geometric', 1.5), ('logarithmic', 0.3), ('poisson', 1.5)],
)
def test_the_largest_of_several_gaussian_releases_has_no_larger_divergence(distribution, mu):
    # The score is the released number itself, which is the worst case of a score that tells much.
    chosen, delta = Selection(distribution, 6.0), 1e-3
    slope, x = _slopes(chosen), np.linspace(-9, 9 + mu, 4001)

    def density(mean):
        return slope(stats.norm.cdf(x - mean)) * stats.norm.pdf(x - mean)

    epsilon = selection.epsilon(dp_accounting.GaussianDpEvent(1 / mu), chosen, delta)
    one = accounting.epsilon_from_mu(mu, delta, 'analytic_gaussian')
    assert one < epsilon < 6 * one

    def worse_order(at):
        return oracles.hockey_stick(density(mu), density(0), at, x[1] - x[0])

    assert worse_order(epsilon) <= delta < worse_order(one)  # One run's epsilon is too small.


def test_what_dp_accounting_computes_for_the_same_event():
    run = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(5.0), 10)
    for name, shape in (*selection.DISTRIBUTIONS.items(), (0.5, 0.5)):
        event = dp_event.RepeatAndSelectDpEvent(run, 12.0, shape)
        expected = dp_accounting.rdp.RdpAccountant().compose(event).get_epsilon(1e-6)
        found = selection.epsilon(run, Selection(name, 12.0), 1e-6)
        assert found == pytest.approx(expected, rel=1e-9)


def test_more_runs_cost_more_and_one_costs_what_it_costs():
    run = dp_accounting.GaussianDpEvent(2.0)
    assert (
        selection.epsilon(dp_accounting.NonPrivateDpEvent(), Selection('poisson', 3), 1e-6)
        == math.inf
    )
    costs = [selection.epsilon(run, Selection('poisson', mean), 1e-6) for mean in (1, 3, 30, 300)]
    assert costs == sorted(costs)
    assert costs[0] >= accounting.epsilon_from_mu(0.5, 1e-6, 'rdp')
    assert costs[-1] < 30 * costs[0]  # Far less than composition.


def test_orders_whose_divergence_is_not_known_leave_the_others():
    run = plans.poisson_event(0.1, 1.0, 100)
    assert math.isinf(events.renyi_divergences(run)[1][0])
    epsilons = [selection.epsilon(run, Selection(name, 10.0), 1e-5) for name in ('poisson', 0.5)]
    assert max(epsilons) < 4 * accounting.epsilon_of_event(run, 1e-5, 'rdp')


def test_texts_name_selections():
    assert Selection.from_text('0.5:10') == Selection(0.5, 10.0)
    assert Selection.from_text('poisson:10') == Selection('poisson', 10.0)


def _report(deltas=(1e-6, 1e-8), **changes):
    return plans.report(plans.independent(20, noise_multiplier=5.0, **changes), deltas)


def test_a_report_says_what_the_selected_run_guarantees():
    plain = _report()
    assert 'Tuning of hyperparameters over several runs' in ' '.join(plain.to_dict()['not_covered'])
    report = plain.selected_from(Selection('geometric', 8.0))
    values = report.to_dict()['selection']
    assert values['epsilon'] == selection.epsilon(
        plain.plan.dp_event(), Selection('geometric', 8.0), 1e-6
    )
    assert values['epsilon'] > plain.guarantee.epsilons[0] and values['rho'] is None
    assert values['epsilon'] < values['epsilons'][1]
    assert 'geometric distribution with mean 8' in report.render()
    assert 'in any other way' in ' '.join(report.to_dict()['not_covered'])


def test_the_selection_of_a_client_that_another_one_replaces_costs_more():
    one = _report(sampling='poisson', population=100, adjacency='replace_one')
    assert (
        one.selected_from(Selection('poisson', 3)).selected.epsilons[0] > one.guarantee.epsilons[0]
    )


def test_a_selection_is_read_back_and_must_not_promise_more():
    several = _report([1e-6]).selected_from(Selection(0.5, 9.0))
    text = several.to_json()
    assert accounting.PrivacyReport.from_json(text, with_selection=True) == several
    with pytest.raises(ValueError, match='must be missing'):
        accounting.PrivacyReport.from_json(text)
    for path, value, message in (
        ('selection.epsilons', [0.01], 'must be at least'),
        ('selection.epsilons', [], 'selection.epsilons'),
        ('selection.epsilons', ['x'], 'selection.epsilons'),
        ('selection.mean', 0, 'mean'),
        ('selection.distribution', 'cauchy', 'distribution'),
        ('selection.distribution', None, 'distribution'),
        *(('selection', value, 'not a privacy report') for value in (None, [], {})),
    ):
        broken = json_values.changed(json.loads(text), path, value)
        with pytest.raises(ValueError, match=message):
            accounting.PrivacyReport.from_json(json.dumps(broken), with_selection=True)
