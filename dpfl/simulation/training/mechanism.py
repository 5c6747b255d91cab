"""Mechanisms as settings, and by one short text, such as `blt:4@2000/400/5`. No TensorFlow."""

import dataclasses
import functools
import pathlib
import re
from typing import Any

from dpfl import mechanisms, strategies
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError, one_of, renaming, shown
from dpfl.mechanisms import registry
from dpfl.participation import Participation

NAMES = tuple(registry.ENTRIES)
# Parameters whose setting has another name than in the registry.
_NAMES = {'decay': 'blt_decay', 'scale': 'blt_scale', 'released': 'tree_released'}
# The setting of each parameter of a mechanism that is given by its name.
_SETTINGS = {
    parameter: _NAMES.get(parameter, parameter)
    for entry in registry.ENTRIES.values()
    for parameter in entry.parameters
}
PARAMETERS = tuple(_SETTINGS.values())
AUTO = 'auto'
NONE = 'none'


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig(Settings):
    """How the noise of the rounds is correlated."""

    mechanism: str | mechanisms.Mechanism | None = setting(
        None, 'How the noise of the rounds is correlated.'
    )
    strategy: str | None = setting(
        None,
        'Parameters of the mechanism: a name in dpfl/strategies, or a file written by '
        'dpfl.mechanisms.save. They are used for --rounds rounds.',
    )
    blt_decay: tuple[float, ...] | None = setting(
        None, 'Buffer decays (theta) of a BLT, comma-separated.'
    )
    blt_scale: tuple[float, ...] | None = setting(
        None, 'Output scales (omega) of a BLT, comma-separated.'
    )
    tree_released: str = setting(
        'nodes',
        'What the sensitivity of a tree treats as released: all noised nodes, as the published '
        'accounting does, or only the prefix sums, which is what is actually released.',
        choices=mechanisms.tree.RELEASED,
    )
    bands: int | None = setting(None, 'Bands of a fichtenberger_toeplitz.', minimum=1)
    restart_first: int | None = setting(
        None,
        'Restart the noise after this round, counted from 0, and then after every --restart_every '
        'rounds, as adaptive clipping does (128 and 1024 in [Xu23]).',
        minimum=0,
        needs='restart_every',
    )
    restart_every: int | None = setting(
        None,
        'Rounds between two restarts; needs --restart_first.',
        minimum=1,
        needs='restart_first',
    )

    def check(self) -> None:
        """Checks the mechanism and its parameters."""
        if not isinstance(self.mechanism, str | mechanisms.Mechanism | None):
            raise ArgumentError('mechanism', self.mechanism, 'must be a name or a mechanism')
        if isinstance(self.mechanism, mechanisms.Mechanism):
            self._refuse_parameters('a mechanism that is given as an object')
        elif self.mechanism in (AUTO, NONE):
            self._refuse_parameters(f'mechanism={self.mechanism}')

    def _refuse_parameters(self, owner: str) -> None:
        for parameter, value in self.parameters().items():
            raise ArgumentError(_SETTINGS[parameter], value, f'{owner} has no such parameter')

    def parameters(self) -> dict[str, Any]:
        """The parameters of the mechanism that are given, by their names in the registry."""
        return {
            parameter: value
            for parameter, name in _SETTINGS.items()
            if (value := getattr(self, name)) not in (getattr(MechanismConfig, name), '', ())
        }

    @property
    def default_restarts(self) -> tuple[int, int] | None:
        """(first, every) of correlated noise for which no restarts are given; None for none."""
        return None

    @classmethod
    def decode(cls, name: str, value: Any) -> Any:
        """Builds a mechanism that is given as a JSON object from its parameters."""
        if name == 'mechanism' and isinstance(value, dict):
            return mechanisms.from_dict(value)
        return super().decode(name, value)


def build(
    config: MechanismConfig,
    rounds: int,
    optimize_for: Participation | None = None,
) -> mechanisms.Mechanism:
    """Builds the mechanism of a configuration.

    Args:
      config: its `mechanism` must be a mechanism, or a name in `NAMES`.
      rounds: number of rounds.
      optimize_for: the schema for which a mechanism is optimised of which no parameter is given;
        None to refuse that. A report about noise that was drawn before must not optimise anew.

    Raises:
      ArgumentError: if there is no such mechanism, or parameters are missing or wrong.
    """
    if isinstance(config.mechanism, mechanisms.Mechanism):
        base = config.mechanism.with_rounds(rounds)
    else:
        base = _named(config, rounds, optimize_for)
    return with_restarts(base, config)


def is_optimized(config: MechanismConfig) -> bool:
    """Whether the mechanism is optimised for the schema of the run."""
    if not isinstance(config.mechanism, str) or config.mechanism == AUTO:
        return config.mechanism == AUTO
    optimizer = registry.ENTRIES[config.mechanism].optimizer if config.mechanism in NAMES else None
    return optimizer is not None and not config.parameters()


def with_restarts(base: mechanisms.Mechanism, config: MechanismConfig) -> mechanisms.Mechanism:
    """The mechanism with the restarts of the configuration, or the default ones."""
    given = None
    if config.restart_first is not None and config.restart_every is not None:
        given = config.restart_first, config.restart_every
    schedule = given or config.default_restarts
    if schedule is None or (base.starts_afresh and not base.is_independent):
        return base
    if given is None and base.is_independent:
        return base  # Its noise starts afresh in every round.
    with renaming(base='mechanism'):
        return mechanisms.Restarted.every(base, *schedule)


def _named(
    config: MechanismConfig, rounds: int, optimize_for: Participation | None
) -> mechanisms.Mechanism:
    name = config.mechanism
    if not isinstance(name, str) or name not in NAMES:
        raise ArgumentError('mechanism', name, one_of(name, NAMES))
    entry = registry.ENTRIES[name]
    given = config.parameters()
    if config.strategy:
        given['strategy'] = load_strategy(config.strategy)
        if 'strategy' in entry.parameters and type(given['strategy']) is not entry.kind:
            raise ArgumentError(
                'strategy',
                config.strategy,
                f'holds a {given["strategy"].name}, not a {name} mechanism',
            )
    if optimize_for is not None and entry.optimizer is not None and is_optimized(config):
        return entry.optimizer.optimize(optimize_for, progress=True)
    if set(given) <= set(entry.parameters) and not entry.accepts(given):
        needed = entry.needs(lambda parameter: _NAMES.get(parameter, parameter))
        raise ArgumentError('mechanism', name, f'needs {needed}')
    with renaming(**_NAMES):
        return entry.construct(rounds, **given)


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
        if name in strategies.names() or pathlib.Path(name).suffix == '.npz':
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
    ) -> mechanisms.Mechanism | None:
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


def load_strategy(name: str, argument: str = 'strategy') -> mechanisms.Mechanism:
    """Loads a mechanism from a file, or from dpfl/strategies by its name.

    Raises:
      ArgumentError: if there is no such mechanism. The error is about `argument`.
    """
    if name not in strategies.names() and not pathlib.Path(name).is_file():
        allowed = one_of(name, strategies.names()).replace('one of', 'a file or one of')
        raise ArgumentError(argument, name, allowed)
    try:
        return mechanisms.load(name)
    except ValueError as error:
        raise ArgumentError(argument, name, str(error)) from None


@functools.lru_cache(maxsize=64)
def _optimized(
    kind: str, size: int, loss: str | None, schema: Participation
) -> mechanisms.Mechanism:
    optimizer = registry.ENTRIES[kind].optimizer
    assert optimizer is not None
    return optimizer.optimize(schema, size, loss=loss, progress=True)
