r"""A proven lower bound on the loss of every mechanism for a participation schema.

For any linear mechanism `A = B C` let `X = C^T C`. The signed indicator u of an admitted pattern
has `||C u||^2 = u^T X u`, so the squared sensitivity is at least `tr(X M)` for each M in the convex
hull of all u u^T. For weights w of the rounds with sum 1, the largest squared error and, with equal
weights, the mean one are at least `tr(W B B^T)`. With Y = W^(1/2) A M^(1/2), for any such w and M

    loss^2 >= ||W^(1/2) B||_F^2 ||C M^(1/2)||_F^2 >= ||W^(1/2) B C M^(1/2)||_*^2 = ||Y||_*^2,

because the nuclear norm of a product is at most the product of the Frobenius norms. Nothing is
assumed of C: it may have any shape, and any entries.

The best (w, M) is tight: the bound is then the least loss there is. `lower_bound_search` finds good
ones for a problem with few rounds, which are spread to all rounds; the bound is evaluated once, at
full size. Wherever the search ends, the bound holds.
"""

import numpy as np
from scipy import linalg

from dpfl import _validate
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.optimize import lower_bound_search
from dpfl.mechanisms.optimize.signed_patterns import Chain
from dpfl.participation import Participation

_EPSILON = np.finfo(np.float64).eps
# Most entries of M that are added up, over all pairs of participations.
_MOST_ADDITIONS = 4e10


def loss_lower_bound(
    participation: Participation, loss: str = 'max', workload: np.ndarray | None = None
) -> float:
    """A number that no linear mechanism's loss is below, whatever its matrix.

    It bounds `Mechanism.max_loss` and `Mechanism.rms_loss` for the schema: of strategies with any
    entries and any memory, banded, inverse, tree or none of these. Where a client may take part in
    every block of the separation, the best strategies that are known are mostly within 4 % of it
    (benchmarks/mechanism_table.md). Where it may not, the distance is larger; how much of that
    is the bound's own is not known.

    The result is deterministic. The search takes seconds, whatever the number of rounds n is: at
    most about a minute of one core. Its result is evaluated by the eigenvalues of a matrix [n, n],
    which takes O(n^3) operations, 7 s of one core for 4000 rounds and 100 s for 10,000, and the
    memory of two such matrices, 1.7 GB for 10,000.

    Args:
      participation: the schema.
      loss: 'max' or 'rms'.
      workload: A, see `mechanisms.workload`; None for the prefix sums.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.choice('loss', loss, ('max', 'rms'))
    a = None if workload is None else workloads.matrix(workload, participation.rounds)
    if a is not None and not a.any():
        return 0.0
    size = _size(participation)
    chain, weights = lower_bound_search.search(size, loss, a)
    chain = chain.with_participations(size.participations)
    return nuclear_norm(chain, lower_bound_search.interpolated(weights, size.rounds), size, a)


def _size(participation: Participation) -> lower_bound_search.Size:
    """The problem to solve: of fewer patterns where all are too many, or too fine for its cells."""
    n, k = participation.rounds, participation.count
    separation = int(min(participation.min_separation, n))
    size = lower_bound_search.size_of(n, separation, k)
    if size.offsets > separation and (k * size.offsets) ** 2 / 2 > _MOST_ADDITIONS:
        size = lower_bound_search.size_of(n, -(-n // k), k)
    cells = lower_bound_search.levels(size)[-1].offsets
    last_block = n - (size.participations - 1) * size.separation
    if last_block * cells < size.offsets:
        # Less than a cell of the last block is before the end.
        size = lower_bound_search.size_of(n, size.separation, size.participations - 1)
    return size


def nuclear_norm(
    chain: Chain,
    weights: np.ndarray,
    size: lower_bound_search.Size,
    workload: np.ndarray | None = None,
) -> float:
    """The bound that patterns and weights prove, less what rounding can add to it.

    It is the nuclear norm of `W^(1/2) A M^(1/2)`. Computed eigenvalues are off by at most a small
    multiple of n times the largest one and the unit of rounding, and the sums that M consists of,
    by as much in the Frobenius norm.

    Args:
      chain: the patterns, of as many participations as `size` has.
      weights: of the rounds, with sum 1, [rounds].
      size: the problem.
      workload: A, [rounds, rounds]; None for the prefix sums.
    """
    moments = chain.moments(size.rounds, size.separation, size.offsets)
    # At most as many numbers are added up for an entry of M.
    terms = chain.participations * chain.cells
    roots = np.sqrt(weights)
    if workload is None:
        np.cumsum(moments, axis=0, out=moments)
        np.cumsum(moments, axis=1, out=moments)
        moments *= roots[:, None]
        moments *= roots
        trace = np.trace(moments)
    else:
        weighted = roots[:, None] * workload
        trace = ((np.abs(weighted) @ moments) * np.abs(weighted)).sum()
        moments = weighted @ moments @ weighted.T
    operations = 16 * (len(moments) + terms) * _EPSILON
    values = linalg.eigvalsh(moments, overwrite_a=True, check_finite=False)
    values -= operations * trace
    return float(np.sqrt(np.maximum(values, 0)).sum() * (1 - operations))
