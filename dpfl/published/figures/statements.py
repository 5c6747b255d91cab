"""What the documents say about their figures, and whether computed numbers agree with it."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from dpfl import _validate, errors
from dpfl.published.tables import rows

# Relative difference up to which numbers are about the same; the documents only say so in words.
_ABOUT = 0.02
# How a computed number has to compare with the one in the document.
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    'above': lambda computed, published: computed > published,
    'below': lambda computed, published: computed < published,
    'at least': lambda computed, published: computed >= published,
    'at most': lambda computed, published: computed <= published,
    'about': lambda computed, published: math.isclose(computed, published, rel_tol=_ABOUT),
    'equal': lambda computed, published: math.isclose(computed, published, rel_tol=1e-12),
}
# The data file of the statements.
PUBLISHED = pathlib.Path(__file__).with_name('statements.json')


@dataclasses.dataclass(frozen=True)
class Statement:
    """What a document says about a figure, in numbers.

    Attributes:
      id: Unique name: the figure, a slash, and a word.
      place: Where the document says so.
      says: What it says, in other words.
      published: Name -> number of the document. For words such as `better` it is a ratio of 1.
      comparison: Name -> one of `COMPARISONS`: how a number computed for the name must compare.
      reproducible: Whether it can be compared: whether the document says what the numbers follow
        from.
      note: What a reader must know. If the statement is not reproducible, the reason.

    Raises:
      ValueError: If a field has another form.
    """

    id: str
    place: str
    says: str
    published: dict[str, float]
    comparison: dict[str, str]
    reproducible: bool
    note: str

    def __post_init__(self):
        for name in ('published', 'comparison'):
            if not isinstance(getattr(self, name), dict):
                raise errors.ArgumentError(name, getattr(self, name), 'must be an object')
        for name in ('place', 'says', 'note'):
            if not isinstance(getattr(self, name), str):
                raise errors.ArgumentError(name, getattr(self, name), 'must be words')
        if not self.published or self.published.keys() != self.comparison.keys():
            raise ValueError('comparison: must have the names of published, at least one')
        for name, value in self.published.items():
            _validate.number(name, value)
            _validate.choice('comparison', self.comparison[name], tuple(COMPARISONS))
        if not isinstance(self.reproducible, bool):
            raise errors.ArgumentError('reproducible', self.reproducible, 'must be true or false')
        if not self.reproducible and not self.note:
            raise ValueError('note: must say why the statement is not reproducible')

    @property
    def figure(self) -> str:
        """Name of the figure."""
        return self.id.rpartition('/')[0]

    def holds(self, computed: Mapping[str, float]) -> bool | None:
        """Whether all computed numbers compare as stated; None if it cannot be compared.

        Raises:
          KeyError: If a number is not computed.
        """
        agree = [
            math.isfinite(computed[name]) and COMPARISONS[self.comparison[name]](computed[name], x)
            for name, x in self.published.items()
        ]
        return all(agree) if self.reproducible else None


_FIELDS = {field.name for field in dataclasses.fields(Statement)}


def load(path: str | os.PathLike[str]) -> dict[str, Statement]:
    """Reads the statements of a data file, by id.

    Raises:
      ValueError: If the file cannot be read, has no statements or a malformed one, or repeats an
        id.
    """
    return {name: _statement(name, entry) for name, entry in rows.entries(path).items()}


def _statement(name: str, entry: dict[str, Any]) -> Statement:
    try:
        if entry.keys() != _FIELDS:
            raise ValueError(f'must have the fields {", ".join(sorted(_FIELDS))}, no others')
        return Statement(**entry)
    except ValueError as error:
        raise ValueError(f'statement {name}: {error}') from None
