"""Strategies for the rounds that are left of a run: a table of what they are worth.

A BLT that gets other parameters in a given round, and a banded matrix that goes on beyond its
rounds. docs/concepts/switching.md has what is guaranteed.
"""

import dataclasses
import pathlib
import time
from typing import Any

from dpfl import Participation, mechanisms
from dpfl._settings import Settings, setting
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.mechanisms.optimize.switched_blt import restarted_blt
from dpfl.planning import optimization
from dpfl.simulation.training.mechanism_names import load_strategy

SWITCHED, CONTINUED = 'switched_blt', 'continued'
NAMES = (SWITCHED, CONTINUED)
_Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContinuationConfig(Settings):
    """How a run goes on with another matrix."""

    switch_round: int | None = setting(
        None,
        'First round with other parameters, counted from 0, for --mechanism=switched_blt: as many '
        'rounds are those of --strategy.',
        minimum=1,
    )
    max_sensitivity: float | None = setting(
        None,
        'For --mechanism=switched_blt: least error among the parameters with which the sensitivity '
        'of the whole run is at most this. With that of the plan, the noise multiplier of the plan '
        'keeps its epsilon. By default the loss is least, which is error times sensitivity.',
        above=0,
    )
    planned_min_separation: int | None = setting(
        None,
        'The --min_separation that --strategy was planned for, to compare with; by default the '
        'same.',
        minimum=1,
    )
    planned_max_participations: int | None = setting(
        None,
        'The --max_participations that --strategy was planned for, to compare with; by default '
        'the same, or as many as --planned_min_separation allows if that is given.',
        minimum=1,
    )

    def planned(self, schema: Participation, rounds: int) -> Participation:
        """The schema that a strategy of so many rounds was planned for."""
        if self.planned_min_separation is None and self.planned_max_participations is None:
            return schema.within(rounds)
        separation = self.planned_min_separation or schema.min_separation
        return Participation(rounds, separation, self.planned_max_participations)


def optimize(
    name: str,
    strategy: str | None,
    schema: Participation,
    output: pathlib.Path,
    config: ContinuationConfig,
    *,
    loss: str | None = None,
) -> dict[str, Any]:
    """Optimises how a run goes on, saves the matrix of the whole run, and compares it.

    Args:
      name: `SWITCHED` or `CONTINUED`.
      strategy: name or file of the strategy of the rounds before.
      schema: schema of the whole run, as it is expected now.
      output: file to save the mechanism in (.npz).
      config: where it is switched, and limits.
      loss: 'max' or 'rms'; None for 'max'.

    Returns:
      `compared` has a row for the strategy as it was planned, the run that goes on unchanged (for a
      BLT), one that is restarted, and the result; the others say what it was made for.

    Raises:
      ArgumentError: if a value is not allowed, or the file cannot be written.
    """
    optimization.check_output(output)
    if not strategy:
        raise ArgumentError('strategy', NOT_SHOWN, f'must be given with mechanism={name}')
    base, loss = load_strategy(strategy), 'max' if loss is None else loss
    started = time.monotonic()
    optimized = _switched if name == SWITCHED else _continued
    made = optimized(base, strategy, schema, config, loss)
    seconds = time.monotonic() - started
    found = made[name]
    rows = [_row('planned', base, config.planned(schema, base.rounds), loss)]
    rows += [_row(label, mechanism, schema, loss) for label, mechanism in made.items()]
    first = base.rounds if name == CONTINUED else config.switch_round
    assert first is not None  # `_switched` requires it.
    optimization.save(found, output)
    return {
        'mechanism': name,
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.count,
        'first_rounds': first,
        'first_sensitivity': found.sensitivity(schema.within(first)),
        'buffers': found.num_buffers(),
        'compared': rows,
        'seconds': seconds,
        'output': str(output),
    }


def verdict(found: dict[str, Any]) -> str:
    """What the sensitivity says about the guarantee of the plan, as one or two sentences."""
    planned, *_, result = found['compared']
    limit, ratio = planned['sensitivity'], result['sensitivity'] / planned['sensitivity']
    if ratio <= 1:
        return (
            'The sensitivity is at most that of the plan: with its noise multiplier, the epsilon '
            'of the plan still holds for a run of this schema.'
        )
    larger = (
        f'The sensitivity is {ratio:.4g} times that of the plan: with its noise multiplier, rho is '
        f'{ratio**2:.4g} times that of the plan, and epsilon is larger.'
    )
    if found['first_sensitivity'] >= limit:
        return f'{larger} The first {found["first_rounds"]} rounds alone are above the plan.'
    if found['mechanism'] == SWITCHED:
        return f'{larger} --max_sensitivity={limit!r} keeps that of the plan.'
    return larger


def _switched(
    base: mechanisms.Mechanism,
    strategy: str,
    schema: Participation,
    config: ContinuationConfig,
    loss: str,
) -> dict[str, mechanisms.Mechanism]:
    if not isinstance(base, mechanisms.Blt | mechanisms.SwitchedBlt):
        raise _wrong_kind(strategy, base, 'a blt or switched_blt')
    at = config.switch_round
    if at is None:
        raise ArgumentError('switch_round', NOT_SHOWN, f'must be given with mechanism={SWITCHED}')
    with renaming(at='switch_round', mechanism='strategy'):
        found = mechanisms.optimize_switch(
            base, at, schema, loss, max_sensitivity=config.max_sensitivity
        )
        return {
            'unchanged': base.with_rounds(schema.rounds),
            'restarted': restarted_blt(base, at, schema, loss),
            SWITCHED: found,
        }


def _continued(
    base: mechanisms.Mechanism,
    strategy: str,
    schema: Participation,
    config: ContinuationConfig,
    loss: str,
) -> dict[str, mechanisms.Mechanism]:
    if not isinstance(base, mechanisms.Banded):
        raise _wrong_kind(strategy, base, 'a banded')
    for name in ('switch_round', 'max_sensitivity'):
        if (value := getattr(config, name)) is not None:
            raise ArgumentError(name, value, f'needs mechanism={SWITCHED}')
    found = mechanisms.optimize_continued(base, schema, loss)
    again = range(base.rounds, schema.rounds, base.rounds)
    return {
        'restarted': mechanisms.Restarted(base, tuple(again), schema.rounds),
        CONTINUED: found,
    }


def _wrong_kind(strategy: str, base: mechanisms.Mechanism, kinds: str) -> ArgumentError:
    return ArgumentError('strategy', strategy, f'holds a {base.name}, must hold {kinds} mechanism')


def _row(label: str, mechanism: mechanisms.Mechanism, schema: Participation, loss: str) -> _Row:
    error = mechanism.max_error() if loss == 'max' else mechanism.rms_error()
    sensitivity = mechanism.sensitivity(schema)
    return {
        'matrix': label,
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.count,
        f'{loss}_loss': error * sensitivity,
        f'{loss}_error': error,
        'sensitivity': sensitivity,
        'exact': mechanism.sensitivity_is_exact(schema),
    }
