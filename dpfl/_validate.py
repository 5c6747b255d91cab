"""Checks of arguments; each message names the argument, its value and the bound, in one line.

Every comparison is written so that NaN fails it. Values may come from files that somebody else
made: whatever they are, the error is a ValueError with one line of printable text.
"""

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import numpy as np

from dpfl.errors import ArgumentError, one_of, shown

# Most rounds of a run: seven weeks at one second each. Arrays over more would not fit into memory.
MOST_ROUNDS = 2**22
# Largest entry of a matrix: sums of squares over all rounds then fit into floats.
MOST_ENTRY = 1e100
# Within these limits float32 holds clipped updates and their noise with all digits, no square of a
# float64 overflows, and epsilon is finite.
LEAST_SCALE, MOST_SCALE = 1e-30, 1e30
# These as bounds of a setting.
SCALE: dict[str, Any] = {'minimum': LEAST_SCALE, 'maximum': MOST_SCALE}


def integer(name: str, value: Any, *, minimum: int, maximum: int | None = None) -> int:
    """Returns `value` as an int; raises ValueError unless it is an integer within the bounds."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not is_integer or value < minimum or (maximum is not None and value > maximum):
        allowed = f'an integer >= {minimum}' + ('' if maximum is None else f' and <= {maximum}')
        raise ArgumentError(name, value, f'must be {allowed}')
    return int(value)


def integers(name: str, values: Any, *, minimum: int, maximum: int) -> tuple[int, ...]:
    """Returns any sequence of integers within the bounds as a tuple; raises ValueError if not."""
    try:
        values = tuple(values)
    except TypeError:
        raise ArgumentError(name, shown(values), 'must be a list of integers') from None
    return tuple(integer(name, value, minimum=minimum, maximum=maximum) for value in values)


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    minimum: float | None = None,
    below: float | None = None,
    maximum: float | None = None,
) -> float:
    """Returns `value` as a finite float; `above` and `below` are strict bounds, the others not."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    holds = is_number and (
        _is_finite(value)
        and (above is None or value > above)
        and (minimum is None or value >= minimum)
        and (below is None or value < below)
        and (maximum is None or value <= maximum)
    )
    if not holds:
        bounds = ((above, '>'), (minimum, '>='), (below, '<'), (maximum, '<='))
        allowed = ' and '.join(f'{sign} {bound:g}' for bound, sign in bounds if bound is not None)
        raise ArgumentError(name, value, f'must be a finite number {allowed}'.rstrip())
    return float(value)


def noise_multiplier(name: str, value: Any) -> float:
    """Returns `value` as a float; raises ValueError unless it is 0 or of a size to compute with."""
    multiplier = number(name, value, minimum=0)
    if multiplier and not LEAST_SCALE <= multiplier <= MOST_SCALE:
        bounds = f'[{LEAST_SCALE:g}, {MOST_SCALE:g}]'
        raise ArgumentError(name, value, f'must be 0 (no noise) or within {bounds}')
    return multiplier


def scale(name: str, value: Any) -> float:
    """Returns `value` as a float; raises ValueError unless it is of a size to compute with."""
    return number(name, value, **SCALE)


def stddev(name: str, clip_norm: float, noise_multiplier: float) -> None:
    """Raises ValueError unless the noise for a clip norm is 0, or a float32 with room for more."""
    product = clip_norm * noise_multiplier
    if noise_multiplier and not LEAST_SCALE <= product <= MOST_SCALE:
        raise ArgumentError(
            name,
            clip_norm,
            f'its product with noise_multiplier={noise_multiplier} must be within '
            f'[{LEAST_SCALE:g}, {MOST_SCALE:g}]',
        )


def vector(name: str, value: Any) -> np.ndarray:
    """Returns `value` as a read-only float64 vector; raises ValueError unless it is of numbers.

    The numbers must be finite, and at most `MOST_ENTRY` in absolute value.
    """
    try:
        array = floats(value)
    except ValueError:
        raise ArgumentError(name, value, 'must be a list of numbers') from None
    if array.ndim != 1 or not (np.abs(array) <= MOST_ENTRY).all():
        raise ArgumentError(
            name, value, f'must be a list of finite numbers, at most {MOST_ENTRY:g}'
        )
    array.setflags(write=False)
    return array


def floats(value: Any) -> np.ndarray:
    """A copy of `value` as a float64 array of any shape; raises ValueError unless it holds numbers.

    Texts, truth values and complex numbers are refused. -0.0 becomes 0.0, because equal arrays must
    have equal digests.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise ValueError('must be an array of numbers') from None
    if array.dtype.kind not in 'iuf':
        raise ValueError('must be an array of numbers')
    return np.asarray(array, dtype=np.float64) + 0.0


def truth(name: str, value: Any) -> bool:
    """Returns `value`; raises ValueError unless it is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(name, value, 'must be true or false')
    return value


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Returns `value`; raises ValueError unless it is one of `allowed`."""
    # Only texts: `in` fails for lists in a dictionary, and for arrays.
    if not isinstance(value, str) or value not in allowed:
        raise ArgumentError(name, value, one_of(value, allowed))
    return value


def instance_of(kind: type, *others: Any, text: str = '') -> Callable[[str, Any], None]:
    """A check that a value is of a type, or one of `others`; `text` says what it must be."""
    allowed = text or ' or '.join(['must be of type ' + kind.__name__, *map(str, others)])

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind) and not any(value is other for other in others):
            raise ArgumentError(name, value, allowed)

    return check


def tuple_of(kind: type, entries: str) -> Callable[[str, Any], None]:
    """A check that a value is a tuple with entries of a type, which `entries` names."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, tuple) or not all(isinstance(entry, kind) for entry in value):
            raise ArgumentError(name, value, f'must be a tuple of {entries}')

    return check


@dataclasses.dataclass(frozen=True, eq=False)  # Types with limits are looked up in many loops.
class Limits:
    """What the values of a type are like: `Annotated[float, Limits('nats', minimum=0)]`.

    Attributes:
      unit: such as 'rounds'; empty for a number without one.
      minimum, above, below, maximum: bounds of a number; `above` and `below` are strict.
      choices: the allowed texts.
      has_infinity: whether a number may also be infinite, which is null in JSON.
    """

    unit: str = ''
    _: dataclasses.KW_ONLY
    minimum: float | None = None
    above: float | None = None
    below: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    has_infinity: bool = False

    def check(self, kind: type, name: str, value: Any) -> None:
        """Raises ArgumentError unless a value is of a type, int, float or str, and within these."""
        if kind is str:
            choice(name, value, self.choices)
        elif kind is int:
            assert isinstance(self.minimum, int) and isinstance(self.maximum, int | None)
            integer(name, value, minimum=self.minimum, maximum=self.maximum)
        else:
            number(
                name,
                value,
                above=self.above,
                minimum=self.minimum,
                below=self.below,
                maximum=self.maximum,
            )


# A number of rounds, or of rounds from one to another.
Rounds = Annotated[int, Limits('rounds', minimum=1, maximum=2**31 - 1)]
# An epsilon, or another bound on the logarithm of a quotient of probabilities.
Nats = Annotated[float, Limits('nats', minimum=0)]
# An epsilon that is infinite without a guarantee.
Epsilon = Annotated[float, Limits('nats', minimum=0, has_infinity=True)]
# A delta or another probability that is neither 0 nor 1.
Probability = Annotated[float, Limits('probability', above=0, below=1)]
# A parameter of Gaussian DP.
Deviations = Annotated[float, Limits('standard deviations', minimum=0)]
# A clip norm.
Norm = Annotated[float, Limits('L2 norm of an update', **SCALE)]


def by_type(name: str, value: Any, hint: Any) -> None:
    """Raises ArgumentError unless a value is within the limits of its type, if that has any.

    None is allowed if it is one of the types of a union.
    """
    may_be_none, limited = _limited(hint)
    if not (value is None and may_be_none):
        for kind, limits in limited:
            limits.check(kind, name, value)


@functools.cache
def _limited(hint: Any) -> tuple[bool, tuple[tuple[Any, Limits], ...]]:
    """Whether a type has None, and its types with limits. Plans are made in many loops."""
    options = typing.get_args(hint) if is_union(hint) else (hint,)
    limited = [typing.get_args(each) for each in options if typing.get_origin(each) is Annotated]
    return types.NoneType in options, tuple((kind, limits) for kind, limits in limited)


def is_union(hint: Any) -> bool:
    """Whether a type is a union of others."""
    return typing.get_origin(hint) in (types.UnionType, typing.Union)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer beyond all floats.
        return False
