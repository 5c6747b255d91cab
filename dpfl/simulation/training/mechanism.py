"""Mechanisms as settings. No TensorFlow."""

import dataclasses
from typing import Any

from dpfl import mechanisms
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError, one_of, renaming
from dpfl.mechanisms import named, registry
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
    if schedule is None or (base.starts_afresh and not base.is_identity):
        return base
    if given is None and base.is_identity:
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
        given['strategy'] = named.load_strategy(config.strategy)
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
