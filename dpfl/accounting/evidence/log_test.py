"""One test of a participation log against the law of its plan's sampling."""

import dataclasses
import string
from typing import Any

from dpfl import _validate, errors


@dataclasses.dataclass(frozen=True)
class Statistic:
    """What a test looks at, and its words in a report, with slots for the numbers of a log.

    Attributes:
      key: name in files, unique among the tests of a sampling.
      name: what is tested, such as 'participations in all'.
      words: what the log shows and what the sampling leads to, one sentence. A slot without a
        format is an integer. A slot of the name has the first of the numbers.
    """

    key: str
    name: str
    words: str

    def test(self, p_value: Any, *numbers: Any) -> 'LogTest':
        """The result of the test, with the numbers of all slots.

        Raises:
          ArgumentError: if there are more or fewer numbers, or one is of another type.
        """
        slots = [form for _, name, form, _ in string.Formatter().parse(self.words) if name == '']
        if len(numbers) != len(slots):
            raise errors.ArgumentError('numbers', [*numbers], f'must be {len(slots)} numbers')
        checked = [
            _validate.number('numbers', number, minimum=0)
            if form
            else _validate.integer('numbers', number, minimum=0)
            for form, number in zip(slots, numbers, strict=True)
        ]
        return LogTest(self, _validate.number('p_value', p_value, minimum=0), tuple(checked))


@dataclasses.dataclass(frozen=True)
class LogTest:
    """Result of one exact test.

    Attributes:
      statistic: what was tested.
      p_value: upper bound on the probability, if cohorts are sampled as planned, of a log that is
        at least as extreme; 0 if the sampling cannot produce the log at all.
      numbers: of the slots of its words.
    """

    statistic: Statistic
    p_value: float
    numbers: tuple[int | float, ...]

    @property
    def name(self) -> str:
        """What was tested, such as 'participations in all'."""
        return self.statistic.name.format(*self.numbers)

    @property
    def sentence(self) -> str:
        """The words, with the test and its p-value if the log is possible but too unlikely."""
        words = self.statistic.words.format(*self.numbers)
        if not self.p_value:
            return words
        return f'{words} (Test of {self.name}: p-value {self.p_value:.2g}.)'

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            'test': self.statistic.key,
            'p_value': self.p_value,
            'numbers': list(self.numbers),
        }
