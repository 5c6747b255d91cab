"""Base class of all mechanisms, and the simplest one: independent noise in every round."""

import abc
import dataclasses
import hashlib
import json
import math
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import scipy

from dpfl import _json, _validate, errors
from dpfl.mechanisms import kernels, rounding, toeplitz
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.mechanisms.sensitivities.tree_sensitivity import Forest
from dpfl.participation import Participation

_M = TypeVar('_M', bound='Mechanism')

# Relative error up to which a sensitivity counts as exact.
_NEARLY_EXACT = 1e-9
# Relative error up to which a bound of first order holds.
_MOST_ERROR = 1e-2


def checked_starts(starts: Any, rounds: int) -> tuple[int, ...]:
    """First rounds of all parts of a run but the first one, as a tuple.

    Raises:
      ArgumentError: if they are not integers that increase within 1 .. rounds - 1.
    """
    starts = _validate.integers('starts', starts, minimum=1, maximum=_validate.MOST_ROUNDS)
    bounds = (0, *starts, rounds)
    if any(end <= start for start, end in zip(bounds, bounds[1:], strict=False)):
        raise errors.ArgumentError(
            'starts', starts, f'must increase within 1 .. {rounds - 1} (rounds - 1)'
        )
    return starts


class Mechanism(abc.ABC):
    """A square lower-triangular strategy matrix `C`, held as numbers.

    In round t the mechanism releases `x_t + (C^-1 z)_t`, where x_t is the sum of the clipped
    updates and the entries of z are independent normal variables. Subclasses are frozen
    dataclasses of numbers with a field `rounds`; `registry` lists them.

    Attributes:
      name: name of the type in files, in reports, and of --mechanism.
      rounds: number of rounds.
      shortens: whether `with_rounds` takes fewer rounds.
      extends: whether `with_rounds` takes any larger number of rounds.
      is_identity: whether `C` is the identity: noise of one size, independent in every round.
      starts_afresh: whether the noise starts afresh in given rounds, see `fresh_rounds`.

    Example:
      >>> mechanism: Mechanism = Identity(4)
      >>> mechanism.squared_error()  # Of the prefix sums, for unit noise.
      array([1., 2., 3., 4.])
    """

    name: ClassVar[str]
    shortens: ClassVar[bool] = True
    extends: ClassVar[bool] = True
    is_identity: ClassVar[bool] = False
    starts_afresh: ClassVar[bool] = False
    rounds: int

    def __post_init__(self) -> None:
        rounds = _validate.integer('rounds', self.rounds, minimum=1, maximum=_validate.MOST_ROUNDS)
        object.__setattr__(self, 'rounds', rounds)  # Also an integer of NumPy, which JSON has not.

    # Of subclasses that hold arrays, which are dataclasses with `eq=False`.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.digest())

    # The matrix, and how to stream its noise.

    @abc.abstractmethod
    def strategy_matrix(self) -> np.ndarray:
        """`C`, float64 [rounds, rounds], lower-triangular with a positive diagonal."""

    @abc.abstractmethod
    def kernel(self) -> kernels.Kernel:
        """How to stream `C^-1 z`."""

    def num_buffers(self) -> int:
        """Size of the noise state while streaming, in copies of one round's noise."""
        return self.kernel().buffers

    def with_rounds(self: _M, rounds: int) -> _M:
        """The same mechanism for another number of rounds.

        For fewer rounds, `C` is the leading block.

        Raises:
          ArgumentError: if the mechanism cannot have this number of rounds; see `shortens` and
            `extends`.
        """
        return dataclasses.replace(cast(Any, self), rounds=rounds)

    def begins_like(self, other: 'Mechanism', rounds: int) -> bool:
        """Whether the first `rounds` rounds of two mechanisms are known to be the same.

        Then noise of the same keys is the same in these rounds, and a run of one of them can go on
        as a run of the other.

        Args:
          other: a mechanism.
          rounds: at most the rounds of either.
        """
        if not self.shortens and self.rounds != other.rounds:
            return False
        if type(self) is not type(other) or rounds > min(self.rounds, other.rounds):
            return False
        if not self.shortens:
            return self.to_dict() == other.to_dict()
        return self.with_rounds(rounds).to_dict() == other.with_rounds(rounds).to_dict()

    @property
    def fresh_rounds(self) -> tuple[int, ...]:
        """Rounds after round 0 in which the noise starts afresh, independent of earlier noise."""
        return ()

    @property
    def strategy_bands(self) -> int | None:
        """Number of diagonals of `C` that may be non-zero; None if `C` is not banded."""
        return None

    def toeplitz_column(self, rounds: int) -> np.ndarray | None:
        """First column of `C` over `rounds` rounds, float64 [rounds], if `C` is Toeplitz.

        None for a mechanism whose `C` is not held as Toeplitz coefficients.
        """
        return None

    def column_norms(self) -> np.ndarray:
        """Norms of the columns of `C`, float64 [rounds]."""
        return np.linalg.norm(self.strategy_matrix(), axis=0)

    # What is released, and its sensitivity.

    def released_matrix(self) -> np.ndarray:
        """The matrix M, [any, rounds], for which the sensitivity counts `M x + z` as released.

        This is `strategy_matrix`, except where the accounting counts more than is released.
        """
        return self.strategy_matrix()

    def released_until(self, rounds: int) -> np.ndarray:
        """`released_matrix` of a run that stops after `rounds` rounds, [any, rounds]."""
        return self.with_rounds(rounds).released_matrix()

    def forest(self) -> Forest | None:
        """The tree nodes whose counts give the sensitivity; None if it is not given by nodes."""
        return None

    def describe_release(self) -> str:
        """One sentence for reports: what the sensitivity counts as released."""
        return 'The release of all rounds is accounted for as one Gaussian release of C x.'

    @abc.abstractmethod
    def _sensitivity(self, participation: Participation) -> Sensitivity:
        """Sensitivity for a schema with the rounds of the mechanism."""

    def _sensitivity_of_first(self, participation: Participation) -> Sensitivity:
        """Sensitivity for a schema with at most the rounds of the mechanism."""
        return self.with_rounds(participation.rounds)._sensitivity(participation)

    def sensitivity(self, participation: Participation) -> float:
        """Largest norm of `C u` over all patterns that the schema admits, for clip norm 1.

        The result is never below the truth; `sensitivity_is_exact` says whether it is equal. A
        schema with fewer rounds than the mechanism describes a run that stops early.

        Raises:
          ArgumentError: if the schema has more rounds than the mechanism.
        """
        return rounding.root_up(self.sensitivity_bound(participation).squared)

    def sensitivity_is_exact(self, participation: Participation) -> bool:
        """Whether an admitted pattern attains `sensitivity`."""
        return self.sensitivity_bound(participation).is_exact

    def sensitivity_bound(self, participation: Participation) -> Sensitivity:
        """The squared `sensitivity`, rounded up, and whether it is exact up to that rounding."""
        _validate.integer('rounds', participation.rounds, minimum=1, maximum=self.rounds)
        # Sums over rounds, and over participations with transforms of a few roundings each.
        terms = 4 * (participation.rounds + 10 * participation.count)
        bound = self._sensitivity_of_first(participation)
        return self.rounded_up(bound, participation.rounds, participation.count, terms)

    def rounded_up(self, bound: Sensitivity, rounds: int, count: int, terms: int) -> Sensitivity:
        """A computed sensitivity, raised so that it is not below the true one.

        Args:
          bound: the computed one.
          rounds: number of rounds of the run.
          count: most participations of a client, whose columns have an error of at most
            `column_error` each. The sensitivity is infinite if that leaves no digits.
          terms: as in `rounding.sum_up`.
        """
        if self.is_counted():
            return bound
        error = count * self.column_error(rounds)
        if error > _MOST_ERROR:
            return Sensitivity(math.inf, is_exact=False)
        squared = rounding.sum_up(bound.squared, terms) * (1 + error) ** 2
        return Sensitivity(squared, bound.is_exact and error <= _NEARLY_EXACT)

    def is_counted(self) -> bool:
        """Whether the squared sensitivity is an integer, computed without rounding."""
        return False

    def column_error(self, rounds: int) -> float:
        """Bound of the relative error of the computed columns of `C` where digits cancel.

        0 if `C` consists of sums of numbers of one sign, whose few roundings `sensitivity_bound`
        counts.

        Args:
          rounds: number of rounds of the run, at most those of the mechanism.
        """
        return 0.0

    # Error and loss.

    def squared_error(self, workload: np.ndarray | None = None) -> np.ndarray:
        """Variance of each row of the workload for unit noise: squared row norms of `B = A C^-1`.

        Args:
          workload: A, see `mechanisms.workload`; None for the prefix sums.

        Returns:
          float64 [rounds].
        """
        if workload is None:
            return self._prefix_squared_error()
        a, prefix = workloads.cut(workload, self.rounds), self._prefix_coefficients()
        if a.ndim == 1 and prefix is not None:
            return toeplitz.workload_squared_error(prefix, a)
        a = workloads.matrix(a, self.rounds)
        # B C = A, so C^T B^T = A^T.
        decoder = scipy.linalg.solve_triangular(self.strategy_matrix(), a.T, lower=True, trans='T')
        return (decoder**2).sum(axis=0)

    def _prefix_squared_error(self) -> np.ndarray:
        """`squared_error` of the prefix sums; most subclasses have a faster way."""
        prefix = self._prefix_coefficients()
        return self.squared_error(np.ones(self.rounds)) if prefix is None else np.cumsum(prefix**2)

    def _prefix_coefficients(self) -> np.ndarray | None:
        """First column of `B` of the prefix sums, float64 [rounds], if `C` is held as Toeplitz.

        B is then Toeplitz, with the cumulative sums of the first column of `C^-1` as coefficients
        ([McMahan24], proposition 3.3). None for other mechanisms.
        """
        return None

    def max_error(self, workload: np.ndarray | None = None) -> float:
        """Largest standard deviation of a prefix sum, for unit noise ([McMahan24], section 3.2)."""
        return math.sqrt(self.squared_error(workload).max())

    def rms_error(self, workload: np.ndarray | None = None) -> float:
        """Root mean square over rounds of the prefix sums' standard deviations, for unit noise."""
        return math.sqrt(self.squared_error(workload).mean())

    def max_loss(self, participation: Participation, workload: np.ndarray | None = None) -> float:
        """`max_error` times `sensitivity` ([McMahan24], equation 9)."""
        return self.max_error(workload) * self.sensitivity(participation)

    def rms_loss(self, participation: Participation, workload: np.ndarray | None = None) -> float:
        """`rms_error` times `sensitivity` ([McMahan24], equation 10)."""
        return self.rms_error(workload) * self.sensitivity(participation)

    # As data.

    def to_dict(self) -> dict[str, Any]:
        """The parameters as plain numbers and lists; `mechanisms.from_dict` reads them back."""
        return {'mechanism': self.name, **_json.fields_of(self)}

    def digest(self) -> str:
        """SHA-256 of the parameters, hexadecimal: equal mechanisms have equal digests."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Identity(Mechanism):
    """Independent noise (DP-FedAvg and DP-SGD without amplification by sampling).

    Attributes:
      rounds: number of rounds, at least 1.

    Example:
      >>> Identity(100).sensitivity(Participation(100, min_separation=25))  # Root of four rounds.
      2.0
    """

    name: ClassVar[str] = 'gaussian'
    is_identity: ClassVar[bool] = True
    starts_afresh: ClassVar[bool] = True
    rounds: int

    @property
    def fresh_rounds(self) -> tuple[int, ...]:
        return tuple(range(1, self.rounds))

    @property
    def strategy_bands(self) -> int:
        return 1

    def strategy_matrix(self) -> np.ndarray:
        return np.eye(self.rounds)

    def kernel(self) -> kernels.StateSpace:
        return kernels.StateSpace(np.ones((1, 1, 1)))

    def column_norms(self) -> np.ndarray:
        return np.ones(self.rounds)

    def is_counted(self) -> bool:
        return True

    def _prefix_squared_error(self) -> np.ndarray:
        return np.arange(1.0, self.rounds + 1)

    def _sensitivity(self, participation: Participation) -> Sensitivity:
        return Sensitivity(float(participation.count), is_exact=True)
