"""Which canary clients a run has, and in which rounds they take part.

Half of the canaries take part; the others are held out, to show what scores are without a canary.
Nothing about a canary is stored: its direction and its rounds are functions of the run's seed.

Without sampling, a canary takes part in the rounds of a pattern that the schema of the plan admits:
as often as it allows, at its least separation. Among these patterns, groups of canaries have those
of about the largest sensitivity, since the claim is about the worst one. With a sampling that the
guarantee relies on, canaries take part as real clients do: they are clients of samplers like that
of the run, with other seeds, so no cohort of real clients changes.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpfl import _random, accounting, errors
from dpfl.aggregators import audited_query
from dpfl.participation import Participation

# Patterns within this share of the largest norm count as worst ones.
_SHARE = 0.01
_MOST_GROUPS = 4
# Sums of releases that the state of a run may hold, in bytes.
_MOST_STATE_BYTES = 1 << 26
# First rounds of patterns that are tried.
_MOST_STARTS = 64
# Canaries times rounds: the table of who takes part when.
_MOST_ENTRIES = 10**8
# The strategy matrix is needed as a whole.
MOST_ROUNDS = 8192
_STREAM = 'canary rounds'
_MOST_SEED = 2**40

# Maps a seed to a sampler like that of the run: it has its `kind`, a `Sampling`, and `seed`, and
# maps a round to the clients of its `cohort`.
Samplers = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class CanaryDesign:
    """The canaries of a run.

    Attributes:
      seed: of directions and rounds.
      takes_part: bool [canaries].
      group: of each canary, int64 [canaries].
      rounds: in which each canary takes part or, if it is held out, would; bool
        [canaries, rounds].
      weights: of the releases in the sum that the scores of a group are computed from, float64
        [groups, rounds].
      pattern: rounds of the canaries of each group, bool [groups, rounds]; None with sampling.
    """

    seed: int
    takes_part: np.ndarray
    group: np.ndarray
    rounds: np.ndarray
    weights: np.ndarray
    pattern: np.ndarray | None

    @property
    def effects(self) -> np.ndarray:
        """How much each canary adds to the sum of each group, along its direction, in clip norms.

        Float64 [canaries, groups]; 0 for canaries that are held out.
        """
        present = self.rounds & self.takes_part[:, None]
        return present.astype(np.float64) @ self.weights.T

    def added(self) -> audited_query.Canaries:
        """The canaries as the query of the run takes them."""
        present = self.rounds & self.takes_part[:, None]
        cohorts = tuple(np.flatnonzero(column) for column in present.T)
        return audited_query.Canaries(self.seed, cohorts, self.weights)


def design(
    plan: accounting.PrivacyPlan,
    canaries: int,
    seed: int,
    dimension: int,
    samplers: Samplers | None = None,
) -> CanaryDesign:
    """The canaries of a run under a plan.

    Args:
      plan: of the run.
      canaries: how many, at least 4; every second one is held out.
      seed: of the run, an integer >= 0.
      dimension: number of parameters of the model.
      samplers: maps a seed to a sampler like that of the run; needed if the guarantee relies on
        the sampling.

    Raises:
      ArgumentError: if there are too many rounds, or canaries for them, or no samplers.
    """
    if plan.participation.rounds > MOST_ROUNDS:
        raise errors.ArgumentError(
            'audit', True, f'must be False for more than {MOST_ROUNDS} rounds'
        )
    most_canaries = _MOST_ENTRIES // plan.participation.rounds
    if canaries > most_canaries:
        raise errors.ArgumentError(
            'audit_canaries',
            canaries,
            f'must be at most {most_canaries} for {plan.participation.rounds} rounds',
        )
    most_groups = max(1, min(_MOST_GROUPS, _MOST_STATE_BYTES // (4 * dimension)))
    strategy = plan.mechanism.with_rounds(plan.participation.rounds).strategy_matrix()
    takes_part = np.arange(canaries) % 2 == 0
    if plan.sampling is None:
        pattern, weights = _worst(plan.participation, strategy, most_groups)
        # The two canaries of a pair, of which one is held out, are in the same group.
        group = np.arange(canaries) // 2 % len(pattern)
        rounds = pattern[group]
        return CanaryDesign(seed, takes_part, group, rounds, weights, pattern)
    if samplers is None:
        raise errors.ArgumentError('samplers', None, f'must be given for {plan.sampling.name}')
    rounds, group, rates = _draw(plan, canaries, seed, samplers, most_groups)
    # The attacker knows the group of a canary, not its rounds.
    weights = _optimal(strategy, strategy @ rates.T)
    return CanaryDesign(seed, takes_part, group, rounds, weights, None)


def _worst(schema: Participation, strategy: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `most` of the worst patterns, bool [groups, rounds], and weights of the rounds."""
    rounds, step, times = schema.rounds, schema.min_separation, schema.count
    last = rounds - step * (times - 1)
    starts = np.unique(np.linspace(0, last - 1, min(last, _MOST_STARTS)).astype(int))
    patterns = np.zeros((len(starts), rounds), bool)
    for row, start in zip(patterns, starts, strict=True):
        row[start + step * np.arange(times)] = True
    whitened = strategy @ patterns.T.astype(np.float64)
    norms = np.linalg.norm(whitened, axis=0)
    worst = np.flatnonzero(norms >= norms.max() * (1 - _SHARE))
    chosen = worst[np.unique(np.linspace(0, len(worst) - 1, most).astype(int))]
    # The very worst one is always among them.
    if norms.argmax() not in chosen:
        chosen[0] = norms.argmax()
    return patterns[chosen], _optimal(strategy, whitened[:, chosen])


def _optimal(strategy: np.ndarray, whitened: np.ndarray) -> np.ndarray:
    """Weights of the releases for rounds u, `C^T C u / |C u|`, [groups, rounds].

    Projecting the whitened releases, C times the releases, on `C u` is the optimal test between a
    run with u and one without.

    Args:
      strategy: C, [rounds, rounds].
      whitened: `C u`, [rounds, groups].
    """
    return (strategy.T @ (whitened / np.linalg.norm(whitened, axis=0))).T


def _draw(
    plan: accounting.PrivacyPlan, canaries: int, seed: int, samplers: Samplers, most_groups: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws the rounds of canaries: who takes part when.

    With cyclic Poisson sampling the canaries are in the first groups, which have the most turns:
    which group a client is in need not be secret. Otherwise all canaries are one group.

    Args:
      plan: of the run, with sampling.
      canaries: how many; the two of a pair, 2 i and 2 i + 1, are in the same group.
      seed: of the run.
      samplers: maps a seed to a sampler like that of the run.
      most_groups: how many groups there may be.

    Returns:
      Rounds of each canary, bool [canaries, rounds]; its group, int64 [canaries]; and the share of
      the clients of each group that take part in each round, float64 [groups, rounds].
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
    return rounds, group, rate * has_turn


def _assigned(
    group: np.ndarray, seed: int, samplers: Samplers
) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Samplers, each with canaries and the clients that they are, until all canaries are clients.

    Yields:
      A sampler, the numbers of some canaries, and the ids of their clients in the same order.
    """
    generator = _random.generator(_STREAM, seed)
    left = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    while any(numbers.size for numbers in left):
        sampler = samplers(int(generator.integers(_MOST_SEED)))
        clients = [sampler.kind.group(number, sampler.seed) for number in range(len(left))]
        taken = [numbers[: ids.size] for numbers, ids in zip(left, clients, strict=True)]
        members = [ids[: numbers.size] for numbers, ids in zip(taken, clients, strict=True)]
        left = [numbers[ids.size :] for numbers, ids in zip(left, clients, strict=True)]
        yield sampler, np.concatenate(taken), np.concatenate(members)
