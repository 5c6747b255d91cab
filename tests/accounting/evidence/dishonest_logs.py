"""Logs that were not sampled as their plan says, and honest logs of the same plans."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dpfl import Participation, ParticipationLog, accounting
from dpfl.accounting.sampling import kinds
from dpfl.simulation import sampling
from tests.accounting import plans

Draw = Callable[[np.random.Generator], ParticipationLog]


@dataclasses.dataclass(frozen=True)
class Cases:
    """A plan and logs for it.

    Attributes:
      plan: what a run claims.
      honest: draws a log as planned; its argument is a seed.
      dishonest: draws a log that breaks the plan's sampling, by what is wrong with it.
      weak: names of the logs in `dishonest` that are not always refuted.
    """

    plan: accounting.PrivacyPlan
    honest: Callable[[int], ParticipationLog]
    dishonest: dict[str, Draw]
    weak: frozenset[str] = frozenset()


def plan(sampling_name: str, rounds: int, separation: int = 1, **fields) -> accounting.PrivacyPlan:
    """A plan with independent noise, unless `fields` say otherwise."""
    defaults = dict(participation=Participation(rounds, separation), noise_multiplier=1.0)
    return plans.independent(rounds, sampling=sampling_name, **{**defaults, **fields})


def logged(sampler: sampling.Sampler) -> ParticipationLog:
    """The log of all rounds of a sampler."""
    return ParticipationLog(sampler.cohort(t) for t in range(sampler.participation.rounds))


def sampler(
    kind: str, rounds: int, clients: int, size: int, seed: int = 0, **settings
) -> sampling.RandomSampler:
    """Draws the cohorts of a kind of sampling."""
    part = kinds.from_settings(kind, {'population': clients, **settings})
    return sampling.RandomSampler(part, rounds, size, seed)


def _cases(
    kind: str,
    sizes: tuple[int, int, int],
    dishonest: dict[str, Draw],
    weak: Iterable[str] = (),
    fields: dict[str, Any] | None = None,
    **settings: Any,
) -> Cases:
    """The cases of a kind of sampling with its `settings`; `fields` are of the plan.

    `sizes` are the rounds, the population, and the planned clients of a round.
    """
    rounds, clients, size = sizes
    planned = dict(clients_per_round=size, population=clients)
    return Cases(
        plan(kind, rounds, **planned, **settings, **(fields or {})),
        lambda seed: logged(sampler(kind, rounds, clients, size, seed, **settings)),
        dishonest,
        frozenset(weak),
    )


# --- Cohorts, or clients, that depend on each other, at the planned rate.


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


# --- The cases of each sampling.


def with_client_always(log: ParticipationLog, rounds: Iterable[int], client: int = 7):
    """The log with one client in each of `rounds`, besides the others."""
    always = set(rounds)
    return ParticipationLog(
        np.union1d(log.cohort(t), [client]) if t in always else log.cohort(t)
        for t in range(log.rounds)
    )


def poisson_at(rounds: int, clients: int, rate: float) -> Draw:
    """Poisson samples at a rate of their own."""
    return lambda rng: chosen(rng.random(clients) < rate for _ in range(rounds))


def fixed_size(rounds: int, clients: int, size: int) -> Draw:
    """Samples of fixed size without replacement."""
    return lambda rng: ParticipationLog(
        rng.choice(clients, size, replace=False) for _ in range(rounds)
    )


def _poisson_logs(rounds: int, clients: int, size: int) -> dict[str, Draw]:
    rate = size / clients
    return {
        'rate 1.1 p': poisson_at(rounds, clients, 1.1 * rate),
        'rate 1.5 p': poisson_at(rounds, clients, 1.5 * rate),
        'the same cohort always': same_cohort(rounds, clients, size),
        'one client in all rounds': lambda rng: with_client_always(
            poisson_at(rounds, clients, rate)(rng), range(rounds)
        ),
        'everybody': poisson_at(rounds, clients, 1.0),
        'in turn': in_turn(rounds, clients, size),
        'fixed size': fixed_size(rounds, clients, size),
        'half the population': poisson_at(rounds, clients // 2, 2 * rate),
        **{
            f'{parts} parts by a schedule': parts_by_schedule(rounds, clients, size, parts)
            for parts in (2, 3, 4)
        },
        **dependent(rounds, clients, size),
        '5 % of the clients three times as often': partly_frequent(rounds, clients, size, 0.05, 3),
        'a quarter back after 3 rounds': again_after(rounds, clients, size, 3, 0.25),
    }


def _poisson(rounds: int, clients: int, size: int) -> Cases:
    weak = {'rate 1.1 p'} if clients < 10_000 else ()
    sizes = (rounds, clients, size)
    return _cases('poisson', sizes, _poisson_logs(*sizes), weak)


def _truncated(rounds: int, clients: int, size: int, cap: int) -> Cases:
    def capped(draw: Draw, most: int = cap) -> Draw:
        def draw_capped(rng):
            log = draw(rng)
            cohorts = map(log.cohort, range(rounds))
            return ParticipationLog(rng.permutation(cohort)[:most] for cohort in cohorts)

        return draw_capped

    return _cases(
        'truncated_poisson',
        (rounds, clients, size),
        {name: capped(draw) for name, draw in _poisson_logs(rounds, clients, size).items()}
        | {
            'no cap': poisson_at(rounds, clients, size / clients),
            'one client in all rounds': lambda rng: with_client_always(
                capped(poisson_at(rounds, clients, size / clients), cap - 1)(rng), range(rounds)
            ),
        },
        # Pairs of which the cap cuts one client off are seen in 19 of 20 logs.
        {'rate 1.1 p', 'pairs in sync'},
        cohort_cap=cap,
    )


def _without_replacement(rounds: int, clients: int, size: int) -> Cases:
    def one_in_all(rng):
        others = np.delete(np.arange(clients), 7)
        return ParticipationLog(
            np.append(rng.choice(others, size - 1, replace=False), 7) for _ in range(rounds)
        )

    def parts_of_fixed_size(rng):
        parts = rng.permutation(clients).reshape(2, -1)
        order = rng.permutation(np.arange(rounds) % 2)
        return ParticipationLog(rng.choice(parts[i], size, replace=False) for i in order)

    return _cases(
        'without_replacement',
        (rounds, clients, size),
        {
            'the same cohort always': same_cohort(rounds, clients, size),
            'one client in all rounds': one_in_all,
            'in turn': in_turn(rounds, clients, size),
            'half the population': fixed_size(rounds, clients // 2, size),
            'random sizes': poisson_at(rounds, clients, size / clients),
            '2 parts by a schedule': parts_of_fixed_size,
            **dependent(rounds, clients, size, spread=False),
        },
        fields=dict(noise_multiplier=1.5),
    )


def _cyclic(rounds: int, clients: int, size: int, groups: int) -> Cases:
    rate = size * groups / clients

    def at(factor: float, share: float = 1.0) -> Draw:
        """A share of each group takes part at a rate that is larger by a factor."""

        def draw(rng):
            order = rng.permutation(clients)
            turns = [order[t % groups :: groups] for t in range(rounds)]
            used = [group[: round(share * group.size)] for group in turns]
            return ParticipationLog(
                group[rng.random(group.size) < min(1.0, factor * rate)] for group in used
            )

        return draw

    def half(rng):
        order = rng.permutation(clients)
        return ParticipationLog(order[t % groups :: groups][:size] for t in range(rounds))

    def always(rng):
        log = at(1.0)(rng)
        return with_client_always(log, range(0, rounds, groups), int(log.cohort(0)[0]))

    return _cases(
        'cyclic_poisson',
        (rounds, clients, size),
        {
            'rate 1.1 p': at(1.1),
            'rate 1.5 p': at(1.5),
            'everybody': at(1 / rate),
            'the same half of each group': half,
            'half the population': at(1 / rate, share=rate),
            'one client in all turns of its group': always,
            'no groups': poisson_at(rounds, clients, size / clients),
        },
        {'rate 1.1 p', 'one client in all turns of its group'},
        dict(separation=groups),
        groups=groups,
    )


def of_slots(rounds: int, groups: int, slots: Callable[[np.random.Generator], np.ndarray]) -> Draw:
    """Clients in the rounds of their slots, [passes, clients], or [1, clients] for all passes."""

    def draw(rng):
        drawn = slots(rng)
        return chosen(drawn[t // groups % len(drawn)] == t % groups for t in range(rounds))

    return draw


def _bins(rounds: int, clients: int, groups: int) -> Cases:
    ids = np.arange(clients)
    slots = {
        'bins by id': lambda rng: ids[None] * groups // clients,
        f'id mod {groups}': lambda rng: ids[None] % groups,
        'all in one bin': lambda rng: np.full((1, clients), rng.integers(groups)),
        'bins of equal size': lambda rng: rng.permutation(clients)[None] % groups,
        'other bins in each pass': lambda rng: rng.integers(groups, size=(9, clients)),
        'half the population': lambda rng: rng.integers(groups, size=(1, clients // 2)),
        'bins of both halves': lambda rng: np.tile(rng.integers(groups, size=(1, clients // 2)), 2),
    }
    return _cases(
        'balls_in_bins',
        (rounds, clients, clients // groups),
        {name: of_slots(rounds, groups, draw) for name, draw in slots.items()},
        fields=dict(separation=groups),
        groups=groups,
    )


def _allocation(rounds: int, clients: int, groups: int) -> Cases:
    epochs = -(-rounds // groups)

    def uniform(rng, count=epochs):
        return rng.integers(groups, size=(count, clients))

    def one_always(rng):
        drawn = uniform(rng)
        drawn[:, 7] = drawn[0, 7]
        return drawn

    slots = {
        'the same slots in all epochs': lambda rng: uniform(rng, 1),
        'the next slot in each epoch': lambda rng: (
            (uniform(rng, 1) + np.arange(epochs)[:, None]) % groups
        ),
        'slots of the neighbours': lambda rng: np.stack(
            [np.roll(drawn, shift) for drawn in uniform(rng, 1) for shift in range(epochs)]
        ),
        'slots by id': lambda rng: np.sort(uniform(rng)),
        'all in the first round': lambda rng: np.zeros((1, clients), int),
        'cohorts of equal size': lambda rng: np.stack(
            [rng.permutation(clients) % groups for _ in range(epochs)]
        ),
        'one client always in the same slot': one_always,
        'slots of both halves': lambda rng: np.tile(uniform(rng)[:, : clients // 2], 2),
    }
    if epochs > 3:
        slots['the slots of three epochs before'] = lambda rng: np.tile(
            uniform(rng, 3), (-(-epochs // 3), 1)
        )
    return _cases(
        'random_allocation',
        (rounds, clients, clients // groups),
        {name: of_slots(rounds, groups, draw) for name, draw in slots.items()},
        # A client keeps its slot by chance with probability 1 / groups in each epoch.
        {'one client always in the same slot'} if epochs < 11 else (),
        dict(participation=Participation(rounds, 1, epochs)),
        groups=groups,
    )


def _separated(rounds: int, clients: int, size: int, groups: int) -> Cases:
    p = size / (clients - (groups - 1) * size)

    def draw(factor=1.0, cold=False, used=clients, fixed=False, always=0) -> Draw:
        """Free clients join at a rate that is larger by a factor."""

        def drawn(rng):
            waits = np.full(groups, size / clients)
            waits[0] = 1 - waits[1:].sum()
            returns = np.zeros(used, int) if cold else rng.choice(groups, size=used, p=waits)
            returns[:always] = 0
            cohorts = []
            for t in range(rounds):
                joins = (returns <= t) & (rng.random(used) < factor * p)
                joins[:always] = returns[:always] <= t
                if fixed:
                    joins = np.isin(
                        ids[:used], rng.permutation(np.flatnonzero(returns <= t))[:size]
                    )
                returns[joins] = t + groups
                cohorts.append(joins)
            return chosen(cohorts)

        return drawn

    def in_sync(rng):
        seed = int(rng.integers(2**31))
        half = logged(sampler('b_min_sep', rounds, clients // 2, size // 2, seed, groups=groups))
        return ParticipationLog(
            np.append(half.cohort(t), half.cohort(t) + clients // 2) for t in range(rounds)
        )

    ids = np.arange(clients)
    return _cases(
        'b_min_sep',
        (rounds, clients, size),
        {
            'rate 1.1 p': draw(1.1),
            'rate 1.5 p': draw(1.5),
            'cold start': draw(cold=True),
            'in turn': in_turn(rounds, clients, size),
            'the same cohort always': same_cohort(rounds, clients, size // 2),
            'the same cohorts in turn': in_turn(rounds, groups * size, size),
            'fixed size': draw(cold=True, fixed=True),
            'fewer clients': draw(used=groups * size, fixed=True, cold=True),
            'half the population': draw(2.0, used=clients // 2),
            f'one client in every round {groups}': draw(always=1),
            'pairs in sync': in_sync,
        },
        {'rate 1.1 p', f'one client in every round {groups}', 'pairs in sync'},
        dict(separation=groups, noise_multiplier=3.0),
        groups=groups,
    )


CASES: dict[str, Cases] = {
    'poisson': _poisson(30, 1000, 100),
    'poisson, 10,000 clients': _poisson(100, 10_000, 1000),
    'poisson, population 10^6': _cases(
        'poisson', (30, 10**6, 100), {'population 1,000': poisson_at(30, 1000, 0.1)}
    ),
    'without_replacement': _without_replacement(30, 1000, 50),
    'cyclic_poisson': _cyclic(30, 1000, 50, 10),
    'cyclic_poisson, 30 turns': dataclasses.replace(
        _cyclic(120, 2000, 100, 4),
        dishonest={'2 parts by a schedule': parts_by_schedule(120, 2000, 100, 2, groups=4)},
        weak=frozenset(),
    ),
    'truncated_poisson': _truncated(30, 1000, 100, 110),
    'balls_in_bins': _bins(30, 1000, 10),
    'random_allocation': _allocation(30, 1000, 10),
    'random_allocation, 12 epochs': _allocation(120, 1000, 10),
    'b_min_sep': _separated(30, 1000, 100, 5),
}
