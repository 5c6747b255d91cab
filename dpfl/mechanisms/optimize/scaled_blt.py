"""Optimiser of BLT mechanisms with scaled columns.

Decays, scales of the buffers and scales of the columns are optimised together, by L-BFGS with
analytic gradients, from coarse blocks of rounds to fine ones. The sensitivity in the objective is
the proven bound of `sensitivities.scaled_toeplitz`, by the search of `cutting_planes`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dpfl import _validate
from dpfl.mechanisms.block_blt import BlockBlt
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import blt_loss, cutting_planes, driver
from dpfl.mechanisms.optimize.blt import of_log_rates, optimize_blt
from dpfl.mechanisms.optimize.scaled_loss import PairSums, PrefixErrors
from dpfl.mechanisms.sensitivities import scaled_toeplitz
from dpfl.participation import Participation

_VERSION = 1
# Most scales, if they are for parts of a separation, and for whole ones.
_MOST_BLOCKS = 128
_MOST_SHORT_BLOCKS = 256
# Most participations with blocks longer than a separation.
_MOST_IN_LONG_BLOCKS = 32
# Rounds whose errors are looked at, about.
_ROWS = 1000
# Bounds of the coordinates, see `blt_loss.Objective`, and of the logs of the scales.
_BOUNDS = (np.log(1e-6), np.log(14.0))
_SCALE_BOUNDS = (-5.0, 5.0)
# Largest rate of C^-1 at the start.
_MOST_RATE = 0.97
_MAX_ITERATIONS = 100
_MOST_SUMS = 30_000  # No limit but that of their pairs.


def optimize_scaled_blt(
    participation: Participation,
    num_buffers: int = 4,
    loss: str = 'max',
    *,
    workload: np.ndarray | None = None,
    progress: bool = False,
) -> ColumnScaled:
    """Finds the BLT with scaled columns of least loss.

    Its noise takes the memory of a BLT with `num_buffers` buffers. Its loss, with the
    proven sensitivity, is at most that of `optimize_blt`. There are at most 256 scales. The columns
    are not scaled if the separation is shorter than 1/256 of the run and a client can take part in
    more than 32 rounds. The search is deterministic, and results are cached on disk, see
    `optimize.driver`.

    Args:
      participation: the schema to optimise for; the mechanism can be run with others.
      num_buffers: d, the largest number of buffers.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums. For others the result is
        the better of the BLT optimised for A and the scaled one optimised for the prefix sums.
      progress: whether to show the loss of each stage on standard error.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> schema = Participation(40, min_separation=40)
      >>> scaled = optimize_scaled_blt(schema, num_buffers=1)
      >>> scaled.max_loss(schema) < optimize_blt(schema, num_buffers=1).max_loss(schema)
      True
    """
    _validate.integer('num_buffers', num_buffers, minimum=1, maximum=20)
    problem = driver.Problem('optimize_scaled_blt', participation, loss, workload, progress)

    def candidates() -> Iterator[ColumnScaled]:
        blt = optimize_blt(participation, num_buffers, loss, workload=workload)
        unscaled = ColumnScaled(blt, np.ones(1), participation.rounds)
        yield problem.shown('not scaled', unscaled)
        if problem.workload is not None:
            yield optimize_scaled_blt(participation, num_buffers, loss)
            return
        for scaled in search(blt, participation, loss):
            yield problem.shown(f'{scaled.scale.size} scales', scaled)

    return problem.solve(
        ColumnScaled, candidates, version=_VERSION, make=from_entry, num_buffers=num_buffers
    )


def from_entry(base: dict[str, Any], **values: Any) -> ColumnScaled:
    """The mechanism of a cached entry's values; the argument `make` of `driver.cached`.

    Args:
      base: values of the base, as its `to_dict` gives them.
      **values: the other values of the mechanism, by name.

    Raises:
      KeyError: if the base is neither a `Blt` nor a `BlockBlt`.
    """
    kinds: dict[str, Any] = {Blt.name: Blt, BlockBlt.name: BlockBlt}
    parameters = {name: value for name, value in base.items() if name != 'mechanism'}
    return ColumnScaled(kinds[base['mechanism']](**parameters), **values)


def search(start: Blt, participation: Participation, loss: str) -> Iterator[ColumnScaled]:
    """The result of each stage of the search.

    Args:
      start: the BLT to start from.
      participation: the schema.
      loss: 'max' or 'rms', of the prefix sums.
    """
    coordinates = _coordinates(start)
    log_scale = np.zeros(1)
    rounds = known_length = participation.rounds
    for length in block_lengths(participation):
        starts = np.arange(0, rounds, length) // known_length
        log_scale = log_scale[np.minimum(starts, log_scale.size - 1)]
        stage = _Stage(participation, length, loss)
        coordinates, log_scale = stage.minimized((coordinates, log_scale))
        yield stage.mechanism(coordinates, log_scale)
        known_length = length


def block_lengths(participation: Participation) -> list[int]:
    """Rounds of a block in each stage of the search, from coarse to fine.

    A block length that divides the separation is preferred, since the bound is then tighter. Blocks
    longer than the separation are few, since their bound is not tight, and there are none for many
    participations.
    """
    n = participation.rounds
    b = min(n, participation.min_separation)
    least = -(-n // _MOST_BLOCKS)
    if n > _MOST_SHORT_BLOCKS * b:
        many = participation.count > _MOST_IN_LONG_BLOCKS
        return [] if many else [-(-n // 8), -(-n // 32)]
    if b < least:
        return [b]
    fine = next((q for q in range(least, min(b, 2 * least) + 1) if b % q == 0), least)
    coarse = b if 4 * fine < b <= n // 4 else max(fine, n // 8)
    return list(dict.fromkeys((coarse, fine)))


def _coordinates(blt: Blt) -> np.ndarray:
    """Coordinates of a BLT, or of one nearby whose inverse has no negative decay."""
    rates = np.sort(np.concatenate([1 - blt.decay, 1 - blt.inverse_parameters()[0]]))
    rates = rates[rates > 1e-15]
    return blt_loss.coordinates_of(np.log(rates) + min(0.0, np.log(_MOST_RATE / rates[-1])))


# Coordinates, see `blt_loss.Objective`, and the logs of the scales of the columns.
_Point = tuple[np.ndarray, np.ndarray]


class _Stage(cutting_planes.Search[_Point]):
    """The search with blocks of one length."""

    _most_additions = 20
    _most_sums = _MOST_SUMS
    _excess = 1e-4

    def __init__(self, participation: Participation, length: int, loss: str):
        super().__init__(participation, cutting_planes.regular(participation, length))
        self._length = length
        self._rounds = rounds = participation.rounds
        rows_per_block = next(
            rows
            for rows in range(1, length + 1)
            if length % rows == 0 and (rows == length or rounds * rows >= _ROWS * length)
        )
        self._errors = PrefixErrors(rounds, length // rows_per_block, rows_per_block, loss)

    def mechanism(self, coordinates: np.ndarray, log_scale: np.ndarray) -> ColumnScaled:
        """The mechanism, with a first scale of 1."""
        base = self._base(coordinates)
        return ColumnScaled(base, np.exp(log_scale - log_scale[0]), base.rounds, self._length)

    def error(self, point: _Point) -> float:
        coordinates, self._errors.log_scale = point
        self._errors.sharpness = self.sharpness
        objective = blt_loss.Objective(self.participation, self._errors, _no_sensitivity)
        return objective(coordinates)[0]

    def values(self, point: _Point) -> np.ndarray:
        coordinates, log_scale = point
        sums = self._pair_sums(log_scale)
        sums(*blt_loss.parameters(blt_loss.log_rates_of(coordinates)))
        return sums.values

    def _pair_sums(self, log_scale) -> PairSums:
        sums = PairSums(self.sums, self._rounds, self._length)
        sums.log_scale = log_scale
        return sums

    def cuts(self, point: _Point) -> cutting_planes.Cuts:
        coordinates, log_scale = point
        scale = np.exp(log_scale)[np.arange(self._rounds) // self._length]
        table = scaled_toeplitz.PairTable(
            self._base(coordinates).coefficients(),
            scale,
            self._length,
            self.participation,
            monotone=True,
        )
        return cutting_planes.Cuts(table, self.participation)

    def _base(self, coordinates) -> Blt:
        return of_log_rates(self._rounds, blt_loss.log_rates_of(coordinates))

    def descend(self, point: _Point) -> _Point:
        coordinates, log_scale = point
        size = coordinates.size
        sums = self._pair_sums(log_scale)
        sums.sharpness = self._errors.sharpness = self.sharpness
        objective = blt_loss.Objective(self.participation, self._errors, sums)

        def value_and_gradient(x):
            sums.log_scale = self._errors.log_scale = x[size:]
            value, gradient = objective(x[:size])
            return value, np.append(gradient, sums.by_log_scale + self._errors.by_log_scale)

        _, x = driver.descend(
            value_and_gradient,
            np.append(coordinates, log_scale),
            iterations=_MAX_ITERATIONS,
            tolerance=1e-9,
            bounds=[_BOUNDS] * size + [_SCALE_BOUNDS] * log_scale.size,
        )
        return x[:size], x[size:] - x[size:].mean()


def _no_sensitivity(rates, weights):
    return 0.0, np.zeros_like(weights), np.zeros_like(rates)
