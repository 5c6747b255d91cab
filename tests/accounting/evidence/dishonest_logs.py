"""Logs that were not sampled as their plan says, and honest logs of the same plans."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

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


class _Sizes(NamedTuple):
    """Rounds of a run, clients of the population, and planned clients of a round."""

    rounds: int
    clients: int
    size: int

    @property
    def rate(self):
        return self.size / self.clients

    def halved(self):
        """With half the population, and as many clients in a round."""
        return self._replace(clients=self.clients // 2)


def _cases(kind, sizes, dishonest, weak=(), fields=None, **settings) -> Cases:
    """The cases of a kind of sampling with its `settings`; `fields` are of the plan."""
    planned = dict(clients_per_round=sizes.size, population=sizes.clients)
    return Cases(
        plan(kind, sizes.rounds, **planned, **settings, **(fields or {})),
        lambda seed: logged(sampler(kind, *sizes, seed, **settings)),
        dishonest,
        frozenset(weak),
    )


# --- Cohorts, or clients, that depend on each other, at the planned rate.


def _chosen(rounds) -> ParticipationLog:
    """The log of cohorts given by whether each client takes part, bool [clients]."""
    return ParticipationLog(np.flatnonzero(takes_part) for takes_part in rounds)


def _in_turn(sizes) -> Draw:
    """Cohorts of fixed size go through the population in one random order."""

    def draw(rng):
        order = rng.permutation(sizes.clients)
        places = np.arange(sizes.rounds * sizes.size) % sizes.clients
        return ParticipationLog(order[places.reshape(sizes.rounds, sizes.size)])

    return draw


def _same_cohort(sizes) -> Draw:
    """One cohort in all rounds."""

    def draw(rng):
        return ParticipationLog(
            [rng.choice(sizes.clients, sizes.size, replace=False)] * sizes.rounds
        )

    return draw


def _parts_by_schedule(sizes, parts, groups=1) -> Draw:
    """Poisson samples of one part of the population, or of a group, in each of its turns.

    Each part has equally many turns, in a random order that is public.
    """
    turns = -(-sizes.rounds // groups)

    def draw(rng):
        order = rng.permutation(sizes.clients)
        orders = [rng.permutation(np.arange(turns) % parts) for _ in range(groups)]
        used = [
            np.array_split(order[t % groups :: groups], parts)[orders[t % groups][t // groups]]
            for t in range(sizes.rounds)
        ]
        return ParticipationLog(
            part[rng.random(part.size) < sizes.size / part.size] for part in used
        )

    return draw


def _in_sync(sizes, together, spread) -> Draw:
    """Clients in sets that come together, but for one set; the sizes of cohorts are as planned."""

    def draw(rng):
        sets = rng.permutation(sizes.clients).reshape(-1, together)
        cohorts = []
        for _ in range(sizes.rounds):
            number = rng.binomial(sizes.clients, sizes.rate) if spread else sizes.size
            order = rng.permutation(sets, axis=0)
            cohorts.append(order.ravel()[:number])
        return ParticipationLog(cohorts)

    return draw


def _again_after(sizes, lag, share) -> Draw:
    """Poisson samples; of the cohort `lag` rounds before, a larger share comes again."""
    rate = sizes.rate
    others = rate * (1 - share) / (1 - rate)

    def draw(rng):
        came = np.zeros(sizes[:2], bool)
        for t in range(sizes.rounds):
            rates = np.where(came[t - lag], share, others) if t >= lag else rate
            came[t] = rng.random(sizes.clients) < rates
        return _chosen(came)

    return draw


def _partly_frequent(sizes, share, factor) -> Draw:
    """Poisson samples, where a share of the clients has a larger rate; the mean is as planned."""
    rates = np.full(sizes.clients, sizes.rate * (1 - share * factor) / (1 - share))
    rates[: round(share * sizes.clients)] = sizes.rate * factor
    return lambda rng: _chosen(rng.random(sizes.clients) < rates for _ in range(sizes.rounds))


def _dependent(sizes, spread=True) -> dict[str, Draw]:
    """Every client takes part at the planned rate, and cohorts depend on each other."""
    return {
        'pairs in sync': _in_sync(sizes, 2, spread),
        'cliques of 5 in sync': _in_sync(sizes, 5, spread),
    }


# --- The cases of each sampling.


def with_client_always(log: ParticipationLog, rounds: Iterable[int], client: int = 7):
    """The log with one client in each of `rounds`, besides the others."""
    always = set(rounds)
    return ParticipationLog(
        np.union1d(log.cohort(t), [client]) if t in always else log.cohort(t)
        for t in range(log.rounds)
    )


def _poisson_at(sizes, factor) -> Draw:
    """Poisson samples at a rate that is larger by a factor."""
    return lambda rng: _chosen(
        rng.random(sizes.clients) < factor * sizes.rate for _ in range(sizes.rounds)
    )


def _fixed_size(sizes) -> Draw:
    """Samples of fixed size without replacement."""
    return lambda rng: ParticipationLog(
        rng.choice(sizes.clients, sizes.size, replace=False) for _ in range(sizes.rounds)
    )


def _poisson_logs(sizes) -> dict[str, Draw]:
    return {
        'rate 1.1 p': _poisson_at(sizes, 1.1),
        'rate 1.5 p': _poisson_at(sizes, 1.5),
        'the same cohort always': _same_cohort(sizes),
        'one client in all rounds': lambda rng: with_client_always(
            _poisson_at(sizes, 1)(rng), range(sizes.rounds)
        ),
        'everybody': _poisson_at(sizes, 1 / sizes.rate),
        'in turn': _in_turn(sizes),
        'fixed size': _fixed_size(sizes),
        'half the population': _poisson_at(sizes.halved(), 1),
        **{f'{parts} parts by a schedule': _parts_by_schedule(sizes, parts) for parts in (2, 3, 4)},
        **_dependent(sizes),
        '5 % of the clients three times as often': _partly_frequent(sizes, 0.05, 3),
        'a quarter back after 3 rounds': _again_after(sizes, 3, 0.25),
    }


def _poisson(*sizes) -> Cases:
    sizes = _Sizes(*sizes)
    weak = {'rate 1.1 p'} if sizes.clients < 10_000 else ()
    return _cases('poisson', sizes, _poisson_logs(sizes), weak)


def _truncated(cap, *sizes) -> Cases:
    sizes = _Sizes(*sizes)

    def capped(draw, most=cap):
        def draw_capped(rng):
            log = draw(rng)
            cohorts = map(log.cohort, range(log.rounds))
            return ParticipationLog(rng.permutation(cohort)[:most] for cohort in cohorts)

        return draw_capped

    plain = _poisson_at(sizes, 1)
    return _cases(
        'truncated_poisson',
        sizes,
        {name: capped(draw) for name, draw in _poisson_logs(sizes).items()}
        | {
            'no cap': plain,
            'one client in all rounds': lambda rng: with_client_always(
                capped(plain, cap - 1)(rng), range(sizes.rounds)
            ),
        },
        # Pairs of which the cap cuts one client off are seen in 19 of 20 logs.
        {'rate 1.1 p', 'pairs in sync'},
        cohort_cap=cap,
    )


def _without_replacement(*sizes) -> Cases:
    sizes = _Sizes(*sizes)
    rounds, clients, size = sizes

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
        sizes,
        {
            'the same cohort always': _same_cohort(sizes),
            'one client in all rounds': one_in_all,
            'in turn': _in_turn(sizes),
            'half the population': _fixed_size(sizes.halved()),
            'random sizes': _poisson_at(sizes, 1),
            '2 parts by a schedule': parts_of_fixed_size,
            **_dependent(sizes, spread=False),
        },
        fields=dict(noise_multiplier=1.5),
    )


def _cyclic(groups, *sizes) -> Cases:
    sizes = _Sizes(*sizes)
    rounds, rate = sizes.rounds, sizes.rate * groups

    def groups_in_turn(rng):
        order = rng.permutation(sizes.clients)
        return [order[t % groups :: groups] for t in range(rounds)]

    def at(factor, share=1.0):
        """A share of each group takes part at a rate that is larger by a factor."""

        def draw(rng):
            used = [group[: round(share * group.size)] for group in groups_in_turn(rng)]
            return ParticipationLog(
                group[rng.random(group.size) < min(1.0, factor * rate)] for group in used
            )

        return draw

    def always(rng):
        log = at(1.0)(rng)
        return with_client_always(log, range(0, rounds, groups), int(log.cohort(0)[0]))

    return _cases(
        'cyclic_poisson',
        sizes,
        {
            'rate 1.1 p': at(1.1),
            'rate 1.5 p': at(1.5),
            'everybody': at(1 / rate),
            'the same half of each group': lambda rng: ParticipationLog(
                group[: sizes.size] for group in groups_in_turn(rng)
            ),
            'half the population': at(1 / rate, share=rate),
            'one client in all turns of its group': always,
            'no groups': _poisson_at(sizes, 1),
        },
        {'rate 1.1 p', 'one client in all turns of its group'},
        dict(separation=groups),
        groups=groups,
    )


def of_slots(rounds, groups, slots) -> Draw:
    """Clients in the rounds of their slots, [passes, clients], or [1, clients] for all passes."""

    def draw(rng):
        drawn = slots(rng)
        return _chosen(drawn[t // groups % len(drawn)] == t % groups for t in range(rounds))

    return draw


def _of_slots(kind, rounds, clients, groups, slots, weak=(), **fields) -> Cases:
    return _cases(
        kind,
        _Sizes(rounds, clients, clients // groups),
        {name: of_slots(rounds, groups, draw) for name, draw in slots.items()},
        weak,
        fields,
        groups=groups,
    )


def _bins(rounds, clients, groups) -> Cases:
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
    return _of_slots('balls_in_bins', rounds, clients, groups, slots, separation=groups)


def _allocation(rounds, clients, groups) -> Cases:
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
    # A client keeps its slot by chance with probability 1 / groups in each epoch.
    weak = {'one client always in the same slot'} if epochs < 11 else ()
    schema = Participation(rounds, 1, epochs)
    return _of_slots(
        'random_allocation', rounds, clients, groups, slots, weak, participation=schema
    )


def _separated(groups, *sizes) -> Cases:
    sizes = _Sizes(*sizes)
    rounds, clients, size = sizes
    p = size / (clients - (groups - 1) * size)

    def draw(factor=1.0, cold=False, used=clients, fixed=False, always=0) -> Draw:
        """Free clients join at a rate that is larger by a factor."""

        def drawn(rng):
            waits = np.full(groups, sizes.rate)
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
            return _chosen(cohorts)

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
        sizes,
        {
            'rate 1.1 p': draw(1.1),
            'rate 1.5 p': draw(1.5),
            'cold start': draw(cold=True),
            'in turn': _in_turn(sizes),
            'the same cohort always': _same_cohort(sizes._replace(size=size // 2)),
            'the same cohorts in turn': _in_turn(sizes._replace(clients=groups * size)),
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
        'poisson',
        _Sizes(30, 10**6, 100),
        {'population 1,000': _poisson_at(_Sizes(30, 1000, 100), 1)},
    ),
    'without_replacement': _without_replacement(30, 1000, 50),
    'cyclic_poisson': _cyclic(10, 30, 1000, 50),
    'cyclic_poisson, 30 turns': dataclasses.replace(
        _cyclic(4, 120, 2000, 100),
        dishonest={
            '2 parts by a schedule': _parts_by_schedule(_Sizes(120, 2000, 100), 2, groups=4)
        },
        weak=frozenset(),
    ),
    'truncated_poisson': _truncated(110, 30, 1000, 100),
    'balls_in_bins': _bins(30, 1000, 10),
    'random_allocation': _allocation(30, 1000, 10),
    'random_allocation, 12 epochs': _allocation(120, 1000, 10),
    'b_min_sep': _separated(5, 30, 1000, 100),
}
