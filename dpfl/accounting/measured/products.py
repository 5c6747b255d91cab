"""Products of the noise of an audited run with itself: a table of independent standard normals.

All statistics are of one form: the product of two disjoint parts of the table, divided by the
length of one of them. Given that part, it is a linear form of the other one, so that its law is the
standard normal law exactly, for every alignment of the two parts. Alignments and pairs depend on
each other, so that only the union of their tails has a bound.

| kind | one part | the other one | alignments |
|---|---|---|---|
| repetition | a round | a later round | 1 |
| shift | a round | a later round | all circular shifts but 0 |
| halves, halves of a round | first half of the coordinates | second half | all circular shifts |
| tensors | a tensor | the same number of coordinates of a larger one | all circular shifts |

'halves' and 'tensors' have one product over all rounds, 'halves of a round' one in each round. The
fast Fourier transform gives the products of all circular shifts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import fft

# Rows of the products of rounds that are computed at a time.
_ROWS = 256
# Numbers of the products of 'shift', and of those of 'tensors', are at most about: a few seconds.
_MOST_NUMBERS = 2**27
# A pair of small tensors takes as long as this.
_LEAST_NUMBERS = 2**12
# Where the largest product of a kind is, and the product.
Largest = tuple[tuple[int, ...], float]


def counts(rounds: int, sizes: Sequence[int]) -> dict[str, int]:
    """Numbers of products of each kind.

    Args:
      rounds: of the table.
      sizes: numbers of the coordinates of each tensor.
    """
    total = sum(sizes)
    numbers = {}
    if total > 1:
        numbers['halves'] = total // 2
    if len(sizes) > 1:
        numbers['tensors'] = sum(sizes[larger] for larger, _ in tensor_pairs(rounds, sizes))
    if rounds > 1:
        numbers['repetition'] = rounds * (rounds - 1) // 2
    if rounds > 1 and total > 1:
        lags = len(shifted_lags(rounds, total))
        numbers['shift'] = (total - 1) * (rounds * lags - lags * (lags + 1) // 2)
        numbers['halves of a round'] = rounds * (total // 2)
    return numbers


def shifted_lags(rounds: int, total: int) -> range:
    """Distances of the rounds that are compared at all shifts: the smallest, as far as time allows.

    Args:
      rounds: of the table, more than one.
      total: its number of coordinates.
    """
    return range(1, 1 + min(rounds - 1, max(1, _MOST_NUMBERS // (rounds * total))))


def tensor_pairs(rounds: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of tensors that are compared, larger one first: the first ones, as far as time allows.

    Args:
      rounds: of the table.
      sizes: numbers of the coordinates of each tensor, more than one.
    """
    pairs: list[tuple[int, int]] = []
    numbers = 0
    for first in range(len(sizes)):
        for second in range(first + 1, len(sizes)):
            pair = (first, second) if sizes[first] >= sizes[second] else (second, first)
            numbers += max(_LEAST_NUMBERS, rounds * sizes[pair[0]])
            if pairs and numbers > _MOST_NUMBERS:
                return pairs
            pairs.append(pair)
    return pairs


def largest(table: np.ndarray, of_tensors: Sequence[np.ndarray]) -> dict[str, Largest]:
    """The largest product of each kind; NaN for one of a table that is not finite.

    Args:
      table: [rounds, coordinates].
      of_tensors: which coordinates are those of each tensor, [coordinates] each.
    """
    rounds, total = table.shape
    sizes = [int(np.count_nonzero(of)) for of in of_tensors]
    kinds = counts(rounds, sizes)
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
    for larger, smaller in tensor_pairs(len(table), sizes):
        size, part = sizes[larger], parts[smaller]
        products = np.conj(fft.rfft(part, size)) * spectra[larger]
        sums = fft.irfft(products.sum(axis=0), size)
        value = _divided(_most(sums), np.linalg.norm(part))
        yield (min(larger, smaller), max(larger, smaller)), float(value)


def _of_shifts(table: np.ndarray) -> Iterator[Largest]:
    rounds, total = table.shape
    spectra, lengths = fft.rfft(table), np.linalg.norm(table, axis=1)
    for lag in shifted_lags(rounds, total):
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
