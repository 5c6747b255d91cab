"""Fits of power: known curves are recovered, intervals cover, hopeless cases say so."""

import numpy as np
import pytest
from scipy import special, stats

from experiments.studies.shared import power
from experiments.studies.shared.power import Trials

pytestmark = pytest.mark.standard

_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


def _trials(rng, at, slope, false_alarms, count):
    """Trials of a curve with power 0.8 (without false alarms) at the share `at`."""
    rises = special.expit(np.log(4) + slope * np.log(np.array(_SHARES) / at))
    rates = false_alarms + (1 - false_alarms) * rises
    found = rng.binomial(count, rates)
    clean = Trials(0.0, int(rng.binomial(count, false_alarms)), count)
    pairs = zip(_SHARES, found.tolist(), strict=True)
    return [clean, *(Trials(share, each, count) for share, each in pairs)]


def test_exact_intervals_are_those_of_the_binomial_tails():
    assert Trials(0.1, 0, 10).interval() == pytest.approx((0, 1 - 0.025**0.1))
    assert Trials(0.1, 10, 10).interval() == pytest.approx((0.025**0.1, 1))
    low, high = Trials(0.1, 3, 12).interval()
    assert stats.binom.sf(2, 12, low) == pytest.approx(0.025)
    assert stats.binom.cdf(3, 12, high) == pytest.approx(0.025)


def test_a_known_curve_is_recovered_from_many_trials():
    found = power.fit(_trials(np.random.default_rng(1), 0.08, 3.0, 0.1, 20_000))
    assert found.share == pytest.approx(0.08, rel=0.05)
    assert found.slope == pytest.approx(3, rel=0.1)
    assert found.false_alarms == pytest.approx(0.1, rel=0.15)
    assert found.low <= 0.08 * 1.05 and found.high >= 0.08 * 0.95
    # Power at that share: 0.8 of what is not a false alarm.
    expected = found.false_alarms + (1 - found.false_alarms) * 0.8
    assert found.curve(np.array([found.reference]))[0] == pytest.approx(expected)
    curve = found.curve(np.array(_SHARES))
    assert (np.diff(curve) > 0).all()


def test_intervals_cover_the_true_share():
    """95 % intervals of 60 fits with 8 trials each; below 50 with probability < 1e-3 if exact."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(60):
        found = power.fit(_trials(rng, 0.07, 2.5, 0.02, 8))
        covered += (found.low or 0) <= 0.07 <= (found.high or 1)
    assert covered >= 50


def test_a_step_lies_between_the_shares_that_tell():
    step = [
        Trials(0.0, 0, 10),
        Trials(0.01, 0, 10),
        Trials(0.1, 10, 10),
        Trials(1.0, 10, 10),
    ]
    found = power.fit(step)
    assert 0.01 < found.share < 0.1 and found.false_alarms == 0
    assert 0.01 < found.low < found.share < found.high < 0.2
    fewer = power.fit([Trials(each.share, each.found // 5, 2) for each in step])
    assert fewer.low < found.low and fewer.high > found.high


def test_what_is_never_or_always_found_has_no_share():
    never = power.fit([Trials(0.0, 0, 5), *(Trials(share, 0, 5) for share in _SHARES)])
    assert never.share is None and never.high is None and never.low > 0.2
    always = power.fit([Trials(0.0, 0, 5), *(Trials(share, 5, 5) for share in _SHARES)])
    assert always.share is None and always.low is None and always.high < 0.05
    # Alarms at every share, also without the fault, are false alarms and not power.
    alarms = power.fit([Trials(0.0, 12, 20), *(Trials(share, 12, 20) for share in _SHARES)])
    assert alarms.share is None and alarms.false_alarms == pytest.approx(0.6, abs=0.05)
