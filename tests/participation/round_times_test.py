"""How many rounds a timer covers, against direct counts."""

import itertools
from itertools import pairwise

import numpy as np
import pytest

from dpfl import Participation, errors
from dpfl.participation import RoundTimes
from dpfl.planning import DailyCounts
from dpfl.simulation import population
from dpfl.simulation.population import Population
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


def _closest(starts, ends, length):
    """Least j - i such that a client that reported in round i can report in round j."""
    last = len(starts) - 1
    return min(
        (
            j - i
            for i, j in itertools.combinations(range(last + 1), 2)
            # It reports after the start of i, and checks in before the end of j.
            if ends[j] > starts[i] + length
        ),
        default=None,
    )


def test_a_timer_ensures_the_number_and_no_more():
    generator = np.random.default_rng(1)
    for _ in range(200):
        bounds = np.cumsum(generator.integers(1, 9, size=12))
        starts, ends = bounds[:-1], bounds[1:]  # The next round begins when one ends.
        length = int(generator.integers(1, 25))
        found = RoundTimes(starts * _HOUR, int(ends[-1]) * _HOUR).fewest_rounds(length)
        closest = _closest(starts.tolist(), ends.tolist(), length)
        # Where a window ends with the last round, no round is left in which to take part.
        assert closest is None or found <= closest <= found + 1
        whole = RoundTimes(np.append(starts, ends[-1]) * _HOUR).fewest_rounds(length)
        assert closest is None or whole <= closest


def _longest(starts, ends, length, rounds):
    """Most rounds of a client within consecutive `rounds`, over every set of them."""
    possible = {
        (i, j)
        for i, j in itertools.combinations(range(len(starts)), 2)
        if ends[j] > starts[i] + length
    }
    return max(
        size
        for size in range(1, rounds + 1)
        for chosen in itertools.combinations(range(len(starts)), size)
        if chosen[-1] - chosen[0] < rounds and all(pair in possible for pair in pairwise(chosen))
    )


def test_the_longest_chain_of_rounds_is_that_of_all_sets_of_rounds():
    generator = np.random.default_rng(5)
    seen = set()
    for trial in range(150):
        count = int(generator.integers(2, 9))
        gaps = generator.integers(0, 9, size=count)
        starts = np.append(0, np.cumsum(gaps[:-1]))
        # Where the end is not known, the last round is as long as the longest one.
        is_known = trial % 3 > 0 and gaps[-1] > 0
        over = starts[-1] + (gaps[-1] if is_known else np.diff(starts).max())
        ends = [*starts[1:].tolist(), int(over)]
        length = int(generator.integers(1, 25))
        times = RoundTimes(starts * _HOUR, int(over) * _HOUR if is_known else None)
        for rounds in range(1, count + 1):
            expected = _longest(starts.tolist(), ends, length, rounds)
            assert times.most_participations(length, rounds) == expected
            seen.add(expected)
        schema = times.participation(length)
        assert schema.rounds == count and schema.max_participations == expected
        assert schema.min_separation == (_closest(starts, ends, length) or count)
    assert seen >= {1, 2, 3, 4}


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


@pytest.fixture(scope='module', name='simulated')
def _simulated():
    devices = Population(population=3000, clients_per_round=100, timer_hours=20.0)
    return population.simulate(devices, 90)


def test_a_simulated_population_keeps_what_the_times_of_its_rounds_say(simulated):
    fewest = simulated.times.fewest_rounds(20)
    observed = simulated.log.observed().min_separation
    assert 1 < fewest <= observed
    by_timer = simulated.times.participation(20)
    assert 1 < by_timer.min_separation <= observed
    most = simulated.log.observed().max_participations
    assert most <= by_timer.max_participations < Participation(90, fewest).count
    # Counts of calendar days are no bound: a window over midnight may have fewer rounds.
    by_day = np.bincount((simulated.start_hours // 24).astype(int))[:-1]
    assert simulated.times.fewest_rounds(24) <= by_day.min()
    assert (
        1
        <= DailyCounts(tuple(by_day.tolist())).fewest_rounds(48)
        <= (simulated.times.fewest_rounds(48))
    )


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda: RoundTimes(np.array([1.0, 2.0])), 'starts: must be int64'),
        (lambda: RoundTimes(np.array([3, 2])), 'starts: must not decrease, as after round 0'),
        (lambda: RoundTimes(np.array([3, 4]), 3), 'end=3: must be an integer >= 4'),
        (lambda: RoundTimes(np.array([3, 4])).most_participations(1, 3), 'rounds=3: must be an'),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(errors.ArgumentError, match=message):
        make()
