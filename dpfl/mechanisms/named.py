"""Mechanisms by one short text, such as `blt:4@2000/400/5`, and strategies by their names."""

import dataclasses
import functools
import pathlib
import re

from dpfl.errors import ArgumentError, one_of, shown
from dpfl.mechanisms import mechanism_file, registry
from dpfl.mechanisms.base import Mechanism
from dpfl.participation import Participation

_OPTIMIZED = re.compile(
    r'(?P<fresh>best_)?(?P<kind>[a-z_]+):(?P<size>[0-9]{1,9})(:(?P<loss>[a-z]+))?'
    r'(@(?P<rounds>[0-9]{1,9})/(?P<separation>[0-9]{1,9})(/(?P<most>[0-9]{1,9}))?)?'
)
# Mechanisms that need nothing but the number of rounds.
PLAIN: tuple[str, ...] = tuple(name for name, entry in registry.ENTRIES.items() if () in entry.ways)


@dataclasses.dataclass(frozen=True)
class NamedMechanism:
    """A mechanism that a text describes.

    Attributes:
      name: the text.
      kind: its name in the registry; empty for a strategy that was saved before.
      size: number of buffers or bands; None for a mechanism that is not optimised here.
      loss: 'max' or 'rms', the loss that its optimisation minimises; None to leave this open.
      design: the schema that it is optimised for; None to leave this open.
      is_fresh: whether it is optimised anew for every schema that it is used for.
      argument: what errors are about.
    """

    name: str
    kind: str = ''
    size: int | None = None
    loss: str | None = None
    design: Participation | None = None
    is_fresh: bool = False
    argument: str = 'mechanism'

    @classmethod
    def parse(cls, name: str, argument: str) -> 'NamedMechanism':
        """The mechanism of a text.

        Args:
          name: the name of a mechanism without parameters; KIND:SIZE, optimised with that many
            buffers or bands, optionally for a loss and a schema of its own, as in `blt:4:rms` or
            `banded:400@2000/400/5` (rounds/min_separation/max_participations; the last may be
            left out), and best_KIND:SIZE for `is_fresh`; a name in dpfl/strategies; or a file.
          argument: what errors are about.

        Raises:
          ArgumentError: if the text describes none. The error is about `argument`.
        """
        if name in PLAIN:
            return cls(name, name, argument=argument)
        if name in mechanism_file.names() or pathlib.Path(name).suffix == '.npz':
            return cls(name, argument=argument)
        match = _OPTIMIZED.fullmatch(name)
        if match is None or match['kind'] not in registry.OPTIMIZED:
            allowed = [*PLAIN, *(f'{kind}:SIZE' for kind in registry.OPTIMIZED)]
            raise ArgumentError(argument, name, one_of(name, allowed, ' or a strategy'))
        optimizer = registry.ENTRIES[match['kind']].optimizer
        assert optimizer is not None
        if match['loss'] not in (None, *optimizer.losses):
            raise ArgumentError(
                argument, name, f'must have a loss of {", ".join(optimizer.losses)}'
            )
        design = None
        if match['rounds'] is not None:
            if match['fresh']:
                raise ArgumentError(argument, name, 'must have no schema of its own with best_')
            try:
                design = Participation(
                    int(match['rounds']),
                    int(match['separation']),
                    None if match['most'] is None else int(match['most']),
                )
            except ArgumentError as error:
                raise ArgumentError(argument, name, shown(error)) from None
        return cls(
            name,
            match['kind'],
            int(match['size']),
            match['loss'],
            design,
            match['fresh'] is not None,
            argument,
        )

    def make(
        self, schema: Participation, base: Participation, loss: str | None = None
    ) -> Mechanism | None:
        """The mechanism over the rounds of a schema; None if it is made for fewer.

        Args:
          schema: the schema that it is used for.
          base: the schema to optimise for, unless the text has one or says `best_`.
          loss: the loss to optimise for, unless the text has one; None for the loss that the
            mechanism is published with.

        Raises:
          ArgumentError: if a strategy cannot be read, or a value is out of its range.
        """
        if not self.kind:
            made = load_strategy(self.name, self.argument)
        elif self.size is None:
            return registry.ENTRIES[self.kind].construct(schema.rounds)
        else:
            made_for = schema if self.is_fresh else self.design or base
            if schema.rounds > made_for.rounds and not registry.ENTRIES[self.kind].extends:
                return None
            try:
                made = _optimized(self.kind, self.size, self.loss or loss, made_for)
            except ArgumentError as error:
                raise ArgumentError(self.argument, self.name, shown(error)) from None
        if schema.rounds > made.rounds and not made.extends:
            return None
        return made.with_rounds(schema.rounds)


def load_strategy(name: str, argument: str = 'strategy') -> Mechanism:
    """Loads a mechanism from a file, or from dpfl/strategies by its name.

    Raises:
      ArgumentError: if there is no such mechanism. The error is about `argument`.
    """
    if name not in mechanism_file.names() and not pathlib.Path(name).is_file():
        allowed = one_of(name, mechanism_file.names()).replace('one of', 'a file or one of')
        raise ArgumentError(argument, name, allowed)
    try:
        return registry.load(name)
    except ValueError as error:
        raise ArgumentError(argument, name, str(error)) from None


@functools.lru_cache(maxsize=64)
def _optimized(kind: str, size: int, loss: str | None, schema: Participation) -> Mechanism:
    optimizer = registry.ENTRIES[kind].optimizer
    assert optimizer is not None
    return optimizer.optimize(schema, size, loss=loss, progress=True)
