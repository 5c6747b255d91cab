import itertools

import numpy as np
import pytest

from dpfl import Participation, ParticipationLog
from tests import oracles


def test_count_is_the_longest_admitted_pattern():
    for rounds in range(1, 9):
        for schema in oracles.small_schemas(rounds) + [
            Participation(rounds, b) for b in range(1, rounds + 3)
        ]:
            assert schema.count == max(map(len, oracles.patterns(schema)))


def test_admits_is_the_definition():
    schema = Participation(7, 3, 2)
    admitted = {p for n in range(1, 8) for p in itertools.combinations(range(7), n)
                if schema.admits(p)}
    assert admitted == set(oracles.patterns(schema))
    assert schema.admits([])
    assert not schema.admits([-1])
    assert not schema.admits([7])
    assert not schema.admits([2, 2])


def test_rounds_between_is_one_less_than_the_separation():
    assert Participation.from_rounds_between(2000, 313, 6) == Participation(2000, 314, 6)


@pytest.mark.parametrize('fields, message', [
    (dict(rounds=0), 'rounds=0: must be an integer >= 1'),
    (dict(rounds=2.0), 'rounds=2.0: must be'),
    (dict(rounds=True), 'rounds=True: must be'),
    (dict(rounds=float('nan')), 'rounds=nan: must be'),
    (dict(rounds=5, min_separation=0), 'min_separation=0: must be an integer >= 1'),
    (dict(rounds=5, max_participations=0), 'max_participations=0: must be an integer >= 1'),
])
def test_bad_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Participation(**fields)


def test_log_observes_the_tightest_schema():
    log = ParticipationLog([[1, 2], [3], [], [2, 3], [1]])
    assert log.observed() == Participation(5, min_separation=2, max_participations=2)
    assert log.cohort_sizes.tolist() == [2, 1, 0, 2, 1]


def test_log_observation_equals_a_dictionary_count():
    rng = np.random.default_rng(0)
    cohorts = [rng.choice(40, size=rng.integers(0, 9), replace=False) for _ in range(60)]
    seen = {}
    for t, cohort in enumerate(cohorts):
        for client in cohort:
            seen.setdefault(int(client), []).append(t)
    gaps = [j - i for rounds in seen.values() for i, j in itertools.pairwise(rounds)]
    observed = ParticipationLog(cohorts).observed()
    assert observed.min_separation == min(gaps)
    assert observed.max_participations == max(map(len, seen.values()))
    assert all(observed.admits(rounds) for rounds in seen.values())


def test_log_without_repeats_has_one_participation():
    assert ParticipationLog([[1], [2], [3]]).observed() == Participation(3, 3, 1)


def test_separation_across_an_epoch_boundary_is_seen():
    # Reshuffling each epoch lets a client close one epoch and open the next.
    assert ParticipationLog([[0], [1], [1], [0]]).observed().min_separation == 1


def test_log_refuses_a_client_listed_twice():
    with pytest.raises(ValueError, match='round 1: a client is listed twice'):
        ParticipationLog([[4], [7, 3, 7]])


@pytest.mark.parametrize('cohort', [[-1], [0.5], [[1, 2]], ['a']])
def test_log_refuses_what_is_no_list_of_clients(cohort):
    with pytest.raises(ValueError, match='cohort has'):
        ParticipationLog([cohort])


def test_log_round_trip(tmp_path):
    for log in (ParticipationLog(), ParticipationLog([[]]), ParticipationLog([[5, 1], [], [2]])):
        log.save(tmp_path / 'log.npz')
        assert ParticipationLog.load(tmp_path / 'log.npz') == log


def test_damaged_log_is_refused(tmp_path):
    path = tmp_path / 'log.npz'
    ParticipationLog([[1, 2, 3]] * 50).save(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match='not a participation log'):
        ParticipationLog.load(path)
    with pytest.raises(ValueError, match='not a participation log'):
        ParticipationLog.load(tmp_path / 'absent.npz')
