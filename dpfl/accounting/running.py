"""Epsilon after each round of a run, by the accountant of its report, at little cost per round."""

import functools
import math

from dpfl import _validate
from dpfl.accounting.plan import PrivacyPlan
from dpfl.mechanisms import rounding

# The privacy loss distribution is computed for 64 rounds per factor of e; a round between two of
# them takes the epsilon of the later one.
_KNOTS = 64
# By how much its grid is coarser before the last round.
_COARSENESS = 16.0


class RunningEpsilon:
    """Epsilon of the first rounds of a run, as its metrics show it.

    After the last round it is `plan.epsilon(delta, accountant)`, to the last bit. Before, it is at
    most that, an upper bound by the same accountant, and mostly its very number. Privacy loss
    distributions would take up to a second in every round, so before the last round:

    - without sampling, 'pld' is the exact curve, raised by the factor by which 'pld' exceeds it
      after the last round. For delta >= 1e-10 that is 'pld' itself up to a relative 1e-6.
    - with sampling, 'pld' is computed on a coarser grid, and for about 64 rounds in each factor of
      e; a round between them has the value of the next one. It exceeds 'pld' by at most 2 %.
    - with groups that take turns, every accountant counts the turn of all groups from the first
      round of a turn on.

    With a sampling that has a bound of its own, whose computation may take minutes, the epsilon
    before the last round is that without amplification, and at most that of the whole run.

    Hardened noise counts the rounding of the whole run from the first round on.

    Args:
      plan: of the whole run.
      delta: strictly between 0 and 1.
      accountant: one of `plan.accountants`.

    Raises:
      ArgumentError: if the accountant does not know the plan, or delta is not within (0, 1).
    """

    def __init__(self, plan: PrivacyPlan, delta: float, accountant: str):
        _validate.number('delta', delta, above=0, below=1)
        _validate.choice('accountant', accountant, plan.accountants)
        self._plan, self._delta, self._accountant = plan, delta, accountant
        self._rounds = plan.participation.rounds
        self._of_sensitivity = functools.lru_cache(1)(self._by_sensitivity)
        # One entry for each accountant but 'best'.
        self._at = functools.lru_cache(3)(self._of_rounds)

    def after(self, rounds: int) -> float:
        """Epsilon of the first `rounds` rounds; infinity without noise.

        A pure function of the plan and the round, so that a run that continues has the same.

        Raises:
          ArgumentError: if `rounds` is not within 1 and the rounds of the plan.
        """
        _validate.integer('rounds', rounds, minimum=1, maximum=self._rounds)
        plan = self._plan
        if rounds == self._rounds:
            return self._last
        if plan.sampling is None:
            schema = plan.participation.within(rounds)
            squared = plan.mechanism.sensitivity_bound(schema).squared
            epsilon = self._of_sensitivity(plan.sensitivity_of_norm(rounding.root_up(squared)))
            # A bound of the sensitivity may be smaller for more rounds.
            return min(epsilon, self._last)
        return self._sampled(rounds)

    def _by_sensitivity(self, sensitivity: float) -> float:
        """Epsilon for a sensitivity of the rounds so far; it changes in few rounds only."""
        if self._accountant != 'pld':
            return self._bound(sensitivity, self._accountant)
        return self._bound(sensitivity, 'analytic_gaussian') * self._excess

    def _bound(self, sensitivity: float, accountant: str) -> float:
        run = self._plan.run_of_sensitivity(sensitivity)
        return run.bound(self._delta, accountant, self._plan.neighbours).epsilon

    @functools.cached_property
    def _last(self) -> float:
        return self._plan.epsilon(self._delta, self._accountant)

    @functools.cached_property
    def _excess(self) -> float:
        """Epsilon of the run by 'pld' divided by the exact value."""
        exact = self._bound(self._plan.sensitivity, 'analytic_gaussian')
        return self._last / exact if 0 < exact < math.inf else 1.0

    def _sampled(self, rounds: int) -> float:
        turn = self._with_all_groups(rounds)
        if self._plan.has_own_bound:
            # Without amplification, of a client with the largest norm, whatever its bin.
            so_far = self._plan.with_participation(self._plan.participation.within(turn))
            return min(self._of_sensitivity(so_far.sensitivity), self._last)
        if self._accountant not in ('pld', 'best'):
            return min(self._at(turn, self._accountant), self._last)
        # The coarser grid may exceed the value of the whole run, which holds for a part of it too.
        epsilon = self._last
        if 'pld' in self._plan.accountants:
            knot = self._with_all_groups(self._knot(rounds))
            epsilon = min(self._at(knot, 'pld'), epsilon)
        if self._accountant == 'pld':
            return epsilon
        quick = [name for name in self._plan.accountants if name not in ('pld', 'best')]
        return min([epsilon, *(self._at(turn, name) for name in quick)])

    def _with_all_groups(self, rounds: int) -> int:
        """The last round of the turn that a round is in, so that few values are needed.

        The end of the rounds cuts off columns of C. In the middle of a turn they would have norms,
        and so an epsilon, of their own in every round.
        """
        assert self._plan.sampling is not None  # Else `after` has answered.
        turn = self._plan.sampling.turn
        return min(-(-rounds // turn) * turn, self._rounds)

    def _knot(self, rounds: int) -> int:
        """The first round from `rounds` on whose epsilon the loss distribution computes.

        These rounds are counted backwards, so that the last step up to the whole run is a full one.
        """
        knot = self._rounds
        while (earlier := knot - max(1, knot // _KNOTS)) >= rounds:
            knot = earlier
        return knot

    def _of_rounds(self, rounds: int, accountant: str) -> float:
        so_far = self._plan.with_participation(self._plan.participation.within(rounds))
        return so_far.bound(self._delta, accountant, _COARSENESS).epsilon
