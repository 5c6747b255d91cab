"""Plans and reports with balls in bins and random allocation, which say what is estimated."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog, accounting, errors, mechanisms
from dpfl.accounting import calibration, gaussian, running, tradeoff
from dpfl.accounting.reports import two_reports
from dpfl.accounting.sampling import bins, estimates, monte_carlo
from tests import sampling_oracles

_DELTA = 1e-4


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)


def _plan(**changes):
    sampling = changes.get('sampling', 'balls_in_bins')
    schema = Participation(7, 3) if sampling == 'balls_in_bins' else Participation(7, 1, 3)
    fields = dict(
        mechanism=mechanisms.BandedToeplitz(7, [1.0, 0.5, 0.25, 0.125]),
        participation=schema,
        clip_norm=1.0,
        noise_multiplier=4.0,
        clients_per_round=3,
        population=9,
        sampling=sampling,
        groups=3,
    )
    return accounting.PrivacyPlan(**fields | changes)


def _report(cohorts=None, **changes):
    log = None if cohorts is None else ParticipationLog(cohorts)
    plan = _plan(**changes)
    return accounting.PrivacyReport.from_plan(plan, [_DELTA], log=log, accountant='best')


# Clients 0, 3, 6, 8 picked bin 0, and so on.
_KEPT = [[0, 3, 6, 8], [1, 4], [2, 5, 7], [0, 3, 6, 8], [1, 4], [2, 5, 7], [0, 3, 6, 8]]
_ALLOCATED = [[0, 1], [2, 3], [4, 5, 6, 7, 8], [4, 5], [6, 7, 8], [0, 1, 2, 3], [0]]


def test_a_report_says_that_epsilon_is_an_estimate():
    report = _report(_KEPT)
    assert report.basis == 'plan' and report.guarantee.accountants == ('monte_carlo',)
    found = estimates.of_plan(report.plan, _DELTA)
    assert report.guarantee.epsilons == (found.epsilon,) and found.is_amplified
    text = ' '.join(report.to_dict()['assumptions'])
    assert 'has picked one of 3 bins, uniformly and independently of all other clients' in text
    assert 'bin i takes part in the rounds i, i + 3, i + 6, ... of 7 rounds' in text
    assert 'Epsilon at delta = 0.0001 IS AN ESTIMATE from 20000 random samples' in text
    assert 'with seed 0' in text and 'that it is too small is at most 1e-06' in text
    assert 'does not cover a plan that was tuned until its estimate was small' in text
    page = report.render()
    assert 'Monte Carlo estimate, an upper confidence bound' in page
    assert 'the rounds of one of 3 bins for each client, 3 of 9 clients' in page
    again = accounting.PrivacyReport.from_json(report.to_json())
    assert again.to_dict() == report.to_dict()


def test_a_smaller_epsilon_than_the_estimate_is_refused():
    values = json.loads(_report().to_json())
    values['plan_guarantee']['epsilons'][0] *= 0.99
    with pytest.raises(ValueError, match='must be at least'):
        accounting.PrivacyReport.from_json(json.dumps(values))


def test_a_report_of_an_estimate_that_shows_nothing(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 2)
    report = _report(noise_multiplier=0.2)
    assert report.guarantee.accountants == ('analytic_gaussian',)
    text = ' '.join(report.to_dict()['assumptions'])
    assert 'the one without amplification' in text and 'IS AN ESTIMATE' not in text


def test_random_allocation_in_a_report():
    report = _report(_ALLOCATED, sampling='random_allocation', mechanism=mechanisms.Identity(7))
    assert report.basis == 'plan' and report.guarantee.accountants == ('monte_carlo',)
    text = ' '.join(report.to_dict()['assumptions'])
    assert 'each of the 9 clients takes part in one round of each 3, which it picks' in text
    assert 'one random round of each 3 for each client' in report.render()


@pytest.mark.parametrize(
    'sampling, cohorts, violation',
    [
        ('balls_in_bins', [*_KEPT[:6], [1]], 'Client 1 took part in rounds 1 and 6, the turns'),
        (
            'random_allocation',
            [*_ALLOCATED[:1], [0, 2], *_ALLOCATED[2:]],
            'Client 0 took part in rounds 0 and 1, of the same epoch of 3 rounds.',
        ),
    ],
)
def test_a_client_in_other_rounds_loses_the_amplification(sampling, cohorts, violation):
    report = _report(cohorts, sampling=sampling)
    assert report.basis == 'log' and report.guarantee.mu is not None
    assert any(each.startswith(violation) for each in report.observed.violations)
    assert report.guarantee.epsilons[0] > report.plan_guarantee.epsilons[0]
    assert 'Amplification by sampling: none' in ' '.join(report.to_dict()['not_covered'])


@pytest.mark.parametrize('sampling', bins.SAMPLINGS)
def test_epsilon_in_the_course_of_a_run_is_a_bound(sampling):
    plan = _plan(sampling=sampling)
    epsilon = running.RunningEpsilon(plan, _DELTA, 'best')
    shown = [epsilon.after(t) for t in range(1, 8)]
    assert shown == sorted(shown) and shown[-1] == plan.epsilon(_DELTA, 'best')
    for t in (1, 3, 4):
        so_far = plan.with_participation(plan.participation.within(t))
        assert so_far.epsilon(_DELTA, 'best') <= shown[t - 1]


def test_composition_with_other_runs_counts_no_amplification():
    plan = _plan()
    event = plan.dp_event()
    assert event.noise_multiplier == pytest.approx(4 / plan.sensitivity)
    plain = accounting.epsilon_from_mu(1 / event.noise_multiplier, _DELTA, 'best')
    found = estimates.of_plan(plan, _DELTA)
    assert found.unamplified == pytest.approx(plain, rel=1e-6) and found.epsilon < plain
    # The norm of all rounds of the worst client, as without sampling.
    exact = plan.without_sampling(Participation(7, 3)).sensitivity
    assert exact <= plan.sensitivity <= exact * (1 + 1e-9)
    assert not plan.sensitivity_is_exact and plan.accountants == ('best',)


def test_estimates_are_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    monkeypatch.setattr(estimates, '_LONG', 0)
    first = estimates.of_plan(_plan(noise_multiplier=5.0), _DELTA)
    (path,) = tmp_path.iterdir()
    estimates._estimate.cache_clear()
    monkeypatch.setattr(monte_carlo, 'epsilon', None)
    assert estimates.of_plan(_plan(noise_multiplier=5.0), _DELTA) == first
    monkeypatch.undo()
    # A file that was changed is not believed.
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    monkeypatch.setattr(estimates, '_LONG', 0)
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
    kept = json.loads(path.read_text())
    kept['estimate']['epsilon'] = 0.001
    path.write_text(json.dumps(kept))
    estimates._estimate.cache_clear()
    assert estimates.of_plan(_plan(noise_multiplier=5.0), _DELTA) == first


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(groups=None), 'groups=None: '),
        (dict(population=20), 'population=20: must be about 9, 3 groups of clients_per_round=3'),
        (dict(mechanism=mechanisms.BinaryTree(7)), 'cannot be a tree with sampling=balls_in_bins'),
        (dict(noise='hardened'), 'must be default with sampling=balls_in_bins'),
        (dict(adjacency='replace_one'), 'adjacency=replace_one: '),
        (dict(participation=Participation(7, 4)), 'must be at most 3 with sampling=balls_in_bins'),
        (dict(participation=Participation(7, 3, 2)), 'must be the number of turns, 3'),
        (
            dict(sampling='random_allocation', participation=Participation(7, 2)),
            'must be 1 with sampling=random_allocation',
        ),
        (
            dict(sampling='random_allocation', participation=Participation(7, 1, 2)),
            'must be the number of turns, 3',
        ),
        (dict(cohort_cap=5), 'cohort_cap=5: must be None'),
    ],
)
def test_plans_that_the_theorem_does_not_cover_are_refused(changes, message):
    with pytest.raises(errors.ArgumentError, match=message):
        _plan(**changes)


def test_other_accountants_and_earlier_runs_are_refused():
    plan = _plan()
    with pytest.raises(errors.ArgumentError, match='must be one of best with sampling'):
        plan.epsilon(_DELTA, 'pld')
    with pytest.raises(errors.ArgumentError, match='must be empty with sampling=balls_in_bins'):
        dataclasses.replace(plan, earlier=(plan,))
    with pytest.raises(errors.ArgumentError, match='accountant=pld: must be best with sampling'):
        _calibrated(1.0, plan, accountant='pld')
    assert dataclasses.replace(plan, noise_multiplier=0.0).epsilon(_DELTA, 'best') == float('inf')


def _calibrated(epsilon, plan, accountant='best'):
    fields = {each.name: getattr(plan, each.name) for each in dataclasses.fields(plan)}
    del fields['noise_multiplier']
    return accounting.PrivacyPlan.calibrated(
        epsilon=epsilon, delta=_DELTA, accountant=accountant, **fields
    )


@pytest.mark.parametrize('target', [0.5, 3.0])
def test_the_noise_for_a_target_is_searched_with_other_samples(monkeypatch, target):
    seeds, epsilon = [], monte_carlo.epsilon

    def seen(*args, **options):
        seeds.append(options['seed'])
        return epsilon(*args, **options)

    monkeypatch.setattr(monte_carlo, 'epsilon', seen)
    estimates._estimate.cache_clear()
    plan = _calibrated(target, _plan())
    # The guarantee relies on one estimate, so that it fails no more often than that of given noise.
    assert 0.9 * target < plan.epsilon(_DELTA, 'best') <= target
    assert seeds.count(monte_carlo.SEED) == 1 and seeds[-1] == monte_carlo.SEED
    assert set(seeds[:-1]) == {monte_carlo.SEED + 1} and len(seeds) < 25
    certain = plan.sensitivity / calibration.mu_from_epsilon(target, _DELTA, 'analytic_gaussian')
    assert plan.noise_multiplier < 0.9 * certain
    # The exact epsilon, by an estimate of many samples, is below the target.
    mixed = estimates.mixtures(plan)
    assert epsilon(mixed, plan.noise_multiplier, _DELTA, samples=200_000).epsilon < target
    assert _calibrated(target, _plan()) == plan


def test_a_target_that_the_samples_do_not_show_is_met_without_amplification(monkeypatch):
    compute = estimates._estimate

    def of_other_samples(mixed, stddev, delta, *search):
        found = compute(mixed, stddev, delta, *search)
        return found if search else dataclasses.replace(found, epsilon=found.unamplified)

    monkeypatch.setattr(estimates, '_estimate', of_other_samples)
    plan = _calibrated(2.0, _plan())
    mu = plan.sensitivity / plan.noise_multiplier
    assert 1.999 < gaussian.epsilon_from_mu(mu, _DELTA, 'analytic_gaussian') <= 2


def test_an_estimated_guarantee_is_not_compared():
    found = two_reports.compare(_report(), _report(noise_multiplier=8.0))
    assert found.verdict == 'not_comparable'
    assert any('estimated by Monte Carlo' in each for each in found.obstacles)


@pytest.mark.parametrize('sampling', bins.SAMPLINGS)
def test_groups_of_clients_are_refused(sampling):
    with pytest.raises(errors.ArgumentError, match='group_size=2: must be 1 with sampling'):
        _plan(sampling=sampling, group_size=2)


@pytest.mark.parametrize('sampling', bins.SAMPLINGS)
def test_the_tradeoff_curve_counts_amplification_at_the_deltas(sampling):
    deltas = [0.05, _DELTA]
    plan = _plan(sampling=sampling, noise_multiplier=2.0)
    report = accounting.PrivacyReport.from_plan(plan, deltas, accountant='best').with_tradeoff()
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
    assert accounting.PrivacyReport.from_json(report.to_json()) == report
    if sampling == 'balls_in_bins':  # The advantage is the divergence at epsilon 0.
        matrix = plan.mechanism.strategy_matrix()
        patterns = [(1 / 3, (np.arange(7) % 3 == first).astype(float)) for first in range(3)]
        exact = sampling_oracles.curve_of_patterns(matrix, patterns, 2.0)
        assert exact(0.0) <= report.tradeoff.advantage
    assert report.tradeoff.points[1][1] < 0.7 * certain.points[1][1]
