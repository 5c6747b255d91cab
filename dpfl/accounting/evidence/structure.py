"""What the sampling of a plan can never produce, whatever the chance."""

import numpy as np

from dpfl.accounting.evidence.log_test import LogTest
from dpfl.participation import ParticipationLog


def without_repeats(log: ParticipationLog) -> ParticipationLog:
    """The log with every client at most once in a round, as all samplings draw cohorts."""
    if log.max_per_round == 1:
        return log
    return ParticipationLog(np.unique(log.cohort(t)) for t in range(log.rounds))


def impossible(name: str, words: str) -> LogTest:
    """The result for a log that the sampling cannot produce."""
    return LogTest(name, 0.0, words)


def population(log: ParticipationLog, population: int) -> list[LogTest]:
    """Finds fault with more clients than the population has."""
    clients = log.by_client().clients.size
    if clients <= population:
        return []
    words = f'{clients} clients took part; the population is {population}.'
    return [impossible('population', words)]


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
    words = (
        f'Client {by_client.clients[client]} took part in rounds '
        f'{by_client.rounds[by_client.offsets[client]]} and {by_client.rounds[others[0]]}, '
        f'the turns of two of the {groups} groups.'
    )
    return [impossible('turns', words)]


def group_sizes(log: ParticipationLog, population: int, groups: int) -> list[LogTest]:
    """Finds fault with more clients in the turns of one group than an equal group has."""
    by_client = log.by_client()
    clients = np.bincount(by_client.rounds[by_client.offsets[:-1]] % groups, minlength=groups)
    largest = -(-population // groups)
    if clients.max() <= largest:
        return []
    words = (
        f'{clients.max()} clients took part in the turns of group {clients.argmax()}; '
        f'a group has at most {largest}.'
    )
    return [impossible('group size', words)]
