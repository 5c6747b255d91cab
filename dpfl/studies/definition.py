"""The definition of a study, read from a JSON file in configs/studies. No TensorFlow.

A study compares lines (for example mechanisms) at the values of an axis (for example cohort sizes).
Without an axis it compares curves over the rounds. A line and a value each set some flags of
`dpfl train`. A line at a value is a point, and a point with a seed is a run. All points of a
seed share the language, clients, cohorts and initial model, and draw their noise from the same
seed, so they are compared in pairs.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import _files, _json, _validate, errors, presets

CURVES = ('round', 'epsilon')
SCALES = ('linear', 'log')
Flags = Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class Point:
    """A line at a value of the axis.

    Attributes:
      line: Name of the line.
      value: Name of the value on the axis; None if the study has no axis.
      flags: Flags of the runs of this point. A flag that is None is left out, even if the study
        sets it.
    """

    line: str
    value: str | None
    flags: Flags

    @property
    def name(self) -> str:
        """Name of the point: `line`, or `line/value` if there is an axis."""
        return self.line if self.value is None else f'{self.line}/{self.value}'


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Something the runs need first, such as an optimised strategy or a model of public text.

    Attributes:
      name: Name of the preparation. If it contains `{seed}`, it is made once for each seed.
      binary: Command that makes it.
      flags: Flags of the binary.
      shared: Names of flags that it takes from the runs, if the runs have them.
    """

    name: str
    binary: str
    flags: Flags
    shared: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """The claim that a measure is higher at one point than at another, pair by pair.

    Attributes:
      text: The claim in words.
      measure: Name of the measure.
      higher, lower: Names of the two points.
      by: Smallest difference that is claimed; negative for 'not lower by more than'.
    """

    text: str
    measure: str
    higher: str
    lower: str
    by: float = 0.0


@dataclasses.dataclass(frozen=True)
class Axis:
    """The horizontal axis of a study.

    Attributes:
      label: Label of the axis.
      values: Flags by the name of a value. The names are numbers.
      scale: One of `SCALES`.
    """

    label: str
    values: Mapping[str, Flags]
    scale: str = 'linear'

    def __post_init__(self):
        _validate.choice('scale', self.scale, SCALES)
        if not self.values:
            raise ValueError('values: must have at least one')
        for value in self.values:
            try:
                float(value)
            except ValueError:
                raise errors.ArgumentError('values', value, 'must be numbers') from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study.

    Attributes:
      name: Name of its file without the suffix.
      title: Title of the page.
      about: What is compared, and why.
      mirrors: The published figure or table that the study copies at a small scale, as in
        'McMahan et al. 2024, table 3'.
      flags: Flags of all runs.
      lines: Flags by the name of a line.
      axis: The horizontal axis; None for curves over the rounds.
      curves: Quantity on the horizontal axis of the curves, one of `CURVES`. Used without an axis.
      preparations: What is made before the runs.
      measures: Columns of the table; the figure shows the first. See `measures.py`.
      threshold: Accuracy for the measure `rounds_to_threshold`; None without that measure.
      smooth: Number of evaluations over which accuracy and loss are averaged.
      orders: Measures that each rank the points, to see whether the rankings agree.
      predictions: By measure, those that may predict it over the points, see `prediction.py`.
      claims: Claims to check.
      seeds: Seeds of the runs.
      tuned_on: Seeds on which the flags were chosen; none of them is in `seeds`.
    """

    name: str
    title: str
    about: str
    mirrors: str
    flags: Flags
    lines: Mapping[str, Flags]
    axis: Axis | None = None
    curves: str = 'round'
    preparations: Sequence[Preparation] = ()
    measures: Sequence[str] = ('accuracy', 'loss', 'epsilon')
    threshold: float | None = None
    smooth: int = 1
    orders: Sequence[str] = ()
    predictions: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    claims: Sequence[Claim] = ()
    seeds: Sequence[int] = (1, 2, 3, 4, 5)
    tuned_on: Sequence[int] = ()

    def __post_init__(self):
        _validate.choice('curves', self.curves, CURVES)
        _validate.integer('smooth', self.smooth, minimum=1)
        if self.threshold is not None:
            _validate.number('threshold', self.threshold, above=0, maximum=1)
        elif 'rounds_to_threshold' in self.measures:
            raise ValueError('threshold: must be given for rounds_to_threshold')
        if not self.lines or not self.measures:
            raise ValueError('lines, measures: must have at least one')
        check_seeds(self.seeds)
        both = sorted({*self.seeds} & {*self.tuned_on})
        if both:
            raise errors.ArgumentError('tuned_on', both[0], 'must not be one of the seeds')
        names = [point.name for point in self.points]
        for claim in self.claims:
            for name in (claim.higher, claim.lower):
                _validate.choice('claims', name, names)

    @property
    def points(self) -> tuple[Point, ...]:
        """All points, ordered by line."""
        values: Mapping[Any, Flags] = {None: {}} if self.axis is None else self.axis.values
        return tuple(
            Point(line, value, _merged(self.flags, flags, more))
            for line, flags in self.lines.items()
            for value, more in values.items()
        )


def _merged(common: Flags, of_line: Flags, of_value: Flags) -> Flags:
    """Flags of a point. A flag that its line removes (None) stays removed."""
    removed = {name: None for name, value in of_line.items() if value is None}
    return {**common, **of_line, **of_value, **removed}


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises ValueError unless there is at least one seed, and all are different integers >= 0."""
    if not seeds or len({*seeds}) < len(seeds):
        raise errors.ArgumentError(
            'seeds', ','.join(map(str, seeds)), 'must be different, and at least one'
        )
    for seed in seeds:
        _validate.integer('seeds', seed, minimum=0)


def load(name: str) -> Study:
    """Loads a study from a JSON file, or by its name in configs/studies.

    Raises:
      ArgumentError: If there is no such file, or it does not define a study.
    """
    path = presets.find(name, folder='studies')
    if path is None or not path.is_file():
        known = ', '.join(presets.studies())
        raise errors.ArgumentError('study', name, f'must be a JSON file or one of {known}')
    try:
        return _study(path, _json.loads(_files.read_bytes(path)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = errors.shown(error)
        raise errors.ArgumentError('study', name, f'cannot be used ({message})') from None


def _study(path: pathlib.Path, values: dict[str, Any]) -> Study:
    base = read_flagfile(path.parent / values.pop('base')) if 'base' in values else {}
    axis = values.pop('axis', None)
    return Study(
        name=path.stem,
        flags={**base, **values.pop('flags', {})},
        axis=None if axis is None else Axis(**axis),
        preparations=tuple(
            Preparation(name, **given) for name, given in values.pop('preparations', {}).items()
        ),
        claims=tuple(Claim(**claim) for claim in values.pop('claims', ())),
        **values,
    )


def read_flagfile(path: pathlib.Path) -> dict[str, str]:
    """Reads a flagfile: a `--name=value` or `--name` per line, comments with `#`, empty lines."""
    flags = {}
    for line in _files.read_text(path).splitlines():
        line = line.strip()
        if not line or line.startswith('#'):
            continue
        if not line.startswith('--'):
            raise ValueError(f'{path.name}: {line} is not a flag')
        name, _, value = line.removeprefix('--').partition('=')
        flags[name] = value or 'true'
    return flags
