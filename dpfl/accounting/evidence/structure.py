"""What the sampling of a plan can never produce, whatever the chance."""

import numpy as np

from dpfl.accounting.evidence.log_test import LogTest, Statistic
from dpfl.participation import ParticipationLog

POPULATION = Statistic('population', 'population', '{} clients took part; the population is {}.')
TURNS = Statistic(
    'turns',
    'turns',
    'Client {} took part in rounds {} and {}, the turns of two of the {} groups.',
)
GROUP_SIZE = Statistic(
    'group_size',
    'group size',
    '{} clients took part in the turns of group {}; a group has at most {}.',
)


def without_repeats(log: ParticipationLog) -> ParticipationLog:
    """The log with every client at most once in a round, as all samplings draw cohorts."""
    if log.max_per_round == 1:
        return log
    return ParticipationLog(np.unique(log.cohort(t)) for t in range(log.rounds))


def population(clients: int, population: int) -> list[LogTest]:
    """Finds fault with more clients than the population has."""
    if clients <= population:
        return []
    return [POPULATION.test(0.0, clients, population)]


def turns(log: ParticipationLog, groups: int) -> list[LogTest]:
    """Finds fault with a client in the turns of two groups (or bins)."""
    by_client = log.by_client()
    of_group = by_client.rounds % groups
    others = np.flatnonzero(
        of_group != np.repeat(of_group[by_client.offsets[:-1]], by_client.counts)
    )
    if not others.size:
        return []
    client = np.searchsorted(by_client.offsets, others[0], side='right') - 1
    return [
        TURNS.test(
            0.0,
            by_client.clients[client],
            by_client.rounds[by_client.offsets[client]],
            by_client.rounds[others[0]],
            groups,
        )
    ]


def group_sizes(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Finds fault with more clients in the turns of one group than an equal group has."""
    by_client = log.by_client()
    clients = np.bincount(by_client.rounds[by_client.offsets[:-1]] % groups, minlength=groups)
    largest = -(-population // groups)
    if clients.max() <= largest:
        return []
    return [GROUP_SIZE.test(0.0, clients.max(), clients.argmax(), largest)]
