"""Cached results with scaled columns: the mechanism that the values of an entry describe."""

from typing import Any

from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.lagged_blt import LaggedBlt
from dpfl.mechanisms.switched_blt import SwitchedBlt

_KINDS: tuple[type[Mechanism], ...] = (Blt, LaggedBlt, SwitchedBlt)
_BASES: dict[str, Any] = {kind.name: kind for kind in _KINDS}


def make(base: dict[str, Any], **values: Any) -> ColumnScaled:
    """The mechanism of these values; the argument `make` of `cache.cached`.

    Args:
      base: values of the base, as its `to_dict` gives them.
      **values: the other values of the mechanism, by name.

    Raises:
      KeyError: if the base is of another kind than those of the optimisers.
    """
    parameters = {name: value for name, value in base.items() if name != 'mechanism'}
    return ColumnScaled(_BASES[base['mechanism']](**parameters), **values)
