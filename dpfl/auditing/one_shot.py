"""Scores of the canaries of a run, from its final state: one run, and no other training.

Two attackers look for a canary along its direction ([Andrew24]):

- one sees every release. Whitened by the strategy, and projected on the rounds of the canary, the
  releases are one vector: the direction with the largest length that the canary has anywhere, plus
  noise of the same size in all dimensions. The cosine with that vector is the score. This is the
  optimal test for Gaussian noise, so it is at least as strong as the largest cosine of all rounds;
- one sees the final model only: the score is the cosine with the change of the model.

Besides, the sums of all rounds are tested against the plan (`sum_tests`).

The first attacker also knows the updates of all other canaries, as the attacker of differential
privacy does, and subtracts them. Updates of clients are not subtracted: the more they agree, the
lower the score.
"""

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from dpfl import accounting, errors
from dpfl.accounting.measured import sums
from dpfl.accounting.measured.measured import Scores
from dpfl.aggregators import audited_query
from dpfl.auditing import sum_tests
from dpfl.auditing.canaries import CanaryDesign
from dpfl.auditing.sum_tests import RoundSums

# Directions that are made at a time take about this much memory, in float64 numbers.
_BLOCK = 1 << 22


@dataclasses.dataclass(frozen=True)
class OneShotAudit:
    """The audit of a run whose query adds the canaries of a design.

    Attributes:
      design: of the canaries.
      trained: maps the model weights of the process to those that the sums of clients change, a
        structure of arrays; by default the trainable ones.
    """

    design: CanaryDesign
    trained: Callable[[Any], Any] = operator.attrgetter('trainable')

    def scores(self, before: Any, after: Any, state: Any, plan: accounting.PrivacyPlan) -> Scores:
        """Scores of the canaries, and the test of the sums.

        Args:
          before: model weights of the process before the first round.
          after: those after the last round.
          state: of the learning process after the last round.
          plan: of the run.

        Raises:
          ArgumentError: if the state is not that of a run with canaries.
        """
        released = np.asarray(_part(state, audited_query.CanaryState).released)
        change = _flat(self.trained(before)) - _flat(self.trained(after))
        releases, final_model = cosines(self.design, released, change)
        return Scores(
            took_part=self.design.takes_part,
            rounds=self.design.rounds.sum(axis=1),
            releases=releases,
            final_model=final_model,
            dimension=change.size,
            pattern=self.design.pattern,
            sums=sum_tests.test(self.round_sums(before, state, plan), plan),
        )

    def round_sums(self, before: Any, state: Any, plan: accounting.PrivacyPlan) -> RoundSums:
        """Statistics of the sums of all rounds; arguments and errors as those of `scores`."""
        audited = _part(state, audited_query.AuditedState)
        sizes = [int(np.size(weight)) for weight in tf.nest.flatten(self.trained(before))]
        rounds = plan.participation.rounds
        return RoundSums(
            residuals=np.asarray(audited.residuals),
            tensors=audited_query.kept_coordinates(sizes, rounds)[1],
            clip_errors=np.asarray(audited.clip_errors),
            largest=np.asarray(audited.largest),
            planted=planted_clip_errors(self.design, sizes, plan.clients_per_round),
        )


def planted_clip_errors(design: CanaryDesign, sizes: list[int], clients: int) -> dict[str, float]:
    """By how much faults of clipping change the sum of the round with the most canaries.

    Args:
      design: of the canaries. The effect of a fault on updates of clients is left out.
      sizes: numbers of coordinates of the tensors of an update.
      clients: of a round.

    Returns:
      The length of the change in clip norms per client, for each of `sums.CLIP_FAULTS`.
    """
    cohort = max(design.added().cohorts, key=len)
    sizes = [size for size in sizes if size]
    begins = np.cumsum([0, *sizes[:-1]])
    added, alone = np.zeros((2, sum(sizes)))
    at_a_time = max(1, _BLOCK // sum(sizes))
    for begin in range(0, len(cohort), at_a_time):
        numbers = cohort[begin : begin + at_a_time]
        directions = audited_query.directions(design.seed, numbers, sum(sizes))
        lengths = np.sqrt(np.add.reduceat(np.square(directions), begins, axis=1))
        added += directions.sum(axis=0)
        alone += (directions / np.repeat(lengths, sizes, axis=1)).sum(axis=0)
    per_client = 1 / (clients + len(cohort))
    changes = ((audited_query.LENGTH - 1) * added, 9 * added, alone - added)
    return {
        name: float(np.linalg.norm(change)) * per_client
        for name, change in zip(sums.CLIP_FAULTS, changes, strict=True)
    }


def cosines(
    design: CanaryDesign, released: np.ndarray, change: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of all canaries with the releases and with the change of the model.

    Every direction is made twice, a block at a time: memory does not grow with their number.

    Args:
      design: of the canaries.
      released: the weighted sums of the releases, in clip norms, [groups, d].
      change: initial minus final model, [d].

    Returns:
      Two arrays [canaries]. A canary that took part has the other canaries subtracted from its
      sum, one that was held out all of them. The cosine with a vector of length 0 is 0.
    """
    size, effects = change.size, design.effects
    # The sum of all canaries in each release.
    added = np.zeros(released.shape)

    def add(numbers: slice, directions: np.ndarray) -> None:
        np.add(added, effects[numbers].T @ directions, out=added)

    _each_block(design, size, add)
    others = released.astype(np.float64) - added
    own = effects[np.arange(len(effects)), design.group]
    along = np.zeros((2, len(effects)))

    def project(numbers: slice, directions: np.ndarray) -> None:
        products = directions @ np.vstack([others, change]).T
        rows = np.arange(len(products))
        along[0, numbers] = products[rows, design.group[numbers]]
        along[1, numbers] = products[:, -1]

    _each_block(design, size, project)
    # The canary's own share comes back to the sum without any canary.
    squared = np.square(others).sum(axis=1)[design.group] + 2 * own * along[0] + own**2
    return (
        _quotient(along[0] + own, np.sqrt(np.maximum(squared, 0.0))),
        _quotient(along[1], np.full(len(effects), np.linalg.norm(change))),
    )


def _each_block(design: CanaryDesign, size: int, use: Callable[[slice, np.ndarray], None]) -> None:
    """Calls `use` with the numbers and the directions of all canaries, a block at a time."""
    at_a_time = max(1, _BLOCK // size)
    for begin in range(0, len(design.group), at_a_time):
        numbers = slice(begin, min(begin + at_a_time, len(design.group)))
        use(numbers, audited_query.directions(design.seed, np.r_[numbers], size))


def _part(state: Any, kind: type) -> Any:
    """The part of the state of a learning process that is of a kind."""
    parts: list[Any] = []

    def visit(part: Any) -> None:
        if isinstance(part, kind):
            parts.append(part)

    tree.traverse(visit, state)
    if len(parts) != 1:
        raise errors.ArgumentError('state', errors.NOT_SHOWN, 'must hold the sums of canaries')
    return parts[0]


def _flat(weights: Any) -> np.ndarray:
    return np.concatenate(
        [np.asarray(weight, np.float64).ravel() for weight in tf.nest.flatten(weights)]
    )


def _quotient(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
