"""The definition of a study: lines (such as mechanisms) at the values of an axis (such as cohorts).

A study is a JSON file in `experiments/studies/grids`, with the fields of `Study`; `base` names a
file of flags beside it. A line and a value of the axis each set some flags of `dpfl train`. A line
at a value is a point, and a point with a seed is a run. Without an axis a study compares curves
over the rounds.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import _files, _json, _validate, errors

FOLDER = pathlib.Path(__file__).parents[1] / 'grids'
CURVES = ('round', 'epsilon')
SCALES = ('linear', 'log')
Flags = Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class Point:
    """A line at a value of the axis.

    Attributes:
      line: name of the line.
      value: name of the value on the axis; None if the study has no axis.
      flags: flags of the runs; None for a flag that is left out, even if the study sets it.
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
    """A command that runs first, such as one that optimises a strategy.

    Attributes:
      name: name of the preparation. If it contains `{seed}`, it is made once for each seed.
      binary: the command, such as `optimize_strategy`.
      flags: its flags.
      shared: names of flags that it takes from the study, if the study has them.
    """

    name: str
    binary: str
    flags: Flags
    shared: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """The claim that a measure is higher at one point than at another, pair by pair.

    Attributes:
      text: the claim in words.
      measure: name of the measure.
      higher, lower: names of the two points.
      by: smallest difference that is claimed; negative for 'not lower by more than'.
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
      label: label of the axis.
      values: flags by the name of a value. The names are numbers.
      scale: one of `SCALES`.
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
      name: name of its file without the suffix.
      title: title of the page.
      about: what is compared, and why.
      mirrors: the published figure or table that the study copies at a small scale.
      flags: flags of all runs.
      lines: flags by the name of a line.
      axis: the horizontal axis; None for curves over the rounds.
      curves: quantity on the horizontal axis of the curves, one of `CURVES`; used without an axis.
      preparations: commands that run before the runs.
      measures: columns of the table; the figure shows the first. See `results.py`.
      threshold: accuracy for the measure `rounds_to_threshold`; None without that measure.
      smooth: number of evaluations over which accuracy and loss are averaged.
      orders: measures that each rank the points, to see whether the rankings agree.
      predictions: by measure, two measures that may predict it over the points.
      claims: claims to check.
      seeds: seeds of the runs.
      tuned_on: seeds on which the flags were chosen; none of them is in `seeds`.
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
        """All points, ordered by line. A flag that its line removes (None) stays removed."""
        values: Mapping[Any, Flags] = {None: {}} if self.axis is None else self.axis.values
        return tuple(
            Point(line, value, {**self.flags, **flags, **more, **_removed(flags)})
            for line, flags in self.lines.items()
            for value, more in values.items()
        )

    def at_values(self) -> dict[str | None, list[Point]]:
        """The points by value of the axis; under None without an axis."""
        values = dict.fromkeys(point.value for point in self.points)
        return {value: [each for each in self.points if each.value == value] for value in values}


def _removed(flags: Flags) -> Flags:
    return {name: None for name, value in flags.items() if value is None}


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises ValueError unless there is at least one seed, and all are different integers >= 0."""
    if not seeds or len({*seeds}) < len(seeds):
        raise errors.ArgumentError(
            'seeds', ','.join(map(str, seeds)), 'must be different, and at least one'
        )
    for seed in seeds:
        _validate.integer('seeds', seed, minimum=0)


def names() -> tuple[str, ...]:
    """Names of the studies that come with dpfl, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob('*.json')))


def load(name: str) -> Study:
    """Loads a study from a JSON file, or by its name.

    Raises:
      ArgumentError: if there is no such file, or it does not define a study.
    """
    path = pathlib.Path(name)
    path = FOLDER / f'{name}.json' if name in names() else path
    if not path.is_file():
        known = ', '.join(names())
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
    """Reads a file of flags: `--name=value` or `--name` on a line, comments that begin with `#`."""
    flags = {}
    for line in map(str.strip, _files.read_text(path).splitlines()):
        if not line or line.startswith('#'):
            continue
        if not line.startswith('--'):
            raise ValueError(f'{path.name}: {line} is not a flag')
        name, _, value = line.removeprefix('--').partition('=')
        flags[name] = value or 'true'
    return flags
