"""The course of an adaptive clip norm: private releases of a run, covered by its guarantee."""

import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping
from typing import Any

from dpfl import _json, _validate, errors

# Columns of metrics.csv.
_ROUND, _NORM, _ESTIMATE = 'round', 'clip_norm', 'clip_norm_estimate'
# Longer lists of norms are cut in the page of a report.
_MOST_NORMS = 12


@dataclasses.dataclass(frozen=True)
class ClipCourse:
    """The clip norms of a run, and the estimate of the quantile at its end.

    Both are computed from noised counts. Strategies 5 and 6 of [Xu23], section 2.5, take the fixed
    clip norm of the next run from the estimate.

    Attributes:
      norms: each clip norm and the first round that used it, counted from 0, as `clip_schedule` of
        a plan has them; at least one.
      estimate: the estimate after the last round.

    Raises:
      ArgumentError: if a field is out of its range.
    """

    norms: tuple[tuple[int, float], ...]
    estimate: float

    def __post_init__(self):
        if not self.norms:
            raise errors.ArgumentError('norms', '[]', 'must hold at least one norm')
        before = -1
        for first, norm in self.norms:
            _validate.integer('norms round', first, minimum=before + 1)
            _validate.number('norms', norm, above=0)
            before = first
        _validate.number('estimate', self.estimate, above=0)

    def to_dict(self) -> dict[str, Any]:
        """The course as JSON values."""
        return {'norms': [list(pair) for pair in self.norms], 'estimate': self.estimate}

    @classmethod
    def from_dict(cls, values: Any) -> 'ClipCourse':
        """The course that `to_dict` wrote as `values`.

        Raises:
          ValueError: if they are of another form.
        """
        if not isinstance(values, dict) or values.keys() != {'norms', 'estimate'}:
            raise errors.ArgumentError(
                'clip_course', errors.NOT_SHOWN, 'must have norms and estimate'
            )
        return cls(_json.pairs('norms', values['norms']), values['estimate'])

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> 'ClipCourse | None':
        """The course in the metrics of rounds; None if no round has a clip norm.

        Args:
          rows: `round`, from 1, and `clip_norm` and `clip_norm_estimate`, as numbers or their
            texts; those of rounds without them are missing, or empty texts.

        Raises:
          ValueError: if a clip norm or an estimate is not a number above 0.
        """
        norms: list[tuple[int, float]] = []
        estimate = None
        for row in rows:
            if all(row.get(each) not in (None, '') for each in (_NORM, _ESTIMATE)):
                norm, estimate = float(row[_NORM]), float(row[_ESTIMATE])
                if not norms or norms[-1][1] != norm:
                    norms.append((int(row[_ROUND]) - 1, norm))
        return None if estimate is None else cls(tuple(norms), estimate)

    @classmethod
    def from_csv(cls, text: str) -> 'ClipCourse | None':
        """The course in the text of `metrics.csv`, as `from_rows`."""
        return cls.from_rows(csv.DictReader(io.StringIO(text)))

    def render(self) -> str:
        """The course in Markdown."""
        rows = [f'| {first} | {norm:.6g} |' for first, norm in self.norms[:_MOST_NORMS]]
        left = len(self.norms) - _MOST_NORMS
        if left > 0:
            first, norm = self.norms[-1]
            rows.append(f'| and {left} later changes, the last in {first} | {norm:.6g} |')
        return '\n'.join(
            [
                'The estimate of the quantile after the last round is '
                f'{self.estimate:.6g}: `--clip_norm={self.estimate:.6g}` fixes the clip norm of '
                'another run to it (Xu et al. 2023, section 2.5). Like the models, norms and '
                'estimate are computed from noised sums alone. `metrics.csv` has them for every '
                'round.',
                '',
                '| from round (counted from 0) | clip norm |',
                '|---|---|',
                *rows,
            ]
        )
