"""Tests of the sums of an audited run: they are known in a simulation, so that noise is, too.

Two things are tested. The sum of a round before the noise has to be the sum of the updates, each
clipped to the planned norm. This test has no chance in it. And the residual, release minus sum, has
to be the planned noise: multiplied by the strategy C and divided by the planned deviation it is a
table of independent standard normal variables, [rounds, coordinates]. Its tests have exact laws
and together the false alarm `FALSE_ALARM`: each kind of test has the same share of it, and each
test of a kind the same share of that (Bonferroni).

| kind | statistic | law |
|---|---|---|
| variance, of everything, a tensor or a round | sum of n squares | chi-square, n degrees |
| mean, of everything or a round | sum of n / sqrt(n) | standard normal |
| law, of everything or a round | largest distance of two distribution functions | below |
| repetition, shift, halves, tensors | see `products` | standard normal, each product |

The distance D of the distribution function of n numbers to that of their law exceeds e with a
probability of at most 2 exp(-2 n e^2): the inequality of Dvoretzky, Kiefer and Wolfowitz with the
constant of Massart.

The numbers of a residual are confidential, because they tell the sum. So a `SumTests` has none of
them unless a test failed, which happens to a correct run with the probability `FALSE_ALARM`.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from dpfl import _validate, errors
from dpfl.accounting.measured import products
from dpfl.accounting.plan import PrivacyPlan

FALSE_ALARM = 1e-6
# A fault that is seen with at least this probability counts as excluded if it is not seen.
LEAST_POWER = 0.5
# Rounding to float32 may add this share of the noise's deviation to a residual.
_MOST_ROUNDING = 0.01
_FLOAT32_STEP = 2.0**-23
# Clipping stops below the clip norm by 1e-5 of it, and rounds to float32 and to units of a sum.
_CLIP_TOLERANCE = 2e-5
# Rounding to integers is bounded unless its own clip, coordinate by coordinate, changes an update.
_LEAST_CLIP_PROBABILITY = 1e-12
# Roundings of a residual to float32, in half steps of the largest release, are at most four: the
# sum, its quotient, the release, the residual.
_ROUNDINGS = 4
_MOST_TENSORS = 10**6

CLIP_FAULTS = ('no clipping', 'clip norm times 10', 'each tensor clipped alone')
# Faults that a model of one tensor cannot have.
_MULTI_TENSOR_FAULTS = ('noise on the first tensor only', 'each tensor clipped alone')
# Why residuals are not tested.
UNTESTED = {
    'no_noise': 'the plan has no noise',
    'rounding': 'the sums are so large that float32 rounds away the planned noise',
}
# What a failed test says. Numbers of rounds and tensors count from 1.
_WORDS = {
    'clipping': 'the sum of round {0} before the noise differs from that of clipped updates by '
    '{value:.3g} clip norms per client',
    'variance': 'the noise has {value:.3g} times the planned variance',
    'variance of a tensor': 'the noise of tensor {0} has {value:.3g} times the planned variance',
    'variance of a round': 'the noise of round {0} has {value:.3g} times the planned variance',
    'mean': 'the mean of the noise is {value:.3g} of its standard deviations from 0',
    'mean of a round': 'the mean of the noise of round {0} is {value:.3g} of its standard '
    'deviations from 0',
    'law': 'the distribution of the noise is not normal: it is {value:.3g} from that',
    'law of a round': 'the distribution of the noise of round {0} is not normal: it is {value:.3g} '
    'from that',
    'repetition': 'the noise of rounds {0} and {1} is correlated: {value:.3g} standard deviations '
    'from 0',
    'shift': 'the noise of rounds {0} and {1} is correlated if one is shifted: {value:.3g} '
    'standard deviations from 0',
    'halves': 'the two halves of the noise are correlated: {value:.3g} standard deviations from 0',
    'halves of a round': 'the two halves of the noise of round {0} are correlated: {value:.3g} '
    'standard deviations from 0',
    'tensors': 'the noise of tensors {0} and {1} is correlated: {value:.3g} standard deviations '
    'from 0',
}


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
class Failure:
    """A test that failed.

    Attributes:
      test: which, one of `_WORDS`.
      where: numbers of the rounds or of the tensor, from 0.
      value: of its statistic, as `_WORDS` explains it.
    """

    test: str
    where: tuple[int, ...]
    value: float

    def __str__(self) -> str:
        return _WORDS[self.test].format(*(number + 1 for number in self.where), value=self.value)


@dataclasses.dataclass(frozen=True)
class SumTests:
    """What the tests of a run's sums showed, and which faults they would have shown.

    Attributes:
      rounds: of the run.
      tested: number of coordinates of each tensor whose residuals are tested.
      noise_test: 'done', or why residuals are not tested: a key of `UNTESTED`.
      clip_power: probability to see each of `CLIP_FAULTS`, 0 or 1.
      failures: the worst failure of each kind of test.
    """

    rounds: int
    tested: tuple[int, ...]
    noise_test: str
    clip_power: Mapping[str, float]
    failures: tuple[Failure, ...]

    @property
    def power(self) -> dict[str, float]:
        """Probability that these tests show a fault; faults that the run cannot have are left out.

        Probabilities follow from the law of one of the tests, so they are lower bounds. Noise that
        is missing counts as a hundredth of the noise, for float32.
        """
        powers = {
            'half the noise': self._variance_power('variance', sum(self.tested), 0.5),
            'no noise': self._variance_power('variance', sum(self.tested), _MOST_ROUNDING),
            'noise on the first tensor only': self._variance_power(
                'variance of a tensor', max(self.tested[1:], default=0), _MOST_ROUNDING
            ),
            **({'the same noise in two rounds': self._repetition_power} if self.rounds > 1 else {}),
            **self.clip_power,
        }
        is_one = len(self.tested) == 1
        return {
            name: value
            for name, value in powers.items()
            if not (is_one and name in _MULTI_TENSOR_FAULTS)
        }

    @property
    def verdict(self) -> str:
        """'refuted', 'not refuted' or, if a fault could be there unseen, 'cannot tell'."""
        if self.failures:
            return 'refuted'
        return 'cannot tell' if min(self.power.values()) < LEAST_POWER else 'not refuted'

    def _variance_power(self, test: str, coordinates: int, scale: float) -> float:
        """Probability that the variance test fails for noise of `scale` times the deviation."""
        if self.noise_test != 'done' or not coordinates:
            return 0.0
        freedom = self.rounds * coordinates
        level = _levels(self.rounds, self.tested)[test]
        low, high = stats.chi2.ppf(level / 2, freedom), stats.chi2.isf(level / 2, freedom)
        square = scale**2
        return float(stats.chi2.cdf(low / square, freedom) + stats.chi2.sf(high / square, freedom))

    @property
    def _repetition_power(self) -> float:
        if self.noise_test != 'done':
            return 0.0
        level = _levels(self.rounds, self.tested)['repetition']
        return float(stats.chi2.sf(stats.norm.isf(level / 2) ** 2, sum(self.tested)))

    def to_dict(self) -> dict[str, Any]:
        """JSON form; verdict and powers follow from the rest."""
        return {
            'verdict': self.verdict,
            'false_alarm': FALSE_ALARM,
            'rounds': self.rounds,
            'tested': list(self.tested),
            'noise_test': self.noise_test,
            'power': self.power,
            'clip_power': dict(self.clip_power),
            'failures': [
                {**dataclasses.asdict(failure), 'where': list(failure.where)}
                for failure in self.failures
            ],
        }

    @classmethod
    def from_dict(cls, values: Any) -> 'SumTests':
        """What `to_dict` wrote.

        Raises:
          ValueError: if the values are of another form.
        """
        try:
            tested = _validate.integers(
                'tested', values['tested'], minimum=1, maximum=_MOST_TENSORS
            )
            if not 1 <= len(tested) <= _MOST_TENSORS:
                raise errors.ArgumentError('tested', errors.NOT_SHOWN, 'must have a tensor')
            return cls(
                rounds=_validate.integer('rounds', values['rounds'], minimum=1),
                tested=tested,
                noise_test=_validate.choice(
                    'noise_test', values['noise_test'], ('done', *UNTESTED)
                ),
                clip_power={
                    name: _validate.number(name, values['clip_power'][name], minimum=0, maximum=1)
                    for name in CLIP_FAULTS
                },
                failures=tuple(map(_failure, values['failures'])),
            )
        except (TypeError, KeyError):
            raise errors.ArgumentError('sums', errors.NOT_SHOWN, 'must be tests of sums') from None


def _failure(values: Any) -> Failure:
    test = _validate.choice('test', values['test'], _WORDS)
    where = _validate.integers('where', values['where'], minimum=0, maximum=_MOST_TENSORS)
    if len(where) != _WORDS[test].count('{') - 1:
        raise errors.ArgumentError('where', errors.NOT_SHOWN, f'must be those of {test}')
    return Failure(test, where, _validate.number('value', values['value']))


def test(found: RoundSums, plan: PrivacyPlan) -> SumTests:
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
        clip_power={name: float(found.planted[name] > allowed) for name in CLIP_FAULTS},
        failures=tuple(failures),
    )


def clip_tolerance(plan: PrivacyPlan) -> float:
    """Largest clip error of a run that is as planned, in clip norms per client."""
    settings = plan.discretization
    if settings is None:
        return _CLIP_TOLERANCE
    if settings.clip_probability() > _LEAST_CLIP_PROBABILITY:
        return np.inf
    # Each coordinate, rotated, moves to a neighbouring integer.
    units = settings.scale * settings.clip_norm
    return _CLIP_TOLERANCE + settings.padded_dimension**0.5 / units


def _noise_test(found: RoundSums, plan: PrivacyPlan, strategy: np.ndarray) -> str:
    if not plan.noise_multiplier:
        return 'no_noise'
    rounding = _rounding(found, strategy)
    is_fine = rounding <= _MOST_ROUNDING * plan.update_noise_multiplier
    # A release that is not finite is tested, and fails.
    return 'done' if is_fine or not np.isfinite(rounding) else 'rounding'


def _rounding(found: RoundSums, strategy: np.ndarray) -> float:
    """A float32 step of the largest release in the table, in clip norms."""
    return float(_FLOAT32_STEP * float(found.largest.max()) * np.abs(strategy).sum(axis=1).max())


def _levels(rounds: int, sizes: Sequence[int]) -> dict[str, float]:
    """The false alarm of one test of each kind, for numbers of coordinates of each tensor."""
    counts = {'variance': 1, 'mean': 1, 'law': 1, **products.counts(rounds, sizes)}
    if len(sizes) > 1:
        counts['variance of a tensor'] = len(sizes)
    if rounds > 1:
        of_a_round = ('variance of a round', 'mean of a round', 'law of a round')
        counts |= dict.fromkeys(of_a_round, rounds)
    return {name: FALSE_ALARM / len(counts) / count for name, count in counts.items()}


def _failures(table: np.ndarray, of_tensors: list[np.ndarray], rounding: float) -> list[Failure]:
    """The worst failure of each kind of a table that should be standard normal but for rounding."""
    levels = _levels(len(table), [int(np.count_nonzero(of)) for of in of_tensors])
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
    for name, (pair, value) in products.largest(table, of_tensors).items():
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
