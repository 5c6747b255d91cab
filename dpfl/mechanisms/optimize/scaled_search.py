"""Search for the BLT with scaled columns of least loss.

Decays, scales of the buffers and scales of the columns are optimised together, by L-BFGS with
analytic gradients, from coarse blocks of rounds to fine ones. The sensitivity in the objective is
the proven bound of `sensitivities.scaled_toeplitz`, a maximum of many sums of products of columns.
As in a cutting-plane method, the search knows a few of them, and adds those that its result
violates until there are none.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy import optimize

from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.optimize import blt_loss, scaled_cuts
from dpfl.mechanisms.optimize.scaled_loss import PairSums, PrefixErrors
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
# Limit of the pairs of all sums that are added at once.
_MOST_PAIRS = 30_000


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
        coordinates, log_scale = stage.run(coordinates, log_scale)
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


class _Stage:
    """The search with blocks of one length.

    Attributes:
      _sums: the sums of the bound of the squared sensitivity that are known.
    """

    def __init__(self, participation: Participation, length: int, loss: str):
        self._participation, self._length = participation, length
        self._rounds = rounds = participation.rounds
        rows_per_block = next(
            rows
            for rows in range(1, length + 1)
            if length % rows == 0 and (rows == length or rounds * rows >= _ROWS * length)
        )
        self._errors = PrefixErrors(rounds, length // rows_per_block, rows_per_block, loss)
        self._sums = scaled_cuts.regular(participation, length)

    def run(self, coordinates: np.ndarray, log_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates and log scales of least loss, from those of the start."""
        coarse, middle, fine = _SHARPNESS
        most = max(4, _MOST_PAIRS // self._participation.count**2)
        cuts = self._cuts(coordinates, log_scale)
        self._sums += cuts.above(0.0, most)
        found = [(self._loss(coordinates, log_scale, cuts), coordinates, log_scale)]
        sharpness = coarse
        for _ in range(_MOST_CUTS):
            coordinates, log_scale = self._minimize(coordinates, log_scale, sharpness)
            values = self._values(coordinates, log_scale)
            known = values.max()
            cuts = self._cuts(coordinates, log_scale)
            found.append((self._loss(coordinates, log_scale, cuts), coordinates, log_scale))
            if cuts.largest <= known * (1 + _EXCESS) and sharpness == middle:
                break
            kept = np.flatnonzero(values >= known * (1 - _INACTIVE))
            self._sums = [self._sums[place] for place in kept]
            self._sums += cuts.above(known * (1 + _LEAST_EXCESS), most)
            sharpness = middle
        _, coordinates, log_scale = min(found, key=_first)
        coordinates, log_scale = self._minimize(coordinates, log_scale, fine)
        cuts = self._cuts(coordinates, log_scale)
        found.append((self._loss(coordinates, log_scale, cuts), coordinates, log_scale))
        return min(found, key=_first)[1:]

    def mechanism(self, coordinates: np.ndarray, log_scale: np.ndarray) -> ColumnScaled:
        """The mechanism, with a first scale of 1."""
        base = self._base(coordinates)
        return ColumnScaled(base, np.exp(log_scale - log_scale[0]), base.rounds, self._length)

    def _loss(self, coordinates, log_scale, cuts: scaled_cuts.Cuts) -> float:
        """Log of the squared loss with the proven sensitivity, but for the smoothing."""
        self._errors.log_scale, self._errors.sharpness = log_scale, _SHARPNESS[-1]
        objective = blt_loss.Objective(self._participation, self._errors, _no_sensitivity)
        return objective(coordinates)[0] + math.log(cuts.largest)

    def _values(self, coordinates, log_scale) -> np.ndarray:
        """The values of the known sums."""
        sums = self._pair_sums(log_scale)
        sums(*blt_loss.parameters(blt_loss.log_rates_of(coordinates)))
        return sums.values

    def _pair_sums(self, log_scale) -> PairSums:
        sums = PairSums(self._sums, self._rounds, self._length)
        sums.log_scale = log_scale
        return sums

    def _cuts(self, coordinates, log_scale) -> scaled_cuts.Cuts:
        """The bound, and its largest sums."""
        scale = np.exp(log_scale)[np.arange(self._rounds) // self._length]
        table = scaled_toeplitz.PairTable(
            self._base(coordinates).coefficients(),
            scale,
            self._length,
            self._participation,
            monotone=True,
        )
        return scaled_cuts.Cuts(table, self._participation)

    def _base(self, coordinates) -> Blt:
        rates, scale = blt_loss.parameters(blt_loss.log_rates_of(coordinates))
        # Monotone by construction, and here also after rounding, as in `optimize.blt`.
        scale *= min(1.0, (1 - 1e-14) / scale.sum())
        return Blt(self._rounds, 1 - rates, scale)

    def _minimize(self, coordinates, log_scale, sharpness):
        size = coordinates.size
        bounds = [_BOUNDS] * size + [_SCALE_BOUNDS] * log_scale.size
        result = optimize.minimize(
            self._objective(sharpness, size, log_scale),
            np.clip(np.append(coordinates, log_scale), *np.transpose(bounds)),
            jac=True,
            method='L-BFGS-B',
            bounds=bounds,
            options={'maxiter': _MAX_ITERATIONS, 'maxcor': 30, 'ftol': 1e-9, 'gtol': 1e-9},
        )
        log_scale = result.x[size:]
        return result.x[:size], log_scale - log_scale.mean()

    def _objective(self, sharpness, size, log_scale):
        """Log of the squared loss, and gradient, of `size` coordinates and log scales."""
        sums = self._pair_sums(log_scale)
        sums.sharpness = self._errors.sharpness = sharpness
        objective = blt_loss.Objective(self._participation, self._errors, sums)

        def value_and_gradient(x):
            sums.log_scale = self._errors.log_scale = x[size:]
            value, gradient = objective(x[:size])
            return value, np.append(gradient, sums.by_log_scale + self._errors.by_log_scale)

        return value_and_gradient


def _first(entry):
    return entry[0]


def _no_sensitivity(rates, weights):
    return 0.0, np.zeros_like(weights), np.zeros_like(rates)
