"""Plans with hardened noise: sensitivity with rounding, distance to the Gaussian, and words."""

import dataclasses
import math
import re

import dp_accounting
import mpmath
import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.accounting import gaussian, hardened, part
from tests.accounting import plans

_FIELDS = dict(
    mechanism=mechanisms.Blt(20, [0.9, 0.4], [0.2, 0.3]),
    participation=Participation(20, 5),
    clip_norm=1.0,
    clients_per_round=10,
    noise_multiplier=4.0,
)


def _plans(**changes):
    fields = {**_FIELDS, **changes}
    return accounting.PrivacyPlan(**fields), accounting.PrivacyPlan(**fields, noise='hardened')


@pytest.mark.parametrize(
    'mechanism',
    [
        mechanisms.Identity(20),
        mechanisms.BinaryTree(20),
        mechanisms.HonakerTree(20),
        _FIELDS['mechanism'],
        mechanisms.BandedToeplitz.fichtenberger(20, 4),
        mechanisms.BandedInverse.square_root(20, 4),
        mechanisms.Restarted.every(_FIELDS['mechanism'], 6, 7),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_rounding_costs_something_and_little(mechanism):
    plain, plan = _plans(mechanism=mechanism)
    least = plain.sensitivity
    if isinstance(mechanism, mechanisms.Identity):
        assert plan.sensitivity == least
    else:
        assert least < plan.sensitivity < least * (1 + 1e-4)
        # Coefficients are rounded whatever the noise is.
        silent = dataclasses.replace(plan, noise_multiplier=0)
        assert silent.sensitivity >= least * (1 + 2**-30)
    assert not plan.sensitivity_is_exact and plan.rho >= plain.rho
    for accountant in ('rdp', 'analytic_gaussian', 'moments'):
        for delta in (1e-3, 1e-100):
            more = plan.epsilon(delta, accountant) / plain.epsilon(delta, accountant)
            assert 1 < more < 1 + 1e-4


def _small_slack(monkeypatch, sigma, tail, reach):
    """The slack of one coordinate in one round at a sigma where the difference can be seen."""
    monkeypatch.setattr(hardened, 'STDDEV', sigma)
    monkeypatch.setattr(hardened, 'MOST_COORDINATES', 1)
    monkeypatch.setattr(hardened.stream, 'TAIL', tail)
    return hardened.slack(plans.independent(1), reach)


def _rho(k, sigma):
    return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sigma) ** 2))


def test_the_slack_bounds_one_coordinate_by_exact_sums(monkeypatch):
    """N_Z against the rounded Gaussian, for both neighbours."""
    with mpmath.workdps(40):
        for sigma in (2, 4):
            s = mpmath.mpf(sigma)
            total = mpmath.fsum(_rho(k, s) for k in range(-20 * sigma, 20 * sigma))
            for reach in (2, 8):
                worst = 0
                for k in range(reach * sigma + 1):
                    discrete = _rho(k, s) / total
                    rounded = mpmath.quad(
                        lambda x, s=s: mpmath.npdf(x, 0, s), [k - 0.5, k, k + 0.5]
                    )
                    worst = max(worst, abs(mpmath.log(discrete / rounded)))
                bound = _small_slack(monkeypatch, sigma, reach, 0.0)
                assert 2 * worst <= bound < 4 * worst  # Of no other order.


def test_delta_curves_of_one_release_by_exact_sums(monkeypatch):
    """The theorem in one coordinate: hockey-stick divergences of N_Z against mu and the slack."""
    sigma, shift, reach = 30, 25, 10
    tau = _small_slack(monkeypatch, sigma, reach, shift / sigma)
    with mpmath.workdps(40):
        ks = range(-reach * sigma, reach * sigma + shift + 1)
        pairs = [(_rho(k, sigma), _rho(k - shift, sigma)) for k in ks]
        total = mpmath.fsum(a for a, _ in pairs)

        def divergence(epsilon):
            factor = mpmath.exp(epsilon)
            return mpmath.fsum(max(b - factor * a, 0) for a, b in pairs) / total

        for delta in (1e-2, 1e-6):
            gaussian = accounting.epsilon_from_mu(
                shift / sigma, delta * math.exp(-tau) * (1 - 1e-9), 'analytic_gaussian'
            )
            assert divergence(gaussian + tau) <= delta
            # Without the slack it need not hold; with an epsilon a little smaller it does not.
            assert divergence(gaussian * 0.99 - tau) > delta


def test_slack_grows_with_rounds_and_is_in_epsilon():
    _, plan = _plans()
    _, longer = _plans(
        mechanism=_FIELDS['mechanism'].with_rounds(40), participation=Participation(40, 5)
    )
    assert 0 < plan.slack < longer.slack < 1e-8
    assert _plans()[0].slack == 0
    exact = accounting.epsilon_from_mu(plan.mu, 1e-6, 'analytic_gaussian')
    assert plan.epsilon(1e-6, 'analytic_gaussian') >= exact + plan.slack


def test_sampled_plans_have_the_slack_too():
    fields = dict(mechanism=mechanisms.Identity(20), participation=Participation(20))
    plain, plan = _plans(sampling=accounting.Poisson(population=1000), **fields)
    assert plan.sensitivity == plain.sensitivity and plan.slack > 0
    least = plain.epsilon(1e-6, 'rdp')
    assert least < plan.epsilon(1e-6, 'rdp') <= least * (1 + 1e-6)


def test_what_has_no_proof_has_no_guarantee():
    _, plan = _plans(noise_multiplier=0.01)
    assert plan.sensitivity == math.inf and plan.epsilon(1e-6) == math.inf
    _, plan = _plans(noise_multiplier=0.0)
    assert plan.mu == math.inf and plan.epsilon(1e-6) == math.inf
    growing = mechanisms.BandedToeplitz(20, [1.0, 4.0])
    _, plan = _plans(mechanism=growing)
    assert plan.sensitivity == math.inf
    _, plan = _plans()
    assert plan.epsilon(1e-290) == math.inf
    plans.report(plan, [1e-290]).to_json()


def test_a_report_has_no_guarantee_beyond_the_proof():
    _, plan = _plans()
    log = [[t % 5] * 2 for t in range(20)]
    assert plans.report(plan, [1e-6], log).guarantee.mu == pytest.approx(2 * plan.mu)
    report = plans.report(plan, [1e-6], [[1] * 40, *log[1:]])
    assert 40 * plan.mu > 24 and report.guarantee.epsilons == (None,) and report.slack == math.inf
    assert report.guarantee.mu is None and report.guarantee.rho is None
    assert report.dp_event() == dp_accounting.NonPrivateDpEvent()
    independent, hardened_plan = _plans(mechanism=mechanisms.Identity(20))
    for each in (independent, hardened_plan):  # Independent noise needs no such limit.
        assert plans.report(each, [1e-6], [[1] * 40, *log[1:]]).guarantee.epsilons[0] is not None
    _, plan = _plans(noise_multiplier=0.01)
    with pytest.raises(errors.ArgumentError, match='noise_multiplier=0.01: must be larger'):
        plans.report(plan, [1e-6])


def test_a_report_says_so_and_comes_back():
    plain, plan = _plans()
    log = [[t % 5, 10 + t % 5] for t in range(20)]
    report, other = (plans.report(each, [1e-8], log) for each in (plan, plain))
    assert report.basis == 'plan'
    assert report.pattern_guarantee.epsilons[0] > other.pattern_guarantee.epsilons[0]
    assert plans.read(report) == report
    page = report.render()
    assert 'Hardened noise' in page and 'timing' in page and 'Philox' not in page
    assert plan.slack <= float(re.findall(r'is within (\S+) of the Gaussian', page)[0])
    assert 'Hardened noise' not in other.render() and 'Philox' in other.render()
    assert 'no guarantee' in plans.report(_plans(noise_multiplier=0.0)[1]).render()


def test_an_update_of_the_largest_model_is_counted():
    """The shift of the whole model by rounding: sqrt(d n) units at least, of `STDDEV`."""
    plain, plan = _plans()
    added = (plan.sensitivity - plain.sensitivity) / plan.noise_multiplier
    assert added >= math.sqrt(hardened.MOST_COORDINATES * 19) / hardened.STDDEV
    assert dataclasses.replace(plan, noise='default') == plain


def test_slack_moves_delta_and_epsilon():
    asked = []

    def curve(delta):
        asked.append(delta)
        return gaussian.Bound(1.0, 'rdp')

    assert part.with_slack(curve, 1e-6, 0.0) == (1.0, 'rdp')
    assert part.with_slack(curve, 1e-6, 0.25) == (1.25, 'rdp')
    assert asked[0] == 1e-6
    assert 1e-6 * math.exp(-0.25) * (1 - 1e-11) < asked[1] < 1e-6 * math.exp(-0.25)
    assert part.with_slack(curve, 1e-6, math.inf) == (math.inf, 'rdp')
