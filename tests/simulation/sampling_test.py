import numpy as np
import pytest

from dpfl import Participation, ParticipationLog
from dpfl.simulation import sampling


@pytest.mark.parametrize('schema, population, clients', [
    (Participation(30, 30, 1), 300, 10),
    (Participation(50, 7), 71, 10),
    (Participation(50, 1), 10, 10),
    (Participation(40, 9, 5), 100, 11),
    (Participation(3, 100), 30, 10),
    (Participation(200, 33, 7), 1000, 30),
])
def test_the_schema_holds_over_the_whole_run(schema, population, clients):
    sampler = sampling.MinSeparationSampler(schema, population, clients, seed=3)
    log = ParticipationLog(sampler.cohort(t) for t in range(schema.rounds))
    seen = {}
    for t in range(schema.rounds):
        for client in log.cohort(t):
            seen.setdefault(int(client), []).append(t)
    assert all(schema.admits(rounds) for rounds in seen.values())
    assert (log.cohort_sizes == clients).all()
    assert set(seen) <= set(range(population))


def test_cohorts_are_a_pure_function_of_seed_and_round():
    schema = Participation(20, 5)
    first, second = (sampling.MinSeparationSampler(schema, 100, 7, seed=1) for _ in range(2))
    for t in (13, 2, 19, 2):
        np.testing.assert_array_equal(first.cohort(t), second.cohort(t))
    other = sampling.MinSeparationSampler(schema, 100, 7, seed=2)
    assert any((first.cohort(t) != other.cohort(t)).any() for t in range(20))


def test_everyone_has_a_turn_before_anyone_has_two():
    sampler = sampling.MinSeparationSampler(Participation(40, 10), 105, 10, seed=0)
    firsts = np.concatenate([sampler.cohort(t) for t in range(10)])
    assert np.unique(firsts).size == 100


@pytest.mark.parametrize('schema, population, clients, message', [
    (Participation(30, 11), 100, 10, 'population=100: must be at least 110'),
    (Participation(30, 1, 2), 100, 10, 'population=100: must be at least 150'),
    (Participation(30), 5, 10, 'population=5: must be an integer >= 10'),
    (Participation(30), 5, 0, 'clients_per_round=0: must be an integer >= 1'),
])
def test_a_population_that_cannot_keep_the_schema_is_refused(schema, population, clients, message):
    with pytest.raises(ValueError, match=message):
        sampling.MinSeparationSampler(schema, population, clients)


@pytest.mark.parametrize('t', [-1, 30])
def test_rounds_outside_the_run_are_refused(t):
    with pytest.raises(ValueError, match=f'round={t}: must be'):
        sampling.MinSeparationSampler(Participation(30), 100, 10).cohort(t)
