"""The best bands and groups for cyclic Poisson sampling: least error at the epsilon after sampling.

Fewer bands leave more error in the sums, but let clients be drawn from fewer and larger groups,
with a lower probability, which amplifies more. With one band noise is independent (DP-SGD); with as
many groups that every client of a group takes part in its turn, nothing is amplified. The best lies
anywhere between ([Choquette23], section 5).
"""

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy import optimize

from dpfl import _progress, _validate, accounting, errors, mechanisms
from dpfl.accounting.sampling import independent_cohorts
from dpfl.mechanisms import registry
from dpfl.participation import Participation

# Strategies with bands that designs are made of; the first is the default.
MECHANISMS = ('banded_toeplitz', 'banded')
# Numbers of groups that are tried first, evenly spread on a logarithmic scale.
_COARSE = 12
# Grid of privacy losses, and tolerance of the log noise multiplier, in estimates.
_STEP, _LOG_NOISE = 0.002, 1e-4
# Noise in a turn below which estimates count no amplification: losses take too large a grid.
_LEAST_NOISE = 0.3


@dataclasses.dataclass(frozen=True)
class Design:
    """A strategy with the groups of its sampling, and the noise that it needs.

    Attributes:
      plan: the privacy plan, for clip norm 1. Without sampling for the design that amplifies
        nothing.
      bands: number of diagonals of the strategy, at most the number of groups.
      groups: number of groups that take turns, or the rounds until a client returns.
      probability: with which a client of the group takes part in its turn.
      epsilon: of the plan.
      error: noise multiplier times the error of the strategy: standard deviation of the noise in
        the prefix sums, in clip norms, the largest or the root mean square.
    """

    plan: accounting.PrivacyPlan
    bands: int
    groups: int
    probability: float
    epsilon: float
    error: float


@dataclasses.dataclass(frozen=True)
class Designs:
    """The best design beside the two ends of the scale.

    Attributes:
      best: least error, or epsilon, of all with cyclic Poisson sampling.
      independent: independent noise with Poisson sampling (DP-SGD).
      separated: no amplification: clients return after population / clients_per_round rounds, and
        the strategy has as many bands.
    """

    best: Design
    independent: Design
    separated: Design


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """What the designs are for.

    Attributes:
      rounds: of the run, at least 1.
      population: number of clients.
      clients_per_round: clients in a round on average; at most the population.
      delta: strictly between 0 and 1.
      loss: 'rms' or 'max', the error that counts.
      mechanism: 'banded_toeplitz', or 'banded' (BandMF), which takes longer and has less error.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    rounds: int
    population: int
    clients_per_round: int
    delta: float
    loss: str = 'rms'
    mechanism: str = 'banded_toeplitz'

    def __post_init__(self) -> None:
        _validate.integer('rounds', self.rounds, minimum=1)
        _validate.integer('population', self.population, minimum=1)
        _validate.integer(
            'clients_per_round', self.clients_per_round, minimum=1, maximum=self.population
        )
        _validate.number('delta', self.delta, above=0, below=1)
        _validate.choice('loss', self.loss, ('rms', 'max'))
        _validate.choice('mechanism', self.mechanism, MECHANISMS)

    @property
    def most_groups(self) -> int:
        """The most groups that can have cohorts of the size, and that a run takes turns of."""
        return min(self.rounds, self.population // self.clients_per_round)

    def designs(self, given: str, value: float, *, progress: bool = False) -> Designs:
        """The designs that meet a target: of least error at an epsilon, or the other way round.

        The numbers of groups are compared by estimates, which are made for epsilon from 0.1 on; the
        plans that are returned have the accounting of all plans.

        Args:
          given: 'epsilon', or 'error' in the prefix sums, in clip norms: what the designs have.
          value: target, above 0.
          progress: whether to show progress on standard error.

        Raises:
          ArgumentError: if no noise meets the target; it names `given`.
        """
        _validate.number(given, value, above=0)
        least = 'error' if given == 'epsilon' else 'epsilon'
        with _progress.bar(
            desc='sampling', unit='design', leave=False, delay=1.0, disable=not progress
        ) as bar:

            def estimated(groups: int) -> float:
                strategy, unit = self._strategy(groups), self._unit(groups)
                if given == 'epsilon':
                    found = unit * self.estimated_noise(strategy, groups, value)
                else:
                    found = self.estimated_epsilon(strategy, groups, value / unit)
                bar.update()
                return found

            best = searched(self.rounds, self.most_groups, estimated)
        target: dict[str, Any] = {given: value}
        found, independent = (self.design(groups, **target) for groups in (best, 1))
        return Designs(
            min(found, independent, key=operator.attrgetter(least)),
            independent,
            self.design(self.most_groups, is_sampled=False, **target),
        )

    def _strategy(self, groups: int) -> mechanisms.Mechanism:
        return strategy_of(self.rounds, groups, self.mechanism, self.loss)

    def _unit(self, groups: int) -> float:
        """Error of the strategy for noise multiplier 1."""
        strategy = self._strategy(groups)
        return strategy.rms_error() if self.loss == 'rms' else strategy.max_error()

    def estimated_epsilon(
        self, strategy: mechanisms.Mechanism, groups: int, noise_multiplier: float
    ) -> float:
        """About the epsilon of a design, within some 0.2 %: orders designs, and is no guarantee.

        With little noise it is that without amplification, which is larger.
        """
        turns = independent_cohorts.worst_groups(strategy, groups)[0]
        if noise_multiplier < _LEAST_NOISE * max(norm for norm, _ in turns):
            squared_norm = sum(count * norm**2 for norm, count in turns)
            return accounting.epsilon_from_mu(
                math.sqrt(squared_norm) / noise_multiplier, self.delta
            )
        losses = [
            privacy_loss_distribution.from_gaussian_mechanism(
                noise_multiplier / norm,
                value_discretization_interval=_STEP,
                sampling_prob=self._probability(groups),
            ).self_compose(count)
            for norm, count in turns
        ]
        return functools.reduce(lambda a, b: a.compose(b), losses).get_epsilon_for_delta(self.delta)

    def estimated_noise(self, strategy: mechanisms.Mechanism, groups: int, epsilon: float) -> float:
        """About the noise multiplier of a design for a target epsilon, see `estimated_epsilon`."""

        def excess(log_noise: float) -> float:
            reached = self.estimated_epsilon(strategy, groups, math.exp(log_noise))
            return math.log(max(reached, 1e-3 * epsilon) / epsilon)

        low = high = 0.0
        while excess(low) <= 0:
            low -= 1.0
        while excess(high) > 0:
            high += 1.0
        return math.exp(optimize.brentq(excess, low, high, xtol=_LOG_NOISE))

    def design(self, groups: int, *, is_sampled: bool = True, **target: float) -> Design:
        """The design with `groups` groups, and as many bands, for a target.

        Args:
          groups: number of groups that take turns, 1 .. `most_groups`.
          is_sampled: whether cohorts are drawn; otherwise clients return after `groups` rounds.
          target: `epsilon` or `error`.
        """
        _validate.integer('groups', groups, minimum=1, maximum=self.most_groups)
        strategy, unit = self._strategy(groups), self._unit(groups)
        fields: dict[str, Any] = {
            'mechanism': strategy,
            'participation': Participation(self.rounds, 1 if is_sampled else groups),
            'clip_norm': 1.0,
            'clients_per_round': self.clients_per_round,
        }
        if is_sampled and groups > 1:
            fields['sampling'] = accounting.CyclicPoisson(population=self.population, groups=groups)
        elif is_sampled:
            fields['sampling'] = accounting.Poisson(population=self.population)
        if 'error' in target:
            plan = accounting.PrivacyPlan(noise_multiplier=target['error'] / unit, **fields)
        else:
            plan = accounting.PrivacyPlan.calibrated(
                epsilon=target['epsilon'], delta=self.delta, **fields
            )
        return Design(
            plan,
            strategy.strategy_bands or 1,
            groups,
            self._probability(groups) if is_sampled else 1.0,
            plan.epsilon(self.delta),
            plan.noise_multiplier * unit,
        )

    def _probability(self, groups: int) -> float:
        """Probability with which a client of the group whose turn it is takes part."""
        return groups * self.clients_per_round / self.population


@functools.lru_cache(1024)
def strategy_of(rounds: int, bands: int, mechanism: str, loss: str) -> mechanisms.Mechanism:
    """The strategy of least loss with at most so many bands, for clients who return after as many.

    Its columns have about equal norms: the optimum does not depend on how often a client returns.
    """
    if bands == 1:
        return mechanisms.Identity(rounds)
    optimizer = registry.ENTRIES[mechanism].optimizer
    assert optimizer is not None
    return optimizer.optimize(Participation(rounds, bands), bands, loss=loss)


def searched(rounds: int, most: int, value: Callable[[int], float]) -> int:
    """The number of groups of least value, by a search that assumes it to have one valley.

    With a given number of turns T of a group, the value changes smoothly with the number of groups;
    where T falls, at ceil(rounds / T), it jumps. So the search goes over these numbers first, on a
    coarse grid and then between its neighbours, and then over all with the T that was found.

    Args:
      rounds: of the run.
      most: largest number of groups.
      value: of a number of groups, 1 .. most.
    """
    if not 1 <= most <= rounds:
        raise errors.ArgumentError('most', most, f'must be within 1 .. {rounds}')
    value = functools.cache(value)
    firsts = sorted({-(-rounds // turns) for turns in range(-(-rounds // most), rounds + 1)})
    place = _valley(firsts, _COARSE, value)
    found = [firsts[place]]
    # The numbers with as many turns, and with one turn more.
    ends = [*firsts, most + 1]
    for at in {max(place - 1, 0), place}:
        among = range(ends[at], ends[at + 1])
        found.append(among[_valley(among, 3, value)])
    return min(found, key=value)


def _valley(numbers: Sequence[int], start: int, value: Callable[[int], float]) -> int:
    """Index of the number of least value, by bisection around the best of a few."""
    known = sorted({round(place) for place in np.linspace(0, len(numbers) - 1, start)})
    while True:
        at = min(range(len(known)), key=lambda i: value(numbers[known[i]]))
        around = known[max(at - 1, 0) : at + 2]
        new = {(a + b) // 2 for a, b in itertools.pairwise(around)} - set(known)
        if not new:
            return known[at]
        known = sorted({*known, *new})
