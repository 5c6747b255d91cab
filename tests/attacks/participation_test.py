"""Random samplers keep the participation schema that a guarantee relies on, or refuse it.

No client may be in a round twice, take part again too soon, or take part too often. Cohorts must be
the same in any order, and from a new sampler, as after a crash.
"""

import collections
import itertools

import numpy as np
import pytest

from dpfl import Participation, accounting
from dpfl.simulation import population, sampling


def _outcome(make, rng) -> str:
    """What became of a random sampler: 'kept', 'refused', or how it breaks its schema."""
    arguments = make(rng)
    try:
        sampler, again = (arguments[0](*arguments[1:]) for _ in range(2))
    except ValueError:
        return 'refused'
    schema = sampler.participation
    cohorts = [sampler.cohort(t) for t in range(schema.rounds)]
    for t in rng.permutation(schema.rounds)[:5]:
        if not np.array_equal(again.cohort(int(t)), cohorts[t]):
            return 'another cohort after a crash'
    rounds = collections.defaultdict(list)
    for t, cohort in enumerate(cohorts):
        if np.unique(cohort).size != cohort.size:
            return 'a client twice in a round'
        for client in cohort.tolist():
            rounds[client].append(t)
    for taken in rounds.values():
        if len(taken) > schema.count:
            return 'too many participations'
        if any(j - i < schema.min_separation for i, j in itertools.pairwise(taken)):
            return 'rounds too close to each other'
    return 'kept'


def _min_separation(rng):
    schema = Participation(
        int(rng.integers(1, 60)), int(rng.integers(1, 20)), int(rng.integers(1, 8))
    )
    clients = int(rng.integers(1, 12))
    return (
        sampling.MinSeparationSampler,
        schema,
        int(rng.integers(clients, 25 * clients)),
        clients,
        int(rng.integers(100)),
    )


def _timer(rng):
    clients = int(rng.integers(1, 12))
    devices = population.Population(
        population=int(rng.integers(40 * clients, 400 * clients)),
        clients_per_round=clients,
        timer_hours=float(rng.choice([0.0, 0.5, 6.0, 72.0])),
        over_selection=float(rng.uniform(1, 3)),
        drop_out=float(rng.uniform(0, 0.5)),
        client_spread=float(rng.uniform(0, 2)),
        server_minutes=float(rng.uniform(0, 30)),
        seed=int(rng.integers(100)),
    )
    schema = Participation(int(rng.integers(1, 60)), int(rng.integers(1, 12)))
    return sampling.TimerSampler, schema, devices


def _of_random_sets(kind):
    def make(rng):
        part = kind(population=int(rng.integers(1, 200)))
        clients = int(rng.integers(1, part.population + 1))
        return sampling.RandomSampler, part, int(rng.integers(1, 40)), clients

    return make


_SAMPLERS = {
    'min_separation': _min_separation,
    'timer': _timer,
    'fixed size': _of_random_sets(accounting.WithoutReplacement),
    'Poisson': _of_random_sets(accounting.Poisson),
}


@pytest.mark.parametrize('name', _SAMPLERS)
def test_samplers_keep_their_schema(name):
    rng = np.random.default_rng(0)
    outcomes = {_outcome(_SAMPLERS[name], rng) for _ in range(20)}
    assert 'kept' in outcomes and outcomes <= {'kept', 'refused'}


@pytest.mark.parametrize(
    'cohorts, broken',
    [
        ([[1, 1]], 'a client twice in a round'),
        ([[1], [2], [1], [3]], 'rounds too close to each other'),
        ([[1], [2], [3], [1], [2], [3], [1]], 'too many participations'),
    ],
)
def test_a_sampler_that_breaks_its_schema_is_found(cohorts, broken):
    class Sampler:
        participation = Participation(len(cohorts), 3, 2)

        def cohort(self, t):
            return np.array(cohorts[t])

    assert _outcome(lambda rng: (Sampler,), np.random.default_rng(0)) == broken
