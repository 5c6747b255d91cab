"""Estimated guarantees in plans and reports: what they claim, and how noise is searched."""

import dataclasses
import json
import math

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import gaussian, tradeoff
from dpfl.accounting.reports import two_reports
from dpfl.accounting.sampling import monte_carlo
from tests import sampling_oracles
from tests.accounting import plans
from tests.sizes import standard

_DELTA = 1e-4


def _plan(sampling='balls_in_bins', **changes):
    mechanism = mechanisms.BandedToeplitz(7, [1.0, 0.5, 0.25, 0.125])
    fields = dict(mechanism=mechanism, clients_per_round=3, population=9)
    return plans.sampled(sampling, **{**fields, **changes})


def test_a_report_says_what_is_estimated():
    report = plans.report(_plan(), [_DELTA])
    found = report.plan.sampling.estimate(report.plan, _DELTA)
    assert report.guarantee.epsilons == (found.epsilon,) and found.is_amplified
    assert report.guarantee.accountants == ('monte_carlo',)
    text = ' '.join(report.to_dict()['assumptions'])
    assert 'Epsilon at delta = 0.0001 IS AN ESTIMATE from 20000 random samples' in text
    assert 'with seed 0' in text and 'that it is too small is at most 1e-06' in text
    assert 'does not cover a plan that was tuned until its estimate was small' in text
    assert 'Monte Carlo estimate, an upper confidence bound' in report.render()


def test_a_report_of_an_estimate_that_shows_nothing(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 2)
    report = plans.report(_plan(noise_multiplier=0.2), [_DELTA])
    assert report.guarantee.accountants == ('analytic_gaussian',)
    text = ' '.join(report.to_dict()['assumptions'])
    assert 'the one without amplification' in text and 'IS AN ESTIMATE' not in text


def test_composition_with_other_runs_counts_no_amplification():
    plan = _plan()
    event = plan.dp_event()
    assert event.noise_multiplier == pytest.approx(4 / plan.sensitivity)
    plain = accounting.epsilon_from_mu(1 / event.noise_multiplier, _DELTA, 'best')
    found = plan.sampling.estimate(plan, _DELTA)
    assert found.unamplified == pytest.approx(plain, rel=1e-6) and found.epsilon < plain
    # The norm of all rounds of the worst client, as without sampling.
    exact = plan.without_sampling(Participation(7, 3)).sensitivity
    assert exact <= plan.sensitivity <= exact * (1 + 1e-9)
    assert not plan.sensitivity_is_exact and plan.accountants == ('best',)


def test_estimates_are_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    monkeypatch.setattr(monte_carlo, '_LONG_SEARCH_COST', 0)
    plan = _plan(noise_multiplier=5.0)
    first = plan.sampling.estimate(plan, _DELTA)
    (path,) = tmp_path.iterdir()
    monte_carlo._estimate.cache_clear()
    monkeypatch.setattr(monte_carlo, 'epsilon', None)
    assert plan.sampling.estimate(plan, _DELTA) == first
    monkeypatch.undo()
    # A file that was changed is not believed.
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    monkeypatch.setattr(monte_carlo, '_LONG_SEARCH_COST', 0)
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
    seal, text = path.read_text().split('\n')
    values = json.loads(text) | {'epsilon': 0.001}
    path.write_text(f'{seal}\n{json.dumps(values)}')
    monte_carlo._estimate.cache_clear()
    assert plan.sampling.estimate(plan, _DELTA) == first


@pytest.mark.parametrize('target', [0.5, standard(3.0)])
def test_the_noise_for_a_target_is_searched_with_other_samples(monkeypatch, target):
    seeds, epsilon = [], monte_carlo.epsilon

    def seen(*args, **options):
        seeds.append(options['seed'])
        return epsilon(*args, **options)

    monkeypatch.setattr(monte_carlo, 'epsilon', seen)
    monte_carlo._estimate.cache_clear()
    plan = plans.calibrated(_plan(), target, 'best', _DELTA)
    # The guarantee relies on one estimate, so that it fails no more often than that of given noise.
    assert 0.9 * target < plan.epsilon(_DELTA, 'best') <= target
    assert seeds.count(monte_carlo.SEED) == 1 and seeds[-1] == monte_carlo.SEED
    assert set(seeds[:-1]) == {monte_carlo.SEED + 1} and len(seeds) < 25
    certain = plan.sensitivity / gaussian.mu_from_epsilon(target, _DELTA, 'analytic_gaussian')
    assert plan.noise_multiplier < 0.9 * certain
    # The exact epsilon, by an estimate of many samples, is below the target.
    mixed = plan.sampling.mixtures(plan)
    assert epsilon(mixed, plan.noise_multiplier, _DELTA, samples=100_000).epsilon < target
    assert plans.calibrated(_plan(), target, 'best', _DELTA) == plan


def test_a_target_that_the_samples_do_not_show_is_met_without_amplification(monkeypatch):
    compute = monte_carlo._estimate

    def of_other_samples(mixed, stddev, delta, *search):
        found = compute(mixed, stddev, delta, *search)
        return found if search else dataclasses.replace(found, epsilon=found.unamplified)

    monkeypatch.setattr(monte_carlo, '_estimate', of_other_samples)
    plan = plans.calibrated(_plan(), 2.0, 'best', _DELTA)
    mu = plan.sensitivity / plan.noise_multiplier
    assert 1.999 < gaussian.epsilon_from_mu(mu, _DELTA, 'analytic_gaussian') <= 2


def test_an_estimated_guarantee_is_shown_and_not_compared():
    plain = plans.report(plans.plan())
    kept, broken = (plans.report(_plan(), log=log) for log in (None, [[0]] * 7))
    values = two_reports.compare(plain, kept)
    assert values['more_private'] == 'not_comparable'
    assert 'at the deltas of its report only' in values['obstacles'][0]
    assert values['statements']['second'] == kept.to_dict()['statement']
    assert kept.guarantee.epsilons[0] < broken.guarantee.epsilons[0]
    # Its log counts, no sampling.
    assert two_reports.compare(plain, broken)['obstacles'] == []


@pytest.mark.parametrize('sampling', ['balls_in_bins', 'random_allocation'])
def test_the_tradeoff_curve_counts_amplification_at_the_deltas(sampling):
    deltas = [0.05, _DELTA]
    plan = _plan(sampling=sampling, noise_multiplier=2.0)
    report = plans.report(plan, deltas, with_tradeoff=True)
    known = list(zip(report.guarantee.epsilons, report.deltas, strict=True))
    certain = tradeoff.of_event(report.dp_event(), plan.neighbours)
    for (rate, true), (_, most) in zip(report.tradeoff.points, certain.points, strict=True):
        lines = [most]
        for epsilon, delta in known:
            lines.append(delta + math.exp(epsilon) * rate)
            lines.append(1 - math.exp(-epsilon) * (1 - rate - delta))
        assert true == pytest.approx(min(1.0, *lines), rel=1e-6)
    least = min(
        (math.expm1(epsilon) + 2 * delta) / (math.exp(epsilon) + 1) for epsilon, delta in known
    )
    assert report.tradeoff.advantage == pytest.approx(min(least, certain.advantage), rel=1e-6)
    assert '(upper bounds, with the confidence of epsilon)' in report.render()
    assert plans.read(report) == report
    if sampling == 'balls_in_bins':  # The advantage is the divergence at epsilon 0.
        matrix = plan.mechanism.strategy_matrix()
        patterns = sampling_oracles.bin_patterns(7, 3)
        exact = sampling_oracles.curve_of_patterns(matrix, patterns, 2.0)
        assert exact(0.0) <= report.tradeoff.advantage
    assert report.tradeoff.points[1][1] < 0.7 * certain.points[1][1]
