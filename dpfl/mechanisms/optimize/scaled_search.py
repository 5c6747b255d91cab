"""Search for the BLT with scaled columns of least loss, under one schema or several.

Decays, scales of the buffers and scales of the columns are optimised together, by L-BFGS with
analytic gradients, from coarse blocks of rounds to fine ones. The sensitivity in the objective is
the proven bound of `sensitivities.scaled_toeplitz`, a maximum of many sums of products of columns.
As in a cutting-plane method, the search knows a few of them, and adds those that its result
violates until there are none.

Under several schemas it is a power mean of the losses, each divided by a loss that is given. The
schemas with as many rounds have the same error, so that only their sensitivities differ.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize

from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import blt_loss, scaled_cuts
from dpfl.mechanisms.optimize.power_mean import power_mean
from dpfl.mechanisms.optimize.scaled_loss import PairSum, PairSums, PrefixErrors
from dpfl.mechanisms.sensitivities import scaled_toeplitz
from dpfl.participation import Participation

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
# Smoothing of the maxima over rounds and sums: at first, while sums are added, and at last.
_SHARPNESS = (300.0, 3000.0, 3e4)
_MAX_ITERATIONS = 100
_MOST_CUTS = 20
# Relative excess of the bound over the sums that are known that is let pass, and from which a sum
# is added.
_EXCESS, _LEAST_EXCESS = 1e-4, 1e-5
# A sum is dropped if it is smaller than the largest by this share.
_INACTIVE = 0.03
# Limit of the pairs of all sums of a schema that are added at once.
_MOST_PAIRS = 30_000


class Goal(NamedTuple):
    """A schema in the power mean that is minimised.

    Attributes:
      participation: the schema.
      least: what the loss under the schema is divided by.
      weight: its weight in the mean.
    """

    participation: Participation
    least: float = 1.0
    weight: float = 1.0


def search(
    start: Blt, goals: Sequence[Goal], loss: str, criterion: str = 'worst'
) -> Iterator[ColumnScaled]:
    """The result of each stage of the search.

    Args:
      start: the BLT to start from.
      goals: schemas, and what their losses are divided by.
      loss: 'max' or 'rms', of the prefix sums.
      criterion: 'expected' for the weighted mean of the divided losses, 'worst' for the largest.
    """
    coordinates = _coordinates(start)
    log_scale = np.zeros(1)
    rounds = max(goal.participation.rounds for goal in goals)
    known_length = rounds
    for length in block_lengths([goal.participation for goal in goals]):
        starts = np.arange(0, rounds, length) // known_length
        log_scale = log_scale[np.minimum(starts, log_scale.size - 1)]
        stage = _Stage(goals, length, loss, criterion)
        coordinates, log_scale = stage.run(coordinates, log_scale)
        yield stage.mechanism(coordinates, log_scale)
        known_length = length


def block_lengths(schemas: Sequence[Participation]) -> list[int]:
    """Rounds of a block in each stage of the search, from coarse to fine.

    The shortest separation, and the most rounds, decide. A block length that divides the separation
    of a single schema is preferred, since the bound is then tighter. With several separations the
    cells of the bound at least divide a block. Blocks longer than the separation are few, since
    their bound is not tight, and there are none for many participations.
    """
    n = max(schema.rounds for schema in schemas)
    b = min(n, *(schema.min_separation for schema in schemas))
    least = -(-n // _MOST_BLOCKS)
    if n > _MOST_SHORT_BLOCKS * b:
        many = max(schema.count for schema in schemas) > _MOST_IN_LONG_BLOCKS
        return [] if many else [-(-n // 8), -(-n // 32)]
    if b < least:
        return [b]
    if len({schema.min_separation for schema in schemas}) > 1:
        cell = -(-n // scaled_toeplitz.MOST_CELLS)
        fine = -(-least // cell) * cell
        return list(dict.fromkeys((max(fine, n // 8), fine)))
    fine = next((q for q in range(least, min(b, 2 * least) + 1) if b % q == 0), least)
    coarse = b if 4 * fine < b <= n // 4 else max(fine, n // 8)
    return list(dict.fromkeys((coarse, fine)))


def _coordinates(blt: Blt) -> np.ndarray:
    """Coordinates of a BLT, or of one nearby whose inverse has no negative decay."""
    rates = np.sort(np.concatenate([1 - blt.decay, 1 - blt.inverse_parameters()[0]]))
    rates = rates[rates > 1e-15]
    return blt_loss.coordinates_of(np.log(rates) + min(0.0, np.log(_MOST_RATE / rates[-1])))


class _Part:
    """The goals with as many rounds: their error, and the known sums of their sensitivities.

    Attributes:
      goals: the goals.
      errors: the error that they share.
      sums: of each goal, divided by the square of its least loss.
    """

    def __init__(self, goals: Sequence[Goal], length: int, loss: str):
        self.goals, self._length = goals, length
        self.rounds = rounds = goals[0].participation.rounds
        rows_per_block = next(
            rows
            for rows in range(1, length + 1)
            if length % rows == 0 and (rows == length or rounds * rows >= _ROWS * length)
        )
        self.errors = PrefixErrors(rounds, length // rows_per_block, rows_per_block, loss)
        self.sums = [
            _divided(scaled_cuts.regular(goal.participation, length), goal.least) for goal in goals
        ]

    def log_error(self, coordinates: np.ndarray, log_scale: np.ndarray) -> float:
        """Log of the squared error."""
        self.errors.log_scale, self.errors.sharpness = self._own(log_scale), _SHARPNESS[-1]
        objective = blt_loss.Objective(self.goals[0].participation, self.errors, _no_sensitivity)
        return objective(coordinates)[0]

    def values(self, coordinates: np.ndarray, log_scale: np.ndarray) -> list[np.ndarray]:
        """The known sums of each goal."""
        sums = PairSums(self.sums, self.rounds, self._length)
        sums.log_scale = self._own(log_scale)
        sums(*blt_loss.parameters(blt_loss.log_rates_of(coordinates)))
        return np.split(sums.values, np.cumsum([len(several) for several in self.sums])[:-1])

    def objective(self, sharpness: float, power: float):
        """Function of the coordinates and log scales, with the gradient by both."""
        sums = PairSums(self.sums, self.rounds, self._length)
        sums.log_weights = np.log([goal.weight for goal in self.goals])
        sums.power = power
        sums.sharpness = self.errors.sharpness = sharpness
        objective = blt_loss.Objective(self.goals[0].participation, self.errors, sums)

        def value_and_gradients(coordinates, log_scale):
            sums.log_scale = self.errors.log_scale = self._own(log_scale)
            value, gradient = objective(coordinates)
            by_scale = np.zeros_like(log_scale)
            by_scale[: sums.log_scale.size] = sums.by_log_scale + self.errors.by_log_scale
            return value, np.append(gradient, by_scale)

        return value_and_gradients

    def cuts(
        self, base: Blt, scale: np.ndarray, limits: np.ndarray
    ) -> tuple[list[float], list[list[PairSum]]]:
        """Bound of each goal, and its largest sums beyond a limit, divided as `sums`."""
        bounds, found = [], []
        coefficients = base.coefficients()[: self.rounds]
        for goal, limit in zip(self.goals, limits, strict=True):
            schema = goal.participation
            table = scaled_toeplitz.PairTable(
                coefficients, scale[: self.rounds], self._length, schema, monotone=True
            )
            cuts = scaled_cuts.Cuts(table, schema)
            most = max(4, _MOST_PAIRS // schema.count**2)
            bounds.append(cuts.largest / goal.least**2)
            found.append(_divided(cuts.above(limit * goal.least**2, most), goal.least))
        return bounds, found

    def _own(self, log_scale: np.ndarray) -> np.ndarray:
        return log_scale[: -(-self.rounds // self._length)]


class _Stage:
    """The search with blocks of one length."""

    def __init__(self, goals: Sequence[Goal], length: int, loss: str, criterion: str):
        self._length, self._expected = length, criterion == 'expected'
        by_rounds: dict[int, list[Goal]] = {}
        for goal in goals:
            by_rounds.setdefault(goal.participation.rounds, []).append(goal)
        self._rounds = max(by_rounds)
        self._parts = [_Part(several, length, loss) for several in by_rounds.values()]
        self._log_weights = np.log([goal.weight for part in self._parts for goal in part.goals])
        self._part_of = np.repeat(
            np.arange(len(self._parts)), [len(part.goals) for part in self._parts]
        )

    def run(self, coordinates: np.ndarray, log_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates and log scales of least loss, from those of the start."""
        coarse, middle, fine = _SHARPNESS
        bounds, violated = self._cuts(coordinates, log_scale, np.zeros(self._part_of.size))
        self._add(violated)
        found = [(self._loss(coordinates, log_scale, bounds), coordinates, log_scale)]
        sharpness = coarse
        for _ in range(_MOST_CUTS):
            coordinates, log_scale = self._minimize(coordinates, log_scale, sharpness)
            values = [
                values for part in self._parts for values in part.values(coordinates, log_scale)
            ]
            limits = self._limits(coordinates, log_scale, values)
            bounds, violated = self._cuts(coordinates, log_scale, limits * (1 + _LEAST_EXCESS))
            found.append((self._loss(coordinates, log_scale, bounds), coordinates, log_scale))
            if (bounds <= limits * (1 + _EXCESS)).all() and sharpness == middle:
                break
            self._drop(values, limits)
            self._add(violated)
            sharpness = middle
        _, coordinates, log_scale = min(found, key=_first)
        coordinates, log_scale = self._minimize(coordinates, log_scale, fine)
        bounds, _ = self._cuts(coordinates, log_scale, np.full(self._part_of.size, np.inf))
        found.append((self._loss(coordinates, log_scale, bounds), coordinates, log_scale))
        return min(found, key=_first)[1:]

    def mechanism(self, coordinates: np.ndarray, log_scale: np.ndarray) -> ColumnScaled:
        """The mechanism, with a first scale of 1."""
        base = self._base(coordinates)
        return ColumnScaled(base, np.exp(log_scale - log_scale[0]), base.rounds, self._length)

    def _power(self, sharpness: float) -> float:
        """Power of the mean of losses; for the worst one as sharp as the maximum over rounds."""
        return 1.0 if self._expected else 2 * sharpness

    def _log_errors(self, coordinates, log_scale) -> np.ndarray:
        """Log of the squared error for each goal."""
        errors = np.array([part.log_error(coordinates, log_scale) for part in self._parts])
        return errors[self._part_of]

    def _loss(self, coordinates, log_scale, bounds) -> float:
        """Log of the squared mean loss with the proven sensitivity, but for the smoothing."""
        logs = [math.log(bound) for bound in bounds.tolist()]
        squared = self._log_errors(coordinates, log_scale) + logs
        return power_mean(squared, self._log_weights, self._power(_SHARPNESS[-1]))[0]

    def _limits(self, coordinates, log_scale, values) -> np.ndarray:
        """The sum up to which those of a goal do not raise the loss beyond that of known sums."""
        known = np.array([several.max() for several in values])
        if self._expected:
            return known
        log_errors = self._log_errors(coordinates, log_scale)
        factors = np.exp(log_errors - log_errors.max())
        return (known * factors).max() / factors

    def _drop(self, values, limits) -> None:
        """Drops the sums that are far below their limit, but for the largest of each goal."""
        goal = 0
        for part in self._parts:
            for place, several in enumerate(part.sums):
                least = min(limits[goal] * (1 - _INACTIVE), values[goal].max())
                part.sums[place] = [
                    one for one, value in zip(several, values[goal], strict=True) if value >= least
                ]
                goal += 1

    def _add(self, violated: list[list[list[PairSum]]]) -> None:
        for part, of_goals in zip(self._parts, violated, strict=True):
            for several, more in zip(part.sums, of_goals, strict=True):
                several += more

    def _base(self, coordinates) -> Blt:
        rates, scale = blt_loss.parameters(blt_loss.log_rates_of(coordinates))
        # Monotone by construction, and here also after rounding, as in `optimize.blt`.
        scale *= min(1.0, (1 - 1e-14) / scale.sum())
        return Blt(self._rounds, 1 - rates, scale)

    def _minimize(self, coordinates, log_scale, sharpness):
        size = coordinates.size
        bounds = [_BOUNDS] * size + [_SCALE_BOUNDS] * log_scale.size
        result = optimize.minimize(
            self._objective(sharpness, size),
            np.clip(np.append(coordinates, log_scale), *np.transpose(bounds)),
            jac=True,
            method='L-BFGS-B',
            bounds=bounds,
            options={'maxiter': _MAX_ITERATIONS, 'maxcor': 30, 'ftol': 1e-9, 'gtol': 1e-9},
        )
        log_scale = result.x[size:]
        return result.x[:size], log_scale - log_scale.mean()

    def _objective(self, sharpness, size):
        """Log of the squared mean loss, and gradient, of `size` coordinates and log scales."""
        power = self._power(sharpness)
        objectives = [part.objective(sharpness, power) for part in self._parts]

        def value_and_gradient(x):
            values, gradients = zip(
                *(objective(x[:size], x[size:]) for objective in objectives), strict=True
            )
            # The weights are in the means of the parts.
            value, shares = power_mean(np.array(values), np.zeros(len(values)), power)
            return value, shares @ np.array(gradients)

        return value_and_gradient

    def _cuts(self, coordinates, log_scale, limits) -> tuple[np.ndarray, list[list[list[PairSum]]]]:
        """Bound of each goal, and for each part the sums of its goals beyond their limits."""
        base = self._base(coordinates)
        scale = np.exp(log_scale)[np.arange(base.rounds) // self._length]
        found = [
            part.cuts(base, scale, limits[self._part_of == place])
            for place, part in enumerate(self._parts)
        ]
        return np.concatenate([bounds for bounds, _ in found]), [sums for _, sums in found]


def _divided(sums: Sequence[PairSum], least: float) -> list[PairSum]:
    """The sums, divided by the square of the least loss."""
    return [dataclasses.replace(one, weight=one.weight / least**2) for one in sums]


def _first(entry):
    return entry[0]


def _no_sensitivity(rates, weights):
    return 0.0, np.zeros_like(weights), np.zeros_like(rates)
