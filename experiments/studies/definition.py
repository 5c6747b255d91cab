"""What a study is: data in a JSON file of configs/studies. No TensorFlow.

A study compares lines (mechanisms, say) at the values of an axis (cohort sizes), or over the
rounds if it has no axis. A line and a value are flags of `experiments.train`; together they are a
point, and a run is a point with a seed. All points of a seed have the same language, clients,
cohorts and initial model, and draw their noise from the same seed: they are compared in pairs.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from dpfl import _files, _json, _validate, errors

FOLDER = pathlib.Path(__file__).parents[2] / 'configs' / 'studies'
CURVES = ('round', 'epsilon')
SCALES = ('linear', 'log')
Flags = Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class Point:
    """A line at a value of the axis.

    Attributes:
      line: its name.
      value: name of the value on the axis; None if the study has none.
      flags: that make the point; a flag that is None is not given, whatever the study says.
    """

    line: str
    value: str | None
    flags: Flags

    @property
    def name(self) -> str:
        """`line`, or `line/value`."""
        return self.line if self.value is None else f'{self.line}/{self.value}'


@dataclasses.dataclass(frozen=True)
class Preparation:
    """What has to be made before the runs: an optimised strategy, a model of public text.

    Attributes:
      name: of the preparation; with `{seed}` in it there is one for each seed.
      binary: in `experiments`.
      flags: of the binary.
      shared: names of flags that it has from the runs, where those have them.
    """

    name: str
    binary: str
    flags: Flags
    shared: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """That a measure is higher at one point than at another, pair by pair.

    Attributes:
      text: in words.
      measure: which.
      higher, lower: names of the points.
      by: at least how much higher; negative for 'not lower by more than'.
    """

    text: str
    measure: str
    higher: str
    lower: str
    by: float = 0.0


@dataclasses.dataclass(frozen=True)
class Axis:
    """What is on the horizontal axis.

    Attributes:
      label: in words.
      values: flags by the name of a value, which is a number.
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
      name: of its file.
      title, about: in words.
      mirrors: the figure or table that it is a small copy of, as in 'document 002, table 3'.
      flags: of all runs.
      lines: flags by the name of a line.
      axis: None for curves over the rounds.
      curves: what is on the horizontal axis of the curves, one of `CURVES`; without an axis only.
      preparations: what is made first.
      measures: columns of the table; the first is in the figure. See `measures.py`.
      threshold: accuracy for the measure `rounds_to_threshold`; None without it.
      smooth: how many of the last evaluations an accuracy or a loss is the mean of.
      orders: measures by which the points are put in order, to see whether the orders agree.
      claims: what is checked.
      seeds: of the runs.
      tuned_on: seeds on which the flags were chosen; none of `seeds`.
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
        """All points, line by line."""
        values: Mapping[Any, Flags] = {None: {}} if self.axis is None else self.axis.values
        return tuple(
            Point(line, value, _merged(self.flags, flags, more))
            for line, flags in self.lines.items()
            for value, more in values.items()
        )


def _merged(common: Flags, of_line: Flags, of_value: Flags) -> Flags:
    """Flags of a point; what its line takes away stays so."""
    taken_away = {name: None for name, value in of_line.items() if value is None}
    return {**common, **of_line, **of_value, **taken_away}


def check_seeds(seeds: Sequence[int]) -> None:
    """Raises ValueError unless they are different integers from 0 on, at least one."""
    if not seeds or len({*seeds}) < len(seeds):
        raise errors.ArgumentError(
            'seeds', ','.join(map(str, seeds)), 'must be different, and at least one'
        )
    for seed in seeds:
        _validate.integer('seeds', seed, minimum=0)


def names() -> list[str]:
    """The studies of configs/studies."""
    return sorted(path.stem for path in FOLDER.glob('*.json'))


def load(name: str) -> Study:
    """The study of a name in configs/studies, or of a JSON file.

    Raises:
      ValueError: if there is none, or it is not one; the message begins with `study=`.
    """
    path = FOLDER / f'{name}.json' if name in names() else pathlib.Path(name)
    if not path.is_file():
        raise errors.ArgumentError(
            'study', name, f'must be a JSON file or one of {", ".join(names())}'
        )
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
    """Flags of a file, `--name=value` or `--name` a line; others begin with `#` or are empty."""
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
