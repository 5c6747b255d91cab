"""The mechanism that a configuration describes. Does not import TensorFlow."""

from typing import Any

from dpfl import mechanisms
from dpfl.errors import ArgumentError, one_of, renaming
from dpfl.mechanisms import registry
from dpfl.participation import Participation
from dpfl.simulation.training.mechanism_names import load_strategy
from dpfl.simulation.training.privacy_config import MechanismConfig

NAMES = tuple(registry.ENTRIES)
# Names of parameters in the registry, and in a configuration.
_NAMES = {'decay': 'blt_decay', 'scale': 'blt_scale', 'released': 'tree_released'}


def build(
    config: MechanismConfig,
    rounds: int,
    default_restarts: tuple[int, int] | None = None,
    optimize_for: Participation | None = None,
) -> mechanisms.Mechanism:
    """Builds the mechanism of a configuration.

    Args:
      config: its `mechanism` must be a mechanism, or a name in `NAMES`.
      rounds: number of rounds.
      default_restarts: (first, every), used if the configuration has no restarts and the noise of
        the mechanism is correlated.
      optimize_for: the schema for which a mechanism is optimised of which no parameter is given;
        None to refuse that. A report about noise that was drawn before must not optimise anew.

    Raises:
      ArgumentError: if there is no such mechanism, or parameters are missing or wrong.
    """
    if isinstance(config.mechanism, mechanisms.Mechanism):
        base = config.mechanism.with_rounds(rounds)
    else:
        base = _named(config, rounds, optimize_for)
    return with_restarts(base, config, default_restarts)


def with_restarts(
    base: mechanisms.Mechanism,
    config: MechanismConfig,
    default_restarts: tuple[int, int] | None = None,
) -> mechanisms.Mechanism:
    """The mechanism with the restarts of the configuration, or the default ones."""
    given = None
    if config.restart_first is not None and config.restart_every is not None:
        given = config.restart_first, config.restart_every
    schedule = given or default_restarts
    if schedule is None or (base.starts_afresh and not base.is_independent):
        return base
    if given is None and base.is_independent:
        return base  # Its noise starts afresh in every round.
    return mechanisms.Restarted.every(base, *schedule)


def _named(
    config: MechanismConfig, rounds: int, optimize_for: Participation | None
) -> mechanisms.Mechanism:
    name = config.mechanism
    if not isinstance(name, str) or name not in NAMES:
        raise ArgumentError('mechanism', name, one_of(name, NAMES))
    entry = registry.ENTRIES[name]
    given: dict[str, Any] = {
        'decay': config.blt_decay or None,
        'scale': config.blt_scale or None,
        'bands': config.bands,
    }
    if config.strategy:
        given['strategy'] = load_strategy(config.strategy)
        if 'strategy' in entry.parameters and type(given['strategy']) is not entry.kind:
            raise ArgumentError(
                'strategy',
                config.strategy,
                f'holds a {given["strategy"].name}, not a {name} mechanism',
            )
    released = config.tree_released
    if 'released' in entry.optional:
        given['released'] = released
    elif released != MechanismConfig.tree_released:
        raise ArgumentError('tree_released', released, f'mechanism={name} has no such choice')
    named = {name: value for name, value in given.items() if value is not None}
    if optimize_for is not None and entry.optimizer is not None and not named:
        return entry.optimizer.optimize(optimize_for, progress=True)
    if set(named) <= set(entry.parameters) and not entry.accepts(named):
        needed = entry.needs(lambda parameter: _NAMES.get(parameter, parameter))
        raise ArgumentError('mechanism', name, f'needs {needed}')
    with renaming(**_NAMES):
        return entry.construct(rounds, **named)
