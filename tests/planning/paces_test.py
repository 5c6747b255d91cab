"""How many rounds a timer covers where their times are not known, against direct counts."""

import bisect
import itertools

import numpy as np
import pytest

from dpfl.participation import RoundTimes
from dpfl.planning import DailyCounts, DailyPattern


def test_counts_of_days_hold_wherever_the_rounds_are():
    generator = np.random.default_rng(2)
    for _ in range(60):
        # The windows with the fewest rounds do not begin before the first day.
        counts = [9, *generator.integers(1, 4, size=3).tolist(), 9]
        hours = float(generator.choice([20, 24, 36, 48, 60, 72, 90]))
        bound = DailyCounts(tuple(counts)).fewest_rounds(hours)
        least = []
        for _ in range(30):
            spots = [np.sort(generator.random(count)) * 24 for count in counts]
            least.append(_within_days(spots, hours))
        # All rounds of each day at its beginning or its end: then the bound is reached.
        for which in itertools.product((0.0, 23.999), repeat=5):
            spots = [np.full(count, hour) for count, hour in zip(counts, which, strict=True)]
            least.append(_within_days(spots, hours))
        assert min(least) == bound


def _within_days(spots, hours):
    starts = np.concatenate([24 * day + each for day, each in enumerate(spots)])
    ordered = starts.tolist()
    begins = [x for x in (0.0, *ordered) if x + hours <= 24 * len(spots)]
    return min(
        bisect.bisect_right(ordered, x + hours) - bisect.bisect_right(ordered, x) for x in begins
    )


_NIGHTLY = (0.2,) * 6 + (1.0,) * 12 + (3.5,) * 6


@pytest.mark.parametrize('hours', [0.5, 6, 7.3, 24, 30.5, 48, 100])
@pytest.mark.parametrize('rates', [_NIGHTLY, (1.0,) * 24, (0.0,) * 23 + (1.0,)])
def test_the_slowest_window_of_a_pattern(hours, rates):
    # Rounds are opened whenever the expected number of them grows by one, from many phases.
    pattern = DailyPattern(7.0, rates)
    days = 7
    grid = np.arange(24 * days + 1)
    expected = np.append(0, np.cumsum(np.tile(rates, days))) / sum(rates) * 1440 / 7
    expected[1:] += 1e-12 * np.arange(24 * days)  # Increasing, for the inverse.
    counts = []
    for phase in np.linspace(0.001, 0.999, 97):
        starts = np.interp(np.arange(phase, expected[-1], 1), expected, grid)
        counts.append(RoundTimes.from_hours(starts).fewest_rounds(hours))
    found = pattern.fewest_rounds(hours)
    assert found <= min(counts) <= found + 1
    if hours == 24:
        assert found == 205  # A whole day has all rounds, wherever it begins.
    assert pattern.fewest_rounds(24 + hours) >= found + 205


def test_an_even_pattern_is_the_timer_over_the_minutes():
    for hours, minutes, rounds in ((24, 10.0, 144), (24, 4.6, 313), (1, 0.5, 120), (7.1, 60.0, 7)):
        assert DailyPattern(minutes, (1.0,) * 24).fewest_rounds(hours) == rounds


def test_a_pattern_by_hand():
    # 24 rounds a day: 12 in the first six hours, 12 in the others. Six slow hours have four.
    pattern = DailyPattern(60.0, (3.0,) * 6 + (1.0,) * 18)
    assert [pattern.fewest_rounds(h) for h in (6, 18, 19.5, 24)] == [4, 12, 15, 24]


def test_three_days_of_a_timer_need_two_whole_days():
    assert DailyCounts((3, 4)).fewest_rounds(95.9) == 7
