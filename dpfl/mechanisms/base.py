"""What every mechanism offers."""

import abc
import dataclasses
import hashlib
import json
import math
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import linalg

from dpfl import _validate
from dpfl.mechanisms import rounding
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.streaming import kernels
from dpfl.participation import Participation


class Sensitivity(NamedTuple):
    """Largest norm of `C u` over the admitted patterns, for clip norm 1: squared, never below it.

    `is_exact` is False where `squared` is a proven upper bound that may not be attained.
    """

    squared: float
    is_exact: bool


class Mechanism(abc.ABC):
    """A square lower-triangular strategy matrix `C`, held as numbers.

    The mechanism releases `x_t + (C^-1 z)_t` in round t, where x_t is the sum of the clipped
    updates and the entries of z are independent normal variables. Subclasses are frozen
    dataclasses of numbers with a field `rounds`.
    """

    name: ClassVar[str]
    rounds: int

    @abc.abstractmethod
    def strategy_matrix(self) -> np.ndarray:
        """`C`, float64 [rounds, rounds], lower-triangular with a positive diagonal."""

    @abc.abstractmethod
    def kernel(self) -> kernels.Kernel:
        """How to stream `C^-1 z`."""

    @abc.abstractmethod
    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Sensitivity over all `rounds` of this mechanism, which are those of the schema."""

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        """Variance of each row of the workload for unit noise: squared row norms of `B = A C^-1`.

        Args:
          workload: A, see `mechanisms.workload`; None for the prefix sums.

        Returns:
          float64 [rounds].
        """
        if workload is None:
            return self._prefix_squared_error()
        a = workloads.matrix(workload, self.rounds)
        # B C = A, so C^T B^T = A^T.
        decoder = linalg.solve_triangular(self.strategy_matrix(), a.T, lower=True, trans='T')
        return (decoder**2).sum(axis=0)

    def _prefix_squared_error(self) -> np.ndarray:
        """`squared_error` of the prefix sums; subclasses know faster ways."""
        return self.squared_error(np.ones(self.rounds))

    def released_matrix(self) -> np.ndarray:
        """The matrix whose noised product with x the sensitivity counts as released.

        `strategy_matrix` unless a mechanism is accounted for releasing more than it does.
        """
        return self.strategy_matrix()

    def with_rounds(self, rounds: int) -> 'Mechanism':
        """The same mechanism for another number of rounds: the shorter `C` is the leading block.

        Raises:
          ValueError: if the mechanism is made for its number of rounds only.
        """
        return dataclasses.replace(self, rounds=rounds)

    def describe_release(self) -> str:
        """One sentence for reports: what the sensitivity takes as released."""
        return 'The release of all rounds is accounted for as one Gaussian release of C x.'

    def sensitivity(self, participation: Participation) -> float:
        """Largest norm of `C u` for clip norm 1 over all patterns that the schema admits.

        Never below the truth; see `sensitivity_is_exact`. A schema of fewer rounds is that of a
        run that stops early.

        Raises:
          ValueError: if the schema has more rounds than the mechanism.
        """
        return rounding.root_up(self.sensitivity_bound(participation).squared)

    def sensitivity_is_exact(self, participation: Participation) -> bool:
        """Whether an admitted pattern attains `sensitivity`."""
        return self.sensitivity_bound(participation).is_exact

    def sensitivity_bound(self, participation: Participation) -> Sensitivity:
        """`sensitivity` squared, and whether it is exact, up to the rounding that it allows for."""
        _validate.integer('rounds', participation.rounds, minimum=1, maximum=self.rounds)
        bound = self.with_rounds(participation.rounds)._sensitivity(participation)
        if self._is_counted():
            return bound
        # Sums over rounds, and over participations with transforms of a few roundings each.
        terms = 4 * (participation.rounds + 10 * participation.count)
        return bound._replace(squared=rounding.sum_up(bound.squared, terms))

    def _is_counted(self) -> bool:
        """Whether the squared sensitivity is an integer that was counted, without rounding."""
        return False

    def max_error(self, workload: np.ndarray | None = None) -> float:
        """Largest standard deviation of a prefix sum for unit noise (document 002, section 3.2)."""
        return math.sqrt(self.squared_error(workload).max())

    def rms_error(self, workload: np.ndarray | None = None) -> float:
        """Root mean square over rounds of the standard deviation of the prefix sums, unit noise."""
        return math.sqrt(self.squared_error(workload).mean())

    def max_loss(self, participation: Participation, workload: np.ndarray | None = None) -> float:
        """`max_error` times `sensitivity` (document 002, equation 9)."""
        return self.max_error(workload) * self.sensitivity(participation)

    def rms_loss(self, participation: Participation, workload: np.ndarray | None = None) -> float:
        """`rms_error` times `sensitivity` (document 002, equation 10)."""
        return self.rms_error(workload) * self.sensitivity(participation)

    def to_dict(self) -> dict:
        """Plain numbers and lists; `mechanisms.from_dict` reads them back."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in values.items()
        }
        return {'mechanism': self.name, **plain}

    def digest(self) -> str:
        """SHA-256 of the parameters, hexadecimal: equal mechanisms have equal digests."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def best_split(left: np.ndarray, right: np.ndarray, capacity: int) -> np.ndarray:
    """Max-plus convolution: the best way to share participations between two parts.

    Args:
      left, right: value of each part by its number of participations, from 0 on.
      capacity: most participations that both have together.

    Returns:
      Entry j is the largest left[i] + right[j - i], for j = 0 .. capacity or as many as fit.
    """
    size = min(left.size + right.size - 2, capacity) + 1
    best = np.full(size, -np.inf) if left.dtype.kind == 'f' else np.zeros(size, left.dtype)
    for i, value in enumerate(left[:size]):
        part = value + right[: size - i]
        best[i : i + part.size] = np.maximum(best[i : i + part.size], part)
    return best
