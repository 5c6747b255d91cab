"""The audit of one run, from its final state: scores of its canaries, and tests of its sums.

Two attackers look for a canary along its direction ([Andrew24]):

- one sees every release. Whitened by the strategy, and projected on the rounds of the canary, the
  releases are one vector: the direction with the largest length that the canary has anywhere, plus
  noise of the same size in all dimensions. The cosine with that vector is the score. This is the
  optimal test for Gaussian noise, so it is at least as strong as the largest cosine of all rounds;
- one sees the final model only: the score is the cosine with the change of the model.

The first attacker also knows the updates of all other canaries, as the attacker of differential
privacy does, and subtracts them. Updates of clients are not subtracted: the more they agree, the
lower the score.

Besides, the sums of all rounds are tested against the plan (`check_sums`): they are known in a
simulation, so that noise is, too.

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
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import tensorflow as tf
import tree

from dpfl import accounting, errors
from dpfl.accounting.measured import sums
from dpfl.accounting.measured.measured import Scores
from dpfl.accounting.measured.sums import Failure, SumTests
from dpfl.aggregators import audited_query
from dpfl.auditing.canaries import CanaryDesign

# Directions that are made at a time take about this much memory, in float64 numbers.
_BLOCK = 1 << 22
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
            sums=check_sums(self.round_sums(before, state, plan), plan),
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
    for _, directions in _blocks(design, cohort, sum(sizes)):
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

    everyone = np.arange(len(effects))
    for numbers, directions in _blocks(design, everyone, size):
        added += effects[numbers].T @ directions
    others = released.astype(np.float64) - added
    own = effects[everyone, design.group]
    along = np.zeros((2, len(effects)))
    for numbers, directions in _blocks(design, everyone, size):
        products = directions @ np.vstack([others, change]).T
        along[0, numbers] = products[np.arange(len(products)), design.group[numbers]]
        along[1, numbers] = products[:, -1]
    # The canary's own share comes back to the sum without any canary.
    squared = np.square(others).sum(axis=1)[design.group] + 2 * own * along[0] + own**2
    return (
        _quotient(along[0] + own, np.sqrt(np.maximum(squared, 0.0))),
        _quotient(along[1], np.full(len(effects), np.linalg.norm(change))),
    )


def _blocks(
    design: CanaryDesign, numbers: np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of canaries and their directions, [any, size], a block at a time."""
    at_a_time = max(1, _BLOCK // size)
    for begin in range(0, len(numbers), at_a_time):
        block = numbers[begin : begin + at_a_time]
        yield block, audited_query.directions(design.seed, block, size)


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


# Where the largest product of a kind is, and the product.
Largest = tuple[tuple[int, ...], float]


def check_sums(found: RoundSums, plan: accounting.PrivacyPlan) -> SumTests:
    """Tests the sums of a run under a plan."""
    rounds = len(found.clip_errors)
    tensors, tested = np.unique(found.tensors, return_counts=True)
    allowed = _clip_tolerance(plan)
    failures = []
    worst = int(np.argmax(np.nan_to_num(found.clip_errors, nan=np.inf)))
    if not found.clip_errors[worst] <= allowed:
        failures.append(Failure('clipping', (worst,), _finite(found.clip_errors[worst])))
    strategy = plan.mechanism.with_rounds(rounds).strategy_matrix()
    multiplier, noise_test = plan.update_noise_multiplier, 'no_noise'
    if plan.noise_multiplier:
        # A float32 step of the largest release in the table.
        step = _FLOAT32_STEP * float(found.largest.max()) * np.abs(strategy).sum(axis=1).max()
        rounding = float(step) / multiplier
        # A release that is not finite is tested, and fails.
        is_tested = rounding <= sums.MOST_ROUNDING or not np.isfinite(rounding)
        noise_test = 'done' if is_tested else 'rounding'
        if is_tested:
            table = strategy @ found.residuals.astype(np.float64) / multiplier
            failures += _failures(table, [found.tensors == number for number in tensors], rounding)
    return SumTests(
        rounds=rounds,
        tested=tuple(int(count) for count in tested),
        noise_test=noise_test,
        clip_power={name: float(found.planted[name] > allowed) for name in sums.CLIP_FAULTS},
        failures=tuple(failures),
    )


def _clip_tolerance(plan: accounting.PrivacyPlan) -> float:
    """Largest clip error of a run that is as planned, in clip norms per client."""
    settings = plan.discretization
    if settings is None:
        return _CLIP_TOLERANCE
    if settings.clip_probability() > _LEAST_CLIP_PROBABILITY:
        return np.inf
    # Each coordinate, rotated, moves to a neighbouring integer.
    units = settings.scale * settings.clip_norm
    return _CLIP_TOLERANCE + settings.padded_dimension**0.5 / units


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
    levels = scipy.special.ndtr(np.sort(table, axis=1))
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
    tails = np.minimum(scipy.stats.chi2.cdf(sums, freedom), scipy.stats.chi2.sf(sums, freedom))
    return np.nan_to_num(2 * tails, nan=0.0), sums / freedom


def _of_normal(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided p-values of standard normal variables, and the values."""
    return np.nan_to_num(2 * scipy.special.ndtr(-np.abs(values)), nan=0.0), values


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
    products = _circular(scipy.fft.rfft(first), scipy.fft.rfft(second), half)
    lengths = np.linalg.norm(first, axis=1)
    by_round = _divided(_most(products), lengths)
    return by_round, float(_divided(_most(products.sum(axis=0)), np.linalg.norm(lengths)))


def _of_tensors(
    table: np.ndarray, of_tensors: Sequence[np.ndarray], sizes: Sequence[int]
) -> Iterator[Largest]:
    parts = [table[:, of] for of in of_tensors]
    spectra = [scipy.fft.rfft(part) for part in parts]
    for larger, smaller in sums.tensor_pairs(len(table), sizes):
        size, part = sizes[larger], parts[smaller]
        products = np.conj(scipy.fft.rfft(part, size)) * spectra[larger]
        at_shifts = scipy.fft.irfft(products.sum(axis=0), size)
        value = _divided(_most(at_shifts), np.linalg.norm(part))
        yield (min(larger, smaller), max(larger, smaller)), float(value)


def _of_shifts(table: np.ndarray) -> Iterator[Largest]:
    rounds, total = table.shape
    spectra, lengths = scipy.fft.rfft(table), np.linalg.norm(table, axis=1)
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
    return scipy.fft.irfft(np.conj(first) * second, size)


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
