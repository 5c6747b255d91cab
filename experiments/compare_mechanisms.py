r"""Compares losses of mechanisms over rounds, separations or participations: a table and a plot.

Example: how mechanisms optimised for separation 400 do at other separations ([McMahan24], figure
2),

  dpfl compare_mechanisms --rounds=2000 --min_separation=400 \
    --max_participations=5 --mechanisms=tree,full_honaker_tree,blt:4,banded:400 \
    --vary=min_separation --values=100,200,300,400,600,800 --plot=separations.png

and for other numbers of rounds than mechanisms were made for (figure 5):

  dpfl compare_mechanisms --rounds=2000 --min_separation=400 --loss=rms \
    --mechanisms=blt:2@800/400,blt:2@2000/400,banded:400@800/400,banded:400@2000/400 \
    --values=400,800,1200,1600,2000 --plot=rounds.png --data=rounds.csv

A mechanism is one of
- gaussian, tree, honaker_tree, full_honaker_tree and others without parameters;
- blt:BUFFERS, scaled_blt:BUFFERS, block_blt:BUFFERS, banded:BANDS, banded_toeplitz:BANDS,
  banded_inverse:BANDS: optimised once, for the schema of the flags, and used at every value;
- the same for a schema of its own, KIND:SIZE@ROUNDS/MIN_SEPARATION[/MAX_PARTICIPATIONS];
- best_blt:BUFFERS and so on: optimised again for every value;
- a strategy: a name in dpfl/strategies or a file.
It is optimised for --loss, unless it has a loss of its own, as in blt:4:rms@2000/400. BandMF
(banded) is optimised for rms, as published; banded:BANDS:max takes many minutes. The curve of a
mechanism that cannot have more rounds than it was made for, such as BandMF, ends there.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from absl import flags

from dpfl import Participation, accounting, mechanisms
from dpfl._settings import Settings, setting
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.errors import ArgumentError
from dpfl.mechanisms import rounding
from dpfl.mechanisms.named import NamedMechanism
from dpfl.reporting import plain_text
from dpfl.simulation.training.privacy_config import NoiseConfig
from dpfl.simulation.training.round_config import ParticipationConfig, participation


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonConfig(Settings):
    """The mechanisms, and the quantity that varies."""

    mechanisms: tuple[str, ...] = setting((), 'Mechanisms to compare, comma-separated; see above.')
    vary: str = setting(
        'rounds',
        'Quantity to vary.',
        choices=('rounds', 'min_separation', 'max_participations'),
    )
    values: tuple[int, ...] = setting(
        (),
        'Values of the quantity of --vary, comma-separated; by default the value of its own flag.',
    )
    relative_to: str | None = setting(
        None, 'Plot losses divided by those of this mechanism, one of --mechanisms.'
    )

    def check(self) -> None:
        """Losses are relative to a mechanism that is compared."""
        if self.relative_to and self.relative_to not in self.mechanisms:
            allowed = f'must be one of {", ".join(self.mechanisms)}'
            raise ArgumentError('relative_to', self.relative_to, allowed)


_SCHEMA = SettingsFlags(ParticipationConfig)
_COMPARISON = SettingsFlags(ComparisonConfig)
_LOSS = SettingsFlags(
    output_flags.LossConfig,
    help={
        'loss': 'Loss to optimise for and to plot: largest or root mean square noise of the prefix '
        'sums.'
    },
)
_NOISE = SettingsFlags(
    NoiseConfig,
    only=('noise_multiplier', 'delta', 'allow_large_delta'),
    help={'noise_multiplier': 'Also print epsilon for this noise multiplier.'},
)
_PLOT = SettingsFlags(output_flags.PlotConfig)
_DATA = SettingsFlags(output_flags.DataConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
# Optimised for the loss that they are published with, whatever is compared: another one takes long.
_PUBLISHED_LOSS = ('banded',)


def main() -> None:
    """Prints the table and draws the plot."""
    path = _PLOT.read().plot
    command_line.check_writable(None, path, _DATA.read().data)
    compared = _COMPARISON.read()
    names = command_line.required(compared, 'mechanisms')
    with command_line.refusing_bad_values():
        base = participation(_SCHEMA.read())
        noise_multiplier = _NOISE.read().noise_multiplier
        needs = (('relative_to', 'plot', path), ('delta', 'noise_multiplier', noise_multiplier))
        for name, needed, value in needs:
            if flags.FLAGS[name].present and value is None:
                raise ArgumentError(name, flags.FLAGS[name].value, f'needs {needed}')
        vary = compared.vary
        values = compared.values or (getattr(base, vary) or base.count,)
        made = [NamedMechanism.parse(name, 'mechanisms') for name in names]
        rows = [row for each in made for row in _rows(each, vary, values, base)]
        output_flags.write_rows(_DATA.read().data, rows)
    if path:
        loss = f'{_LOSS.read().loss}_loss'
        from dpfl.reporting import plots  # matplotlib takes a second to import.

        figure = plots.losses(rows, vary, loss, compared.relative_to, _title(base, vary))
        command_line.save_plot(figure, path)
    output_flags.show(_FORMAT, rows, plain_text.columns(rows))


def _title(base: Participation, vary: str) -> str:
    """The schema of all losses, without what varies."""
    # Without a limit of its own, how often a client takes part follows from the others.
    is_free = base.max_participations is None and vary != 'max_participations'
    parts = {
        'rounds': f'{base.rounds} rounds',
        'max_participations': f'at most {base.count} participation(s) of a client',
        'min_separation': f'at least {base.min_separation} rounds apart',
    }
    if is_free:
        parts['max_participations'] = 'participations as often as that allows'
    return ', '.join(text for name, text in parts.items() if name != vary)


def _rows(
    named: NamedMechanism, vary: str, values: Sequence[int], base: Participation
) -> list[dict[str, Any]]:
    """The rows of a mechanism: one for each value at which it exists."""
    compared = None if named.kind in _PUBLISHED_LOSS else _LOSS.read().loss
    rows = []
    for value in values:
        schema = dataclasses.replace(base, **{vary: value})
        mechanism = named.make(schema, base, compared)
        if mechanism is not None:
            rows.append({'mechanism': named.name, vary: value, **_measures(mechanism, schema)})
    if not rows:
        raise ArgumentError('mechanisms', named.name, 'has fewer rounds than every value')
    return rows


def _measures(mechanism: mechanisms.Mechanism, schema: Participation) -> dict[str, Any]:
    sensitivity = mechanism.sensitivity(schema)
    found: dict[str, Any] = {
        'max_loss': mechanism.max_loss(schema),
        'rms_loss': mechanism.rms_loss(schema),
        'sensitivity': sensitivity,
        'exact': mechanism.sensitivity_is_exact(schema),
        'buffers': mechanism.kernel().buffers,
    }
    noise = _NOISE.read()
    if noise.noise_multiplier is not None:
        mu = rounding.quotient_up(sensitivity, noise.noise_multiplier)
        epsilon = accounting.epsilon_from_mu(mu, noise.delta)
        found['epsilon'] = epsilon if epsilon < math.inf else None
    return found


if __name__ == '__main__':
    command_line.run(main)
