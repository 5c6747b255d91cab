"""Looks for cohorts that break the participation schema that a guarantee relies on.

  python -m tests.attacks.participation [--cases=300] [--seed=0]

Draws random schemas, populations with timers and samplers, and checks the rounds of every client
against the schema by brute force. No client may be in a round twice, take part again too soon, or
take part too often. Cohorts must be the same in any order, and from a new sampler, as after a
crash. A sampler may also refuse a schema, in one line. Exits with status 1 if a schema is broken.
"""

import argparse
import collections
import itertools
import sys

import numpy as np

from dpfl import Participation, accounting
from dpfl.simulation import population, sampling


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--cases', type=int, default=300, help='samplers of each kind')
    parser.add_argument('--seed', type=int, default=0, help='seed of the cases')
    args = parser.parse_args()
    rng, found = np.random.default_rng(args.seed), []
    for name, make in SAMPLERS.items():
        outcomes = collections.Counter(outcome(make, rng) for _ in range(args.cases))
        print(f'{name:<16}' + ', '.join(f'{kind}: {n}' for kind, n in sorted(outcomes.items())))
        found += [name] * bool(set(outcomes) - {'kept', 'refused'})
    print(f'found: {", ".join(found)}' if found else 'nothing found')
    sys.exit(bool(found))


def outcome(make, rng) -> str:
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


SAMPLERS = {
    'min_separation': _min_separation,
    'timer': _timer,
    'fixed size': _of_random_sets(accounting.WithoutReplacement),
    'Poisson': _of_random_sets(accounting.Poisson),
}


if __name__ == '__main__':
    main()
