"""What tests of the sums of an audited run showed, and which faults they would have shown.

In a simulation the sums are known, so that noise is, too. Two things are tested
(`dpfl.auditing.one_shot`). The sum of a round before the noise has to be the sum of the updates,
each clipped to the planned norm. This test has no chance in it. And the residual, release minus
sum, has to be the planned noise: multiplied by the strategy C and divided by the planned deviation
it is a table of independent standard normal variables, [rounds, coordinates]. Its tests have exact
laws and together the false alarm `FALSE_ALARM`: each kind of test has the same share of it, and
each test of a kind the same share of that (Bonferroni).

The numbers of a residual are confidential, because they tell the sum. So a `SumTests` has none of
them unless a test failed, which happens to a correct run with the probability `FALSE_ALARM`.

A report states the verdict and the powers, and whoever reads it computes them again. So they are
here, with the numbers of tests that they follow from.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import scipy

from dpfl import _json, _validate, errors
from dpfl._validate import Limits, Probability, Rounds

FALSE_ALARM = 1e-6
Verdict = Annotated[str, Limits(choices=('refuted', 'not refuted', 'cannot tell'))]
# The probability to see a fault.
Power = Annotated[float, Limits('probability', minimum=0, maximum=1)]

# A fault that is seen with at least this probability counts as excluded if it is not seen.
LEAST_POWER = 0.5

# Rounding to float32 may add this share of the noise's deviation to a residual.
MOST_ROUNDING = 0.01

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

# Numbers of the products of 'shift', and of those of 'tensors', are at most about: a few seconds.
_MOST_NUMBERS = 2**27

# A pair of small tensors takes as long as this.
_LEAST_NUMBERS = 2**12


@dataclasses.dataclass(frozen=True)
class Failure:
    """A test that failed.

    Attributes:
      test: which, one of `_WORDS`.
      where: numbers of the rounds or of the tensor, from 0.
      value: of its statistic, as `_WORDS` explains it.
    """

    test: Annotated[str, Limits(choices=tuple(_WORDS))]
    where: tuple[Annotated[int, Limits(minimum=0)], ...]
    value: float

    def __str__(self) -> str:
        return _WORDS[self.test].format(*(number + 1 for number in self.where), value=self.value)


@dataclasses.dataclass(frozen=True)
class SumTests(_json.JsonPaths):
    """What the tests of a run's sums showed, and which faults they would have shown.

    Attributes:
      rounds: of the run.
      tested: number of coordinates of each tensor whose residuals are tested.
      noise_test: 'done', or why residuals are not tested: a key of `UNTESTED`.
      clip_power: probability to see each of `CLIP_FAULTS`, 0 or 1.
      failures: the worst failure of each kind of test.
    """

    # Verdict and powers follow from the rest.
    json_paths: ClassVar = {
        'verdict': 'verdict',
        'false_alarm': 'false_alarm',
        'rounds': 'rounds',
        'tested': 'tested',
        'noise_test': 'noise_test',
        'power': 'power',
        'clip_power': 'clip_power',
        'failures': 'failures',
    }

    rounds: Rounds
    tested: tuple[Annotated[int, Limits('coordinates', minimum=1)], ...]
    noise_test: Annotated[str, Limits(choices=('done', *UNTESTED))]
    clip_power: Mapping[str, Power]
    failures: tuple[Failure, ...]

    @property
    def false_alarm(self) -> Probability:
        """Probability that a correct run fails any of the tests."""
        return FALSE_ALARM

    @property
    def power(self) -> dict[str, Power]:
        """Probability that these tests show a fault; faults that the run cannot have are left out.

        Probabilities follow from the law of one of the tests, so they are lower bounds. Noise that
        is missing counts as a hundredth of the noise, for float32.
        """
        powers = {
            'half the noise': self._variance_power('variance', sum(self.tested), 0.5),
            'no noise': self._variance_power('variance', sum(self.tested), MOST_ROUNDING),
            'noise on the first tensor only': self._variance_power(
                'variance of a tensor', max(self.tested[1:], default=0), MOST_ROUNDING
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
    def verdict(self) -> Verdict:
        """'refuted', 'not refuted' or, if a fault could be there unseen, 'cannot tell'."""
        if self.failures:
            return 'refuted'
        return 'cannot tell' if min(self.power.values()) < LEAST_POWER else 'not refuted'

    def _variance_power(self, test: str, coordinates: int, scale: float) -> float:
        """Probability that the variance test fails for noise of `scale` times the deviation."""
        if self.noise_test != 'done' or not coordinates:
            return 0.0
        freedom = self.rounds * coordinates
        level = levels(self.rounds, self.tested)[test]
        low, high = (
            scipy.stats.chi2.ppf(level / 2, freedom),
            scipy.stats.chi2.isf(level / 2, freedom),
        )
        square = scale**2
        return float(
            scipy.stats.chi2.cdf(low / square, freedom)
            + scipy.stats.chi2.sf(high / square, freedom)
        )

    @property
    def _repetition_power(self) -> float:
        if self.noise_test != 'done':
            return 0.0
        level = levels(self.rounds, self.tested)['repetition']
        return float(scipy.stats.chi2.sf(scipy.stats.norm.isf(level / 2) ** 2, sum(self.tested)))

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


def levels(rounds: int, sizes: Sequence[int]) -> dict[str, float]:
    """The false alarm of one test of each kind.

    Args:
      rounds: of the table.
      sizes: numbers of the coordinates of each tensor.
    """
    counts = {'variance': 1, 'mean': 1, 'law': 1, **product_counts(rounds, sizes)}
    if len(sizes) > 1:
        counts['variance of a tensor'] = len(sizes)
    if rounds > 1:
        of_a_round = ('variance of a round', 'mean of a round', 'law of a round')
        counts |= dict.fromkeys(of_a_round, rounds)
    return {name: FALSE_ALARM / len(counts) / count for name, count in counts.items()}


def product_counts(rounds: int, sizes: Sequence[int]) -> dict[str, int]:
    """Numbers of products of each kind; `dpfl.auditing.one_shot` says what they are.

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
