"""Logs at the planned rate whose cohorts, or clients, depend on each other."""

from collections.abc import Callable, Iterable

import numpy as np

from dpfl import ParticipationLog

Draw = Callable[[np.random.Generator], ParticipationLog]


def chosen(rounds: Iterable[np.ndarray]) -> ParticipationLog:
    """The log of cohorts given by whether each client takes part, bool [clients]."""
    return ParticipationLog(np.flatnonzero(takes_part) for takes_part in rounds)


def in_turn(rounds: int, clients: int, size: int) -> Draw:
    """Cohorts of fixed size go through the population in one random order."""

    def draw(rng):
        order = rng.permutation(clients)
        return ParticipationLog(
            order[np.arange(t * size, (t + 1) * size) % clients] for t in range(rounds)
        )

    return draw


def same_cohort(rounds: int, clients: int, size: int) -> Draw:
    """One cohort in all rounds."""

    def draw(rng):
        return ParticipationLog([rng.choice(clients, size, replace=False)] * rounds)

    return draw


def parts_by_schedule(rounds: int, clients: int, size: int, parts: int, groups: int = 1) -> Draw:
    """Poisson samples of one part of the population, or of a group, in each of its turns.

    Each part has equally many turns, in a random order that is public.
    """
    turns = -(-rounds // groups)

    def draw(rng):
        order = rng.permutation(clients)
        orders = [rng.permutation(np.arange(turns) % parts) for _ in range(groups)]
        used = [
            np.array_split(order[t % groups :: groups], parts)[orders[t % groups][t // groups]]
            for t in range(rounds)
        ]
        return ParticipationLog(part[rng.random(part.size) < size / part.size] for part in used)

    return draw


def in_sync(rounds: int, clients: int, size: int, together: int, spread: bool = True) -> Draw:
    """Clients in sets that come together, but for one set; the sizes of cohorts are as planned."""

    def draw(rng):
        sets = rng.permutation(clients).reshape(-1, together)
        cohorts = []
        for _ in range(rounds):
            number = rng.binomial(clients, size / clients) if spread else size
            order = rng.permutation(sets, axis=0)
            cohorts.append(order.ravel()[:number])
        return ParticipationLog(cohorts)

    return draw


def again_after(rounds: int, clients: int, size: int, lag: int, share: float) -> Draw:
    """Poisson samples; of the cohort `lag` rounds before, a larger share comes again."""
    rate = size / clients
    others = rate * (1 - share) / (1 - rate)

    def draw(rng):
        came = np.zeros((rounds, clients), bool)
        for t in range(rounds):
            rates = np.where(came[t - lag], share, others) if t >= lag else rate
            came[t] = rng.random(clients) < rates
        return chosen(came)

    return draw


def partly_frequent(rounds: int, clients: int, size: int, share: float, factor: float) -> Draw:
    """Poisson samples, where a share of the clients has a larger rate; the mean is as planned."""
    rates = np.full(clients, size / clients * (1 - share * factor) / (1 - share))
    rates[: round(share * clients)] = size / clients * factor
    return lambda rng: chosen(rng.random(clients) < rates for _ in range(rounds))


def dependent(rounds: int, clients: int, size: int, spread: bool = True) -> dict[str, Draw]:
    """Every client takes part at the planned rate, and cohorts depend on each other."""
    return {
        'pairs in sync': in_sync(rounds, clients, size, 2, spread),
        'cliques of 5 in sync': in_sync(rounds, clients, size, 5, spread),
    }
