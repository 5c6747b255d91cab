"""How many rounds a timer covers, against direct counts."""

import itertools

import numpy as np
import pytest

from dpfl import Participation, errors
from dpfl.participation import RoundTimes
from tests.accounting import plans

_HOUR = 3_600_000_000


def _fewest(starts, length, end):
    """Least number of starts in (x, x + length] over all x within the times, by trying them."""
    edges = {x for s in starts for x in (s, s - length)}
    edges |= {x + d for x in edges for d in (-1, 1)} | {starts[0], end - length}
    counts = [
        sum(x < s <= x + length for s in starts)
        for x in edges
        if starts[0] <= x and x + length <= end
    ]
    return min(counts, default=None)


def test_every_window_is_counted():
    generator = np.random.default_rng(0)
    checked = 0
    for _ in range(300):
        count = int(generator.integers(2, 12))
        starts = np.sort(generator.integers(0, 40, size=count))
        end = int(starts[-1] + generator.integers(0, 6))
        length = int(generator.integers(1, 30))
        times = RoundTimes(starts * _HOUR, end * _HOUR)
        expected = _fewest((starts * 4).tolist(), 4 * length, 4 * end)  # Also between hours.
        if expected is None:
            with pytest.raises(errors.ArgumentError, match='the hours that the times span'):
                times.fewest_rounds(length)
        else:
            checked += 1
            assert times.fewest_rounds(length) == expected
    assert checked > 200


def _longest(possible, count, rounds):
    """Most rounds of a client within consecutive `rounds`, over every set of them."""
    return max(
        size
        for size in range(1, rounds + 1)
        for chosen in itertools.combinations(range(count), size)
        if chosen[-1] - chosen[0] < rounds and possible.issuperset(itertools.pairwise(chosen))
    )


def test_a_schema_of_times_is_that_of_all_sets_of_rounds():
    generator = np.random.default_rng(5)
    seen, ensured = set(), 0
    for trial in range(200):
        count = int(generator.integers(2, 9))
        gaps = generator.integers(0, 9, size=count)
        starts = np.append(0, np.cumsum(gaps[:-1]))
        # The next round begins when one ends. Where the end is not known, the last round is as
        # long as the longest one.
        is_known = trial % 3 > 0 and gaps[-1] > 0
        over = starts[-1] + (gaps[-1] if is_known else np.diff(starts).max())
        ends = [*starts[1:].tolist(), int(over)]
        length = int(generator.integers(1, 25))
        times = RoundTimes(starts * _HOUR, int(over) * _HOUR if is_known else None)
        # A client that reported after the start of i checks in before the end of j.
        pairs = itertools.combinations(range(count), 2)
        possible = {(i, j) for i, j in pairs if ends[j] > starts[i] + length}
        for rounds in range(1, count + 1):
            expected = _longest(possible, count, rounds)
            assert times.most_participations(length, rounds) == expected
            seen.add(expected)
        closest = min((j - i for i, j in possible), default=None)
        assert times.participation(length) == Participation(count, closest or count, expected)
        if closest is not None and is_known:
            ensured += 1
            assert times.fewest_rounds(length) <= closest
    assert seen >= {1, 2, 3, 4} and ensured > 50


def test_one_cohort_more_than_may_be_away_is_enough():
    generator = np.random.default_rng(4)
    for _ in range(200):
        starts = np.sort(generator.integers(0, 60, size=generator.integers(2, 15)))
        hours = float(generator.choice([0.5, 1, 3, 7, 20]))
        over = starts[1:] + hours
        away = [sum(over[i] > start for i in range(j)) for j, start in enumerate(starts)]
        most = RoundTimes.from_hours(starts.astype(float)).most_away(hours)
        assert most == max(away)
        # Clients that report last, in as many groups: a group is always at hand, one less is not.
        for groups, is_enough in ((most + 1, True), (most, most == 0)):
            back = [-1.0] * groups
            waits = False
            for j, start in enumerate(starts):
                group = min(range(groups), key=back.__getitem__, default=None)
                waits |= group is None or back[group] > start
                if not waits and j + 1 < len(starts):
                    back[group] = over[j]
            assert waits != is_enough or groups == 0


def test_the_participations_of_the_production_run():
    # [Xu23-accounting]: 2000 rounds, a timer of 24 hours, MinS 313, MaxP 6, rho 0.81. The rounds of
    # one day are slower than those of the others.
    gaps = np.full(1999, 24 / 345.8)
    gaps[700:1014] = 24 / 314.5
    times = RoundTimes.from_hours(np.append(0, np.cumsum(gaps)))
    assert round(times.hours, 1) == 140.9
    assert times.fewest_rounds(24) == 314
    assert times.participation(24) == Participation(2000, 314, 6)
    assert Participation(2000, 314).count == 7
    schemas = (times.participation(24), Participation(2000, 314))
    rho = [plans.production(participation=schema).rho for schema in schemas]
    assert np.round(rho, 4).tolist() == [0.8061, 0.8878]


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda: RoundTimes(np.array([1.0, 2.0])), 'starts: must be int64'),
        (lambda: RoundTimes(np.array([3, 2])), 'starts: must not decrease, as after round 0'),
        (lambda: RoundTimes(np.array([3, 4]), 3), 'end=3: must be an integer >= 4'),
        (lambda: RoundTimes(np.array([-(2**63), 0])), 'starts: must be within 23058430'),
        (lambda: RoundTimes.from_hours(np.array([1.0, 1e80])), 'starts: must be within 23058430'),
        (lambda: RoundTimes.from_hours(np.array([np.nan, 1.0])), 'starts=.*: must be .*finite'),
        (lambda: RoundTimes.from_hours(np.array([0.0, 1.0]), np.nan), 'end=nan: must be a finite'),
        (lambda: RoundTimes(np.array([3, 4])).most_participations(1, 3), 'rounds=3: must be an'),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(errors.ArgumentError, match=message):
        make()
