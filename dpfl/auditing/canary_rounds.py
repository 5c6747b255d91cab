"""The rounds of canaries in a run whose guarantee relies on secret cohorts.

Canaries are clients of samplers like that of the run, with other seeds. So a canary takes part as a
real client does, and no cohort of real clients changes.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpfl import _random, accounting

_STREAM = 'canary rounds'
_MOST_SEED = 2**40

# Maps a seed to a sampler like that of the run: it has its `kind`, a `Sampling`, and `seed`, and
# maps a round to the clients of its `cohort`.
Samplers = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class DrawnRounds:
    """Who takes part when.

    Attributes:
      rounds: bool [canaries, rounds].
      group: of each canary, int64 [canaries].
      rates: share of the clients of each group that take part in each round, float64
        [groups, rounds].
    """

    rounds: np.ndarray
    group: np.ndarray
    rates: np.ndarray


def draw(
    plan: accounting.PrivacyPlan, canaries: int, seed: int, samplers: Samplers, most_groups: int
) -> DrawnRounds:
    """Draws the rounds of canaries.

    With cyclic Poisson sampling the canaries are in the first groups, which have the most turns:
    which group a client is in need not be secret. Otherwise all canaries are one group.

    Args:
      plan: of the run, with sampling.
      canaries: how many; the two of a pair, 2 i and 2 i + 1, are in the same group.
      seed: of the run.
      samplers: maps a seed to a sampler like that of the run.
      most_groups: how many groups there may be.
    """
    assert plan.sampling is not None
    count, turns = plan.participation.rounds, plan.sampling.public_groups
    rate = plan.clients_per_round / plan.sampling.population * turns
    groups = min(most_groups, turns, count)
    group = np.arange(canaries) // 2 % groups
    rounds = np.zeros((canaries, count), bool)
    for sampler, numbers, members in _assigned(group, seed, samplers):
        canary = np.full(sampler.kind.population, -1)
        canary[members] = numbers
        for t in range(count):
            present = canary[sampler.cohort(t)]
            rounds[present[present >= 0], t] = True
    has_turn = np.arange(count) % turns == np.arange(groups)[:, None]
    return DrawnRounds(rounds, group, rate * has_turn)


def _assigned(
    group: np.ndarray, seed: int, samplers: Samplers
) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Samplers, and which canaries are which of their clients, until all canaries are clients."""
    generator = _random.generator(_STREAM, seed)
    left = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    while any(each.size for each in left):
        sampler = samplers(int(generator.integers(_MOST_SEED)))
        clients = [sampler.kind.group(number, sampler.seed) for number in range(len(left))]
        taken = [each[: few.size] for each, few in zip(left, clients, strict=True)]
        members = [few[: each.size] for each, few in zip(taken, clients, strict=True)]
        left = [each[few.size :] for each, few in zip(left, clients, strict=True)]
        yield sampler, np.concatenate(taken), np.concatenate(members)
