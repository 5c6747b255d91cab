"""Optimiser of banded mechanisms: banded matrix factorisation (BandMF) and free column norms.

With `X = C^T C` the squared error of round t is `e_t = (A X^-1 A^T)_tt`, which is convex in X. X
has the bands of C, and the squared norms of the columns of C on its diagonal. If the bands are
at most the minimum separation, the columns of a pattern are orthogonal, so the squared sensitivity
is the heaviest pattern of squared column norms, whatever the other entries are. BandMF
([McMahan24], section 2.3) minimises the sum of e for equal norms. `banded_descent` states which
other norms have the same sensitivity.

L-BFGS (`banded_descent`) starts from the optimal banded Toeplitz matrix, or for many bands from an
interpolation of the optimum for half the rounds and bands, which is found in the same way. The
largest e is minimised through power means with rising powers. They begin higher from an
interpolation, where the errors are already nearly equal.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np

from dpfl import _progress, _validate, errors
from dpfl.mechanisms import banded
from dpfl.mechanisms import workload as workloads
from dpfl.mechanisms.optimize import banded_error, driver
from dpfl.mechanisms.optimize.banded_descent import Descent, Norms, Point, refined_rows, unit_rows
from dpfl.mechanisms.optimize.banded_toeplitz import optimize_banded_toeplitz
from dpfl.participation import Participation

_VERSION = 4
# A search ends when a step lowers the squared loss by less than this share. That is about a
# hundredth of what is left.
_TOLERANCE = {'rms': 1e-10, 'max': 1e-7}
# For tables of more entries, where every step takes longer, and for coarser problems.
_LARGE = 50_000
_LARGE_TOLERANCE = {'rms': 1e-9, 'max': 1e-5}
_LARGE_FREE_TOLERANCE = {'rms': 1e-6, 'max': 3e-6}  # With many weights, steps are small.
# For tables of even more entries, where a step takes seconds.
_HUGE = 1_000_000
_HUGE_TOLERANCE = {'rms': 1e-6, 'max': 1e-5}
_COARSE_TOLERANCE = 1e-6
# Fewest bands for which solving a coarser problem first pays.
_COARSE_BANDS = 48
# Exponents of power means. The last mean is at least n^(-1/5000) of the largest of n errors, and
# comes much closer because most errors are then equal.
_POWERS = {'rms': (1,), 'max': (12, 50, 200, 1000, 5000)}
# From the optimum of a coarser problem.
_LATER_POWERS = {'rms': (1,), 'max': (200, 1000, 5000)}
_NORMS = {'equal': Norms.equal, 'free': Norms.free}


def optimize_banded(
    participation: Participation,
    bands: int,
    *,
    loss: str = 'rms',
    column_norms: str = 'equal',
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> banded.Banded:
    """Finds the banded strategy of least loss: by default BandMF.

    The search is deterministic. Results are cached on disk, see `optimize.driver`. With n rounds
    and b bands it takes about O(n b^2) per step for workloads whose inverse has few bands, as for
    the prefix sums, momentum and learning rates, and O(n^3) for others.

    Args:
      participation: the schema. With equal column norms the result depends only on `rounds` n and
        `min_separation`.
      bands: number of bands of C, including the main diagonal: at most `min_separation` and
        `rounds`.
      loss: 'rms', to about 1e-6 of the optimum, or 1e-4 for free norms if n times the bands are
        more than 50,000, and for all norms if they are more than a million; 'max', to about 1e-3,
        or 1e-2 if they are more than 50,000.
      column_norms: 'equal' for norm 1, as in BandMF. 'free' optimises all norms for the schema:
        it has the least loss of all banded strategies, Toeplitz ones included (1.4 % less than
        BandMF at 2052 rounds in 6 blocks). The errors of single rounds differ more: for the rms
        loss early rounds get less noise and the last ones more.
      workload: A, see `mechanisms.workload`; None for the prefix sums.
      progress: whether to show the loss after each step on standard error.

    Raises:
      ArgumentError: if an argument is out of its range, or the workload has a zero on its diagonal.

    Example:
      >>> schema = Participation(40, min_separation=8)
      >>> optimize_banded(schema, bands=8).rms_loss(schema) < Identity(40).rms_loss(schema)
      True
    """
    n = participation.rounds
    most = min(n, participation.min_separation)
    _validate.integer('bands', bands, minimum=1, maximum=most)
    _validate.choice('column_norms', column_norms, tuple(_NORMS))
    matrix = _checked(workload, n)
    problem = driver.Problem('optimize_banded', participation, loss, matrix, progress)

    def candidates() -> Iterator[banded.Banded]:
        with _progress.bar(desc='banded', unit='step', disable=not progress) as bar:
            search = _Search(loss, column_norms, matrix, _reporter(bar, participation, loss))
            yield banded.Banded(search.solve(participation, bands))
            if column_norms == 'free':
                yield search.toeplitz(participation, bands)
                # In these cases free norms gain little, and with many weights their search ends
                # before the last digits.
                is_hard = loss == 'max' and n * bands > _LARGE
                if is_hard or not _fills_blocks(participation):
                    equal = dataclasses.replace(search, column_norms='equal')
                    yield banded.Banded(equal.solve(participation, bands))

    return problem.solve(
        banded.Banded, candidates, version=_VERSION, bands=bands, column_norms=column_norms
    )


def _checked(workload: np.ndarray | None, n: int) -> np.ndarray | None:
    """The workload as a matrix [n, n]; None for the prefix sums."""
    if workload is None:
        return None
    matrix = workloads.matrix(workload, n)
    if not np.diag(matrix).all():
        t = int(np.flatnonzero(np.diag(matrix) == 0)[0])
        raise errors.ArgumentError(
            'workload',
            errors.NOT_SHOWN,
            f'has 0 at [{t}, {t}], must have no 0 on its diagonal for an optimum to exist',
        )
    is_prefix = all((row[: t + 1] == 1).all() for t, row in enumerate(matrix))
    return None if is_prefix else matrix


def _fills_blocks(participation: Participation) -> bool:
    """Whether the schema admits a round in every block of `min_separation` rounds."""
    return participation.count * participation.min_separation >= participation.rounds


def _reporter(
    bar: _progress.Bar, participation: Participation, loss: str
) -> Callable[[int, float], None]:
    """Shows the rounds and about the loss of the current problem after each step."""

    def report(n: int, squared: float) -> None:
        text = f'{n} of {participation.rounds} rounds, {loss} loss {math.sqrt(squared):.4f}'
        bar.set_postfix_str(text)
        bar.update()

    return report


@dataclasses.dataclass(frozen=True)
class _Search:
    """A search, see `optimize_banded`; the workload is [n, n] or None."""

    loss: str
    column_norms: str
    workload: np.ndarray | None
    report: Callable[[int, float], None]

    def solve(self, participation: Participation, bands: int) -> np.ndarray:
        """Diagonals of C with the squared sensitivity `participation.count`, [n, bands]."""
        tolerance = self._tolerance(participation.rounds * bands)
        descent, point = self._optimum(participation, bands, tolerance)
        return descent.strategy(point)

    def _tolerance(self, entries: int) -> float:
        """Tolerance that ends a search over `entries` entries."""
        if entries > _HUGE:
            return _HUGE_TOLERANCE[self.loss]
        if entries <= _LARGE:
            return _TOLERANCE[self.loss]
        is_free = self.column_norms == 'free'
        return (_LARGE_FREE_TOLERANCE if is_free else _LARGE_TOLERANCE)[self.loss]

    def toeplitz(self, participation: Participation, bands: int) -> banded.Banded:
        """The banded Toeplitz matrix of least loss."""
        # The max loss of a dense workload takes long, and a start need not be optimal.
        loss = self.loss if self.workload is None else 'rms'
        optimum = optimize_banded_toeplitz(participation, bands, loss, workload=self.workload)
        column = optimum.toeplitz_column(participation.rounds)[:bands]
        inside = np.arange(bands) <= np.arange(participation.rounds)[:, None]
        return banded.Banded(np.where(inside, column, 0.0))

    def _optimum(
        self, participation: Participation, bands: int, tolerance: float
    ) -> tuple[Descent, Point]:
        n = participation.rounds
        norms = _NORMS[self.column_norms](participation)
        inverse = banded_error.workload_inverse(self.workload, n)
        error: banded_error.BlockError | banded_error.DenseError
        if inverse is None:
            assert self.workload is not None
            error = banded_error.DenseError(bands, self.workload)
        else:
            error = banded_error.BlockError(bands, inverse)
        if self.workload is None and bands >= _COARSE_BANDS:
            point, powers = self._refined(participation, bands, norms), _LATER_POWERS
        else:
            schema = participation
            if self.column_norms == 'equal':  # The participations do not matter.
                schema = dataclasses.replace(participation, max_participations=None)
            rows = unit_rows(self.toeplitz(schema, bands).diagonals)
            point, powers = Point(rows, norms.start(participation)), _POWERS
        for power in powers[self.loss]:
            descent = Descent(error, norms, power, self.report)
            point = descent.minimise(point, tolerance)
        return descent, point

    def _refined(self, participation: Participation, bands: int, norms: Norms) -> Point:
        """A start from the optimum for half the rounds and bands."""
        half = dataclasses.replace(
            participation,
            rounds=-(-participation.rounds // 2),
            min_separation=-(-participation.min_separation // 2),
        )
        half_bands = -(-bands // 2)
        entries = half.rounds * half_bands
        tolerance = self._tolerance(entries) if entries > _HUGE else _COARSE_TOLERANCE
        _, point = self._optimum(half, half_bands, tolerance)
        rows = unit_rows(refined_rows(point.rows, participation.rounds, bands))
        coarse = _NORMS[self.column_norms](half)
        return Point(rows, norms.refined(coarse, point.weights, participation))
