"""The kinds of sampling that a guarantee may rely on, by name."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dpfl import errors
from dpfl.accounting.sampling.b_min_sep import BMinSep
from dpfl.accounting.sampling.balls_in_bins import BallsInBins, RandomAllocation
from dpfl.accounting.sampling.base import Sampling
from dpfl.accounting.sampling.independent_cohorts import (
    CyclicPoisson,
    Poisson,
    TruncatedPoisson,
    WithoutReplacement,
)

NONE = 'none'
# A new kind enters here.
_KINDS: tuple[type[Sampling], ...] = (
    Poisson,
    CyclicPoisson,
    TruncatedPoisson,
    WithoutReplacement,
    BallsInBins,
    RandomAllocation,
    BMinSep,
)
KINDS = {kind.name: kind for kind in _KINDS}


def settings(kind: type[Sampling] | None) -> list[str]:
    """Names of the settings of a kind of sampling."""
    return [] if kind is None else [field.name for field in dataclasses.fields(kind)]


def name(sampling: Sampling | None) -> str:
    """Name of a sampling in flags and files; 'none' without one."""
    return NONE if sampling is None else sampling.name


def settings_of(sampling: Sampling | None) -> dict[str, Any]:
    """Settings of a sampling as JSON values; a population of None without one."""
    return {'population': None} if sampling is None else sampling.to_dict()


def every_setting() -> list[str]:
    """Names of the settings of all kinds."""
    return list(dict.fromkeys(name for kind in KINDS.values() for name in settings(kind)))


def from_settings(name: str, values: Mapping[str, Any]) -> Sampling | None:
    """The sampling of a name; None for 'none'.

    Args:
      name: 'none', or that of a kind.
      values: settings by name; a setting that is None is not given.

    Raises:
      ArgumentError: if the name or a setting is unknown, missing or out of its range.
    """
    if name != NONE and name not in KINDS:
        raise errors.ArgumentError('sampling', name, errors.one_of(name, names()))
    kind = KINDS.get(name)
    given = {key: value for key, value in values.items() if value is not None}
    for key, value in given.items():
        if key not in settings(kind):
            which = 'without sampling' if kind is None else f'with sampling={name}'
            raise errors.ArgumentError(key, value, f'cannot be given {which}')
    for key in settings(kind):
        if key not in given:
            raise errors.ArgumentError(key, errors.NOT_SHOWN, f'must be given with sampling={name}')
    return None if kind is None else kind(**given)


def names() -> tuple[str, ...]:
    """'none', and the names of all kinds."""
    return (NONE, *KINDS)
