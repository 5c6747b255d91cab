"""The registry: every mechanism of the library, how it is made, and how it is optimised.

Binaries, files and tests ask this table. A new mechanism is one file with its class and one
`Entry` here. Dictionaries and files become mechanisms here, too. No TensorFlow is imported.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np

from dpfl import _validate, errors
from dpfl.mechanisms import (
    banded,
    base,
    block_blt,
    blt,
    column_scaled,
    mechanism_file,
    restarts,
    tree,
)
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.optimize.banded import optimize_banded
from dpfl.mechanisms.optimize.banded_inverse import optimize_banded_inverse
from dpfl.mechanisms.optimize.banded_toeplitz import optimize_banded_toeplitz
from dpfl.mechanisms.optimize.block_blt import optimize_block_blt
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.optimize.scaled_blt import optimize_scaled_blt
from dpfl.mechanisms.tree import FullHonakerTree
from dpfl.participation import Participation

# The parameter that stands for all parameters: a mechanism that was saved before.
STRATEGY = 'strategy'
_FROM_FILE = ((STRATEGY,),)
# Names in the files of designs that were removed.
REMOVED = ('lagged_blt', 'continued', 'switched_blt')
# Limit of mechanisms nested in each other, as the base in a restarted one.
_MOST_DEPTH = 8


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How the parameters of a mechanism are optimised for a participation schema.

    Attributes:
      function: takes the schema and the size, and `loss`, `workload`, `progress` by name.
      size: unit of the size: 'buffers' or 'bands'.
      losses: losses that can be minimised; the mechanism is published with the first.
      default_buffers: the size if none is given; None for the minimum separation.
      quick_rounds: number of rounds beyond which it takes minutes; None if it never does.
    """

    function: Callable[..., Mechanism]
    size: str
    losses: tuple[str, ...]
    default_buffers: int | None = None
    quick_rounds: int | None = None

    def default_size(self, participation: Participation) -> int:
        """The size for a schema if none is given."""
        if self.default_buffers is not None:
            return self.default_buffers
        return min(participation.min_separation, participation.rounds)

    def num_buffers(self, size: int) -> int:
        """Most buffers of a mechanism of that size, see `Mechanism.num_buffers`."""
        return size if self.size == 'buffers' else size - 1

    def optimize(
        self,
        participation: Participation,
        size: int | None = None,
        *,
        loss: str | None = None,
        workload: np.ndarray | None = None,
        progress: bool = False,
    ) -> Mechanism:
        """The mechanism of least loss that was found.

        Args:
          participation: the schema to optimise for.
          size: number of buffers or bands, at least 1; None for `default_size`.
          loss: one of `losses`; None for the first.
          workload: A, see `mechanisms.workload`; None for the prefix sums.
          progress: whether to show progress on standard error.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        loss = self.losses[0] if loss is None else _validate.choice('loss', loss, self.losses)
        size = self.default_size(participation) if size is None else size
        return self.function(participation, size, loss=loss, workload=workload, progress=progress)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A mechanism by the name that users give it.

    Attributes:
      name: value of --mechanism.
      kind: the class; several entries may share one.
      make: makes the mechanism of its number of rounds and parameters given by name; None if it
        can only be read from a file or optimised.
      ways: alternative sets of parameters, one of which must be given: `STRATEGY`, or parameters
        of `make`. An empty set means that nothing but the number of rounds is needed.
      optional: parameters of `make` that may be given besides.
      optimizer: how to optimise it; None if it has nothing to optimise.
    """

    name: str
    kind: type[Mechanism]
    make: Callable[..., Mechanism] | None = None
    ways: tuple[tuple[str, ...], ...] = ((),)
    optional: tuple[str, ...] = ()
    optimizer: Optimizer | None = None

    @property
    def extends(self) -> bool:
        """Whether the mechanism can have more rounds than it was made for."""
        return self.kind.extends

    @property
    def parameters(self) -> tuple[str, ...]:
        """Every parameter that may be given."""
        return (*dict.fromkeys(name for way in self.ways for name in way), *self.optional)

    def accepts(self, given: Iterable[str]) -> bool:
        """Whether the given parameters are those of one of `ways`, besides optional ones."""
        return set(given) - set(self.optional) in [set(way) for way in self.ways]

    def needs(self, shown: Callable[[str], str] = str) -> str:
        """The parameters that must be given, as text: 'strategy, or decay and scale'.

        Args:
          shown: gives the text for a parameter, such as its flag.
        """
        return ', or '.join(' and '.join(map(shown, way)) or 'none' for way in self.ways)

    def construct(self, rounds: int, **given: Any) -> Mechanism:
        """The mechanism for `rounds` rounds.

        Args:
          rounds: number of rounds.
          **given: values of `parameters`; one that is None counts as not given. The value of
            `strategy` is a mechanism of this type.

        Raises:
          ArgumentError: if the given parameters are not those of one of `ways`, or a value is out
            of its range.
        """
        given = {name: value for name, value in given.items() if value is not None}
        unknown = [name for name in given if name not in self.parameters]
        if unknown:
            raise errors.ArgumentError(
                unknown[0],
                errors.NOT_SHOWN,
                f'mechanism={self.name} does not take this parameter',
            )
        if not self.accepts(given):
            raise errors.ArgumentError('mechanism', self.name, f'needs {self.needs()}')
        if STRATEGY not in given:
            assert self.make is not None
            return self.make(rounds, **given)
        strategy = given[STRATEGY]
        if type(strategy) is not self.kind:
            raise errors.ArgumentError(
                STRATEGY,
                getattr(strategy, 'name', strategy),
                f'must be a {self.kind.name} mechanism',
            )
        return strategy.with_rounds(rounds)


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry('gaussian', base.Identity, base.Identity),
        Entry('tree', tree.BinaryTree, tree.BinaryTree, optional=('released',)),
        Entry('honaker_tree', tree.HonakerTree, tree.HonakerTree, optional=('released',)),
        Entry('full_honaker_tree', FullHonakerTree, FullHonakerTree),
        # BandMF as published, with equal column norms.
        Entry(
            'banded',
            banded.Banded,
            ways=_FROM_FILE,
            optimizer=Optimizer(optimize_banded, 'bands', ('rms', 'max'), quick_rounds=3000),
        ),
        # The least loss of all banded strategies.
        Entry(
            'free_banded',
            banded.Banded,
            ways=_FROM_FILE,
            optimizer=Optimizer(
                functools.partial(optimize_banded, column_norms='free'),
                'bands',
                ('max', 'rms'),
                quick_rounds=3000,
            ),
        ),
        Entry(
            'banded_toeplitz',
            banded.BandedToeplitz,
            ways=_FROM_FILE,
            optimizer=Optimizer(optimize_banded_toeplitz, 'bands', ('rms', 'max')),
        ),
        Entry(
            'fichtenberger_toeplitz',
            banded.BandedToeplitz,
            banded.BandedToeplitz.fichtenberger,
            optional=('bands',),
        ),
        Entry(
            'banded_inverse',
            banded.BandedInverse,
            ways=_FROM_FILE,
            optimizer=Optimizer(optimize_banded_inverse, 'bands', ('max', 'rms')),
        ),
        Entry(
            'blt',
            blt.Blt,
            blt.Blt,
            ways=((STRATEGY,), ('decay', 'scale')),
            optimizer=Optimizer(optimize_blt, 'buffers', ('max', 'rms'), default_buffers=4),
        ),
        Entry('column_scaled', column_scaled.ColumnScaled, ways=_FROM_FILE),
        Entry(
            'scaled_blt',
            column_scaled.ColumnScaled,
            ways=_FROM_FILE,
            optimizer=Optimizer(optimize_scaled_blt, 'buffers', ('max', 'rms'), default_buffers=4),
        ),
        Entry(
            'block_blt',
            column_scaled.ColumnScaled,
            ways=_FROM_FILE,
            optimizer=Optimizer(optimize_block_blt, 'buffers', ('max', 'rms'), default_buffers=4),
        ),
        Entry('restarted', restarts.Restarted, ways=_FROM_FILE),
        Entry('unscaled_block_blt', block_blt.BlockBlt, ways=_FROM_FILE),
    )
}

# Classes by the name that their files and dictionaries hold.
TYPES: dict[str, type[Mechanism]] = {entry.kind.name: entry.kind for entry in ENTRIES.values()}
# Names of the mechanisms with an optimiser.
OPTIMIZED: tuple[str, ...] = tuple(name for name, entry in ENTRIES.items() if entry.optimizer)


def from_dict(values: Mapping[str, Any]) -> base.Mechanism:
    """Makes the mechanism whose `to_dict` gave these values.

    Raises:
      ArgumentError: if the values are not a dictionary, the name is unknown, or a parameter is
        missing, unknown or out of range.

    Example:
      >>> from_dict(Identity(4).to_dict())
      Identity(rounds=4)
    """
    return _from_dict(values, 0)


def _from_dict(values: Any, depth: int) -> base.Mechanism:
    if not isinstance(values, dict) or depth > _MOST_DEPTH:
        raise errors.ArgumentError('mechanism', values, 'must be the values of a mechanism')
    parameters = dict(values)
    name = parameters.pop('mechanism', None)
    if isinstance(name, str) and name in REMOVED:
        raise errors.ArgumentError(
            'mechanism', errors.NOT_SHOWN, errors.removed(f'is a {name} mechanism')
        )
    name = _validate.choice('mechanism', name, tuple(TYPES))
    if 'base' in parameters:
        parameters['base'] = _from_dict(parameters['base'], depth + 1)
    try:
        return TYPES[name](**parameters)
    except TypeError:
        given = errors.shown(', '.join(sorted(map(str, parameters))) or 'none')
        raise errors.ArgumentError(
            'mechanism', name, f'does not take the parameters {given}'
        ) from None


def save(mechanism: base.Mechanism, file: str | os.PathLike | BinaryIO) -> None:
    """Writes a mechanism as `.npz`, one array per parameter.

    Args:
      mechanism: any mechanism of this package.
      file: path, used as it is, or open binary file.

    Example:
      >>> save(BinaryTree(8), 'tree.npz')
      >>> load('tree.npz').rounds
      8
    """
    mechanism_file.write(mechanism.to_dict(), file)


def load(path: str | os.PathLike) -> base.Mechanism:
    """Reads a mechanism that `save` wrote, or a strategy that is installed with the package.

    Args:
      path: of a file; or a name in dpfl/strategies, such as 'blt_b400', if there is no such file.

    Raises:
      ArgumentError: if there is neither a file nor a strategy of that name; it lists the names.
      ValueError: if the file cannot be read or does not hold a valid mechanism.

    Example:
      >>> load('blt_b400').with_rounds(1280).rounds  # A strategy of [McMahan24].
      1280
    """
    return from_dict(mechanism_file.read(mechanism_file.located(path)))
