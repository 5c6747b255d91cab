"""Tests of the sums of an audited run: they are known in a simulation, so that noise is, too.

`dpfl.accounting.measured.sums` has what is tested, and how the false alarm is divided. Of the
table, [rounds, coordinates], that should be of independent standard normal variables:

| kind | statistic | law |
|---|---|---|
| variance, of everything, a tensor or a round | sum of n squares | chi-square, n degrees |
| mean, of everything or a round | sum of n / sqrt(n) | standard normal |
| law, of everything or a round | largest distance of two distribution functions | below |
| repetition, shift, halves, tensors | largest product, below | standard normal, each product |

The distance D of the distribution function of n numbers to that of their law exceeds e with a
probability of at most 2 exp(-2 n e^2): the inequality of Dvoretzky, Kiefer and Wolfowitz with the
constant of Massart.

Products are those of two disjoint parts of the table, divided by the length of one of them. Given
that part, a product is a linear form of the other one, so that its law is the standard normal law
exactly, for every alignment of the two parts. Alignments and pairs depend on each other, so that
only the union of their tails has a bound.

| kind | one part | the other one | alignments |
|---|---|---|---|
| repetition | a round | a later round | 1 |
| shift | a round | a later round | all circular shifts but 0 |
| halves, halves of a round | first half of the coordinates | second half | all circular shifts |
| tensors | a tensor | the same number of coordinates of a larger one | all circular shifts |

'halves' and 'tensors' have one product over all rounds, 'halves of a round' one in each round. The
fast Fourier transform gives the products of all circular shifts.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import fft, special, stats

from dpfl import accounting
from dpfl.accounting.measured import sums
from dpfl.accounting.measured.sums import Failure, SumTests

_FLOAT32_STEP = 2.0**-23

# Clipping stops below the clip norm by 1e-5 of it, and rounds to float32 and to units of a sum.
_CLIP_TOLERANCE = 2e-5

# Rounding to integers is bounded unless its own clip, coordinate by coordinate, changes an update.
_LEAST_CLIP_PROBABILITY = 1e-12

# Roundings of a residual to float32, in half steps of the largest release, are at most four: the
# sum, its quotient, the release, the residual.
_ROUNDINGS = 4

# Rows of the products of rounds that are computed at a time.
_ROWS = 256

# Where the largest product of a kind is, and the product.
Largest = tuple[tuple[int, ...], float]


@dataclasses.dataclass(frozen=True)
class RoundSums:
    """Residuals and clip errors of a run's sums. Confidential: they determine the noise.

    Attributes:
      residuals: release minus sum in clip norms of the round, [rounds, coordinates tested].
      tensors: of the coordinates, numbers of their tensors, [coordinates tested].
      clip_errors: length of the difference between the run's sum before the noise and the sum of
        the updates as clipped by the plan, in clip norms per client, [rounds].
      largest: largest coordinate of each release, in clip norms, [rounds].
      planted: what `clip_errors` would be at least in one round with each of `CLIP_FAULTS`.
    """

    residuals: np.ndarray
    tensors: np.ndarray
    clip_errors: np.ndarray
    largest: np.ndarray
    planted: Mapping[str, float]


def test(found: RoundSums, plan: accounting.PrivacyPlan) -> SumTests:
    """Tests the sums of a run under a plan."""
    rounds = len(found.clip_errors)
    tensors, tested = np.unique(found.tensors, return_counts=True)
    allowed = clip_tolerance(plan)
    failures = []
    worst = int(np.argmax(np.nan_to_num(found.clip_errors, nan=np.inf)))
    if not found.clip_errors[worst] <= allowed:
        failures.append(Failure('clipping', (worst,), _finite(found.clip_errors[worst])))
    strategy = plan.mechanism.with_rounds(rounds).strategy_matrix()
    noise_test = _noise_test(found, plan, strategy)
    if noise_test == 'done':
        table = strategy @ found.residuals.astype(np.float64) / plan.update_noise_multiplier
        rounding = _rounding(found, strategy) / plan.update_noise_multiplier
        failures += _failures(table, [found.tensors == number for number in tensors], rounding)
    return SumTests(
        rounds=rounds,
        tested=tuple(int(count) for count in tested),
        noise_test=noise_test,
        clip_power={name: float(found.planted[name] > allowed) for name in sums.CLIP_FAULTS},
        failures=tuple(failures),
    )


def clip_tolerance(plan: accounting.PrivacyPlan) -> float:
    """Largest clip error of a run that is as planned, in clip norms per client."""
    settings = plan.discretization
    if settings is None:
        return _CLIP_TOLERANCE
    if settings.clip_probability() > _LEAST_CLIP_PROBABILITY:
        return np.inf
    # Each coordinate, rotated, moves to a neighbouring integer.
    units = settings.scale * settings.clip_norm
    return _CLIP_TOLERANCE + settings.padded_dimension**0.5 / units


def _noise_test(found: RoundSums, plan: accounting.PrivacyPlan, strategy: np.ndarray) -> str:
    if not plan.noise_multiplier:
        return 'no_noise'
    rounding = _rounding(found, strategy)
    is_fine = rounding <= sums.MOST_ROUNDING * plan.update_noise_multiplier
    # A release that is not finite is tested, and fails.
    return 'done' if is_fine or not np.isfinite(rounding) else 'rounding'


def _rounding(found: RoundSums, strategy: np.ndarray) -> float:
    """A float32 step of the largest release in the table, in clip norms."""
    return float(_FLOAT32_STEP * float(found.largest.max()) * np.abs(strategy).sum(axis=1).max())


def _failures(table: np.ndarray, of_tensors: list[np.ndarray], rounding: float) -> list[Failure]:
    """The worst failure of each kind of a table that should be standard normal but for rounding."""
    levels = sums.levels(len(table), [int(np.count_nonzero(of)) for of in of_tensors])
    squares, size = np.square(table), table.shape[1]
    # Of each kind: which p-values, and what they are about.
    kinds = {
        'variance': _of_variance(squares.sum(keepdims=True).ravel(), table.size),
        'mean': _of_normal(table.sum(keepdims=True).ravel() / table.size**0.5),
        'variance of a tensor': _of_variance(
            np.array([squares[:, of].sum() for of in of_tensors]),
            np.array([len(table) * np.count_nonzero(of) for of in of_tensors]),
        ),
        'variance of a round': _of_variance(squares.sum(axis=1), size),
        'mean of a round': _of_normal(table.sum(axis=1) / size**0.5),
        'law': _of_law(table.reshape(1, -1), rounding),
        'law of a round': _of_law(table, rounding),
    }
    failures = []
    for name, (chances, values) in kinds.items():
        worst = int(np.argmin(chances))
        if name in levels and not chances[worst] > levels[name]:
            where = (worst,) if name.endswith(('tensor', 'round')) else ()
            failures.append(Failure(name, where, _finite(values[worst])))
    for name, (pair, value) in largest_products(table, of_tensors).items():
        if not _of_normal(np.array([value]))[0][0] > levels[name]:
            failures.append(Failure(name, pair, _finite(value)))
    return failures


def _of_law(table: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the p-values of the distances of rows from the standard normal law, and these.

    Args:
      table: [rows, n].
      rounding: of the numbers, a float32 step, by which none is off more than by a few halves.
    """
    size = table.shape[1]
    levels = special.ndtr(np.sort(table, axis=1))
    places = np.arange(size)
    above = ((places + 1) / size - levels).max(axis=1)
    distances = np.maximum(above, (levels - places / size).max(axis=1))
    # No number moves its place in the law by more than the density of the law at 0 allows.
    allowed = _ROUNDINGS / 2 * rounding / (2 * np.pi) ** 0.5
    excess = np.maximum(distances - allowed, 0.0)
    chances = np.minimum(2 * np.exp(-2 * size * np.square(excess)), 1.0)
    return np.nan_to_num(chances, nan=0.0), distances


def _of_variance(sums: np.ndarray, freedom: Any) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided p-values of sums of squares, 0 for one that is not finite, and the variances."""
    tails = np.minimum(stats.chi2.cdf(sums, freedom), stats.chi2.sf(sums, freedom))
    return np.nan_to_num(2 * tails, nan=0.0), sums / freedom


def _of_normal(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided p-values of standard normal variables, and the values."""
    return np.nan_to_num(2 * special.ndtr(-np.abs(values)), nan=0.0), values


def _finite(value: Any) -> float:
    """The value, or the largest number in its place."""
    return float(value) if np.isfinite(value) else sys.float_info.max


def largest_products(table: np.ndarray, of_tensors: Sequence[np.ndarray]) -> dict[str, Largest]:
    """The largest product of each kind; NaN for one of a table that is not finite.

    Args:
      table: [rounds, coordinates].
      of_tensors: which coordinates are those of each tensor, [coordinates] each.
    """
    rounds, total = table.shape
    sizes = [int(np.count_nonzero(of)) for of in of_tensors]
    kinds = sums.product_counts(rounds, sizes)
    products: dict[str, Largest] = {}
    with np.errstate(invalid='ignore', over='ignore'):
        if 'halves' in kinds:
            by_round, of_all = _of_halves(table)
            products['halves'] = ((), of_all)
            if 'halves of a round' in kinds:
                worst = int(np.argmax(np.abs(by_round)))
                products['halves of a round'] = ((worst,), float(by_round[worst]))
        if 'tensors' in kinds:
            products['tensors'] = _largest(_of_tensors(table, of_tensors, sizes))
        if 'repetition' in kinds:
            products['repetition'] = _repetition(table)
        if 'shift' in kinds:
            products['shift'] = _largest(_of_shifts(table))
    return products


def _of_halves(table: np.ndarray) -> tuple[np.ndarray, float]:
    """The largest products of the halves, in each round, [rounds], and over all rounds."""
    half = table.shape[1] // 2
    first, second = table[:, :half], table[:, half : 2 * half]
    products = _circular(fft.rfft(first), fft.rfft(second), half)
    lengths = np.linalg.norm(first, axis=1)
    by_round = _divided(_most(products), lengths)
    return by_round, float(_divided(_most(products.sum(axis=0)), np.linalg.norm(lengths)))


def _of_tensors(
    table: np.ndarray, of_tensors: Sequence[np.ndarray], sizes: Sequence[int]
) -> Iterator[Largest]:
    parts = [table[:, of] for of in of_tensors]
    spectra = [fft.rfft(part) for part in parts]
    for larger, smaller in sums.tensor_pairs(len(table), sizes):
        size, part = sizes[larger], parts[smaller]
        products = np.conj(fft.rfft(part, size)) * spectra[larger]
        at_shifts = fft.irfft(products.sum(axis=0), size)
        value = _divided(_most(at_shifts), np.linalg.norm(part))
        yield (min(larger, smaller), max(larger, smaller)), float(value)


def _of_shifts(table: np.ndarray) -> Iterator[Largest]:
    rounds, total = table.shape
    spectra, lengths = fft.rfft(table), np.linalg.norm(table, axis=1)
    for lag in sums.shifted_lags(rounds, total):
        products = _circular(spectra[:-lag], spectra[lag:], total)[:, 1:]
        values = _divided(_most(products), lengths[:-lag])
        worst = int(np.argmax(np.abs(values)))
        yield (worst, worst + lag), float(values[worst])


def _repetition(table: np.ndarray) -> Largest:
    """The two rounds of the largest product, divided by the length of the earlier one."""
    lengths = np.linalg.norm(table, axis=1)
    best, value = (0, 1), 0.0
    for begin in range(0, len(table) - 1, _ROWS):
        rows = table[begin : begin + _ROWS]
        products = _divided(rows @ table.T, lengths[begin : begin + _ROWS, None])
        later = np.arange(len(table)) > np.arange(begin, begin + len(rows))[:, None]
        magnitudes = np.where(later, np.abs(products), -1.0)
        row, column = np.unravel_index(np.argmax(magnitudes), magnitudes.shape)
        if not magnitudes[row, column] <= abs(value):
            best, value = (begin + int(row), int(column)), float(products[row, column])
    return best, value


def _circular(first: np.ndarray, second: np.ndarray, size: int) -> np.ndarray:
    """Products of rows, given by their spectra, at all circular shifts, [rows, size]."""
    return fft.irfft(np.conj(first) * second, size)


def _most(products: np.ndarray) -> np.ndarray:
    """Of each row the product of the largest magnitude."""
    high, low = products.max(axis=-1), products.min(axis=-1)
    return np.where(np.abs(high) >= np.abs(low), high, low)


def _divided(products: np.ndarray, lengths: Any) -> np.ndarray:
    """Products divided by lengths; 0 for a part without any noise."""
    return np.divide(products, lengths, out=np.zeros(np.shape(products)), where=~(lengths == 0))


def _largest(values: Iterator[Largest]) -> Largest:
    """The one with the largest magnitude, or the first that is not a number."""
    best, value = next(values)
    for where, other in values:
        if not abs(other) <= abs(value) and not np.isnan(value):
            best, value = where, other
    return best, value
