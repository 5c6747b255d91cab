"""Compares losses of mechanisms over rounds, separations or participations: a table and a plot.

Example: how mechanisms optimised for separation 400 do at other separations ([McMahan24], figure
2),

  python -m experiments.compare_mechanisms --rounds=2000 --min_separation=400 \
    --max_participations=5 --mechanisms=tree,full_honaker_tree,blt:4,banded:400 \
    --vary=min_separation --values=100,200,300,400,600,800 --plot=separations.png

A mechanism is one of
- gaussian, tree, honaker_tree, full_honaker_tree;
- blt:BUFFERS, banded:BANDS, banded_toeplitz:BANDS, banded_inverse:BANDS: optimised for the schema
  of the flags, and used at every value;
- best_blt:BUFFERS and so on: optimised again for every value;
- a strategy: a name in dpfl/strategies or a file.
"""

import dataclasses
import json
import pathlib

from absl import flags

from dpfl import Participation, accounting, mechanisms, strategies
from dpfl.mechanisms import registry
from dpfl.reporting import plots
from dpfl.simulation.training.mechanism import load_strategy
from dpfl.simulation.training.privacy_config import NoiseConfig, ParticipationConfig
from dpfl.simulation.training.sampling_config import participation
from experiments.command import command_line
from experiments.flags import output_flags
from experiments.flags.settings_flags import SettingsFlags

_SCHEMA = SettingsFlags(ParticipationConfig)
_MECHANISMS = flags.DEFINE_list(
    'mechanisms', None, 'Mechanisms to compare, comma-separated; see above.'
)
_SWEEP = SettingsFlags(
    output_flags.SweepConfig,
    defaults={'vary': 'rounds'},
    choices={'vary': ('rounds', 'min_separation', 'max_participations')},
    help={
        'values': 'Values of the quantity of --vary, comma-separated; by default the value of its '
        'own flag.'
    },
)
_LOSS = SettingsFlags(output_flags.LossConfig)
_RELATIVE_TO = flags.DEFINE_string(
    'relative_to', None, 'Plot losses divided by those of this mechanism, one of --mechanisms.'
)
_NOISE = SettingsFlags(
    NoiseConfig,
    only=('noise_multiplier', 'delta'),
    help={'noise_multiplier': 'Also print epsilon for this noise multiplier.'},
)
_PLOT = SettingsFlags(output_flags.PlotConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Prints the table and draws the plot."""
    names = _MECHANISMS.value
    if not names:
        raise command_line.UsageError('--mechanisms: must be given')
    if _RELATIVE_TO.value and _RELATIVE_TO.value not in names:
        raise command_line.UsageError(
            f'--relative_to={_RELATIVE_TO.value}: must be one of {", ".join(names)}'
        )
    with command_line.refusing_bad_values():
        base = participation(_SCHEMA.read())
    vary = command_line.required(_SWEEP.read(), 'vary')
    values = _values(base, vary)
    with command_line.refusing_bad_values():
        rows = [_row(name, vary, value, base) for name in names for value in values]
    path = _PLOT.read().plot
    if path:
        loss = f'{_LOSS.read().loss}_loss'
        figure = plots.losses(rows, vary, loss, _RELATIVE_TO.value)
        try:
            figure.savefig(path, dpi=120)
        except (OSError, ValueError) as error:
            raise command_line.UsageError(f'--plot={path}: {error}') from None
    print(json.dumps(rows) if _FORMAT.read().format == 'json' else command_line.columns(rows))


def _values(base: Participation, vary: str) -> list[int]:
    given = _SWEEP.read().values
    if not given:
        return [getattr(base, vary) or base.count]
    try:
        return [int(value) for value in given]
    except ValueError:
        raise command_line.UsageError(
            f'--values={",".join(given)}: must be comma-separated integers'
        ) from None


def _row(name: str, vary: str, value: int, base: Participation) -> dict:
    participation = dataclasses.replace(base, **{vary: value})
    mechanism = _mechanism(name, base, participation)
    bound = mechanism.sensitivity_bound(participation)
    sensitivity = mechanism.sensitivity(participation)
    row = {
        'mechanism': name,
        vary: value,
        'max_loss': mechanism.max_loss(participation),
        'rms_loss': mechanism.rms_loss(participation),
        'sensitivity': sensitivity,
        'exact': bound.is_exact,
        'buffers': mechanism.kernel().buffers,
    }
    noise = _NOISE.read()
    if noise.noise_multiplier:
        mu = sensitivity / noise.noise_multiplier
        row['epsilon'] = accounting.epsilon_from_mu(mu, noise.delta)
    return row


def _mechanism(name: str, base: Participation, schema: Participation) -> mechanisms.Mechanism:
    """The mechanism over the rounds of `schema`."""
    entry = registry.ENTRIES.get(name)
    if entry is not None and () in entry.ways:
        return entry.construct(schema.rounds)
    kind, separator, size = name.partition(':')
    fresh = kind.startswith('best_')
    kind = kind.removeprefix('best_')
    if separator and kind in registry.OPTIMIZED and size.isdecimal():
        entry = registry.ENTRIES[kind]
        assert entry.optimizer is not None
        longest = dataclasses.replace(base, rounds=max(base.rounds, schema.rounds))
        made_for = schema if fresh else base if entry.extends else longest
        made = entry.optimizer.optimize(made_for, int(size), progress=True)
        return made.with_rounds(schema.rounds)
    if pathlib.Path(name).suffix == '.npz' or name in strategies.names():
        return load_strategy(name, 'mechanisms').with_rounds(schema.rounds)
    plain = [each for each, entry in registry.ENTRIES.items() if () in entry.ways]
    raise command_line.UsageError(
        f'--mechanisms={name}: must be one of {", ".join(plain)}, '
        f'{", ".join(f"{kind}:SIZE" for kind in registry.OPTIMIZED)} or a strategy'
    )


if __name__ == '__main__':
    command_line.run(main)
