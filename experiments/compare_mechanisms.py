"""Losses of mechanisms over a range of rounds, separations or participations: a table and a plot.

Example: how robust mechanisms made for separation 400 are to other separations (document 002,
figure 2),

  python -m experiments.compare_mechanisms --rounds=2000 --min_separation=400 \
    --max_participations=5 --mechanisms=tree,full_honaker_tree,blt:4,banded:400 \
    --vary=min_separation --values=100,200,300,400,600,800 --plot=separations.png

A mechanism is one of: gaussian, tree, honaker_tree, full_honaker_tree; blt:BUFFERS, banded:BANDS,
banded_toeplitz:BANDS, banded_inverse:BANDS, optimised for the schema of the flags and then used at
every value; best_blt:BUFFERS and so on, optimised anew for every value; or a strategy: a name in
dpfl/strategies or a file.
"""

import dataclasses
import json
import pathlib

from absl import flags

from dpfl import accounting, mechanisms
from dpfl.reporting import plots
from experiments.command import command_line
from experiments.flags import schema_flags, strategies

_TREES = {
    'gaussian': mechanisms.Identity,
    'tree': mechanisms.BinaryTree,
    'honaker_tree': mechanisms.HonakerTree,
    'full_honaker_tree': mechanisms.FullHonakerTree,
}
_OPTIMIZERS = {
    'blt': mechanisms.optimize_blt,
    'banded': mechanisms.optimize_banded,
    'banded_toeplitz': mechanisms.optimize_banded_toeplitz,
    'banded_inverse': mechanisms.optimize_banded_inverse,
}

flags.adopt_module_key_flags(schema_flags)
_MECHANISMS = flags.DEFINE_list('mechanisms', None, 'What is compared, comma-separated; see above.')
_VARY = flags.DEFINE_enum(
    'vary', 'rounds', ['rounds', 'min_separation', 'max_participations'], 'What the values are of.'
)
_VALUES = flags.DEFINE_list('values', None, 'Values, comma-separated; by default that of the flag.')
_LOSS = flags.DEFINE_enum('loss', 'max', ['max', 'rms'], 'The loss that is plotted.')
_RELATIVE_TO = flags.DEFINE_string(
    'relative_to', None, 'Plot losses divided by those of this one of the mechanisms.'
)
_NOISE_MULTIPLIER = flags.DEFINE_float(
    'noise_multiplier', None, 'Also print epsilon with this noise.', lower_bound=0
)
_DELTA = flags.DEFINE_float('delta', 1e-10, 'Delta at which epsilon is given.')
_PLOT = flags.DEFINE_string('plot', None, 'File of the plot.')
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the table.')


def main() -> None:
    """Prints the table and draws the plot."""
    names = schema_flags.required('mechanisms')
    if _RELATIVE_TO.value and _RELATIVE_TO.value not in names:
        raise command_line.UsageError(
            f'--relative_to={_RELATIVE_TO.value}: must be one of {", ".join(names)}'
        )
    base = schema_flags.participation()
    values = _values(base)
    with command_line.refusing_bad_values():
        rows = [_row(name, value, base) for name in names for value in values]
    if _PLOT.value:
        figure = plots.losses(rows, _VARY.value, f'{_LOSS.value}_loss', _RELATIVE_TO.value)
        try:
            figure.savefig(_PLOT.value, dpi=120)
        except (OSError, ValueError) as error:
            raise command_line.UsageError(f'--plot={_PLOT.value}: {error}') from None
    print(json.dumps(rows) if _FORMAT.value == 'json' else command_line.columns(rows))


def _values(base) -> list[int]:
    if not _VALUES.value:
        return [getattr(base, _VARY.value) or base.count]
    try:
        return [int(value) for value in _VALUES.value]
    except ValueError:
        raise command_line.UsageError(
            f'--values={",".join(_VALUES.value)}: must be comma-separated integers'
        ) from None


def _row(name: str, value: int, base) -> dict:
    participation = dataclasses.replace(base, **{_VARY.value: value})
    mechanism = _mechanism(name, base, participation)
    bound = mechanism.sensitivity_bound(participation)
    row = {
        'mechanism': name,
        _VARY.value: value,
        'max_loss': mechanism.max_loss(participation),
        'rms_loss': mechanism.rms_loss(participation),
        'sensitivity': mechanism.sensitivity(participation),
        'exact': bound.is_exact,
        'buffers': mechanism.kernel().buffers,
    }
    if _NOISE_MULTIPLIER.value:
        mu = row['sensitivity'] / _NOISE_MULTIPLIER.value
        row['epsilon'] = accounting.epsilon_from_mu(mu, _DELTA.value)
    return row


def _mechanism(name: str, base, participation) -> mechanisms.Mechanism:
    """The mechanism over the rounds of `participation`."""
    if name in _TREES:
        return _TREES[name](participation.rounds)
    kind, separator, size = name.partition(':')
    fresh = kind.startswith('best_')
    kind = kind.removeprefix('best_')
    if separator and kind in _OPTIMIZERS and size.isdecimal():
        longest = dataclasses.replace(base, rounds=max(base.rounds, participation.rounds))
        made_for = participation if fresh else longest if kind == 'banded' else base
        mechanism = _OPTIMIZERS[kind](made_for, int(size), progress=True)
        return mechanism.with_rounds(participation.rounds)
    path = pathlib.Path(name)
    if path.suffix == '.npz' or strategies.is_named(name):
        return strategies.load('mechanisms', name).with_rounds(participation.rounds)
    raise command_line.UsageError(
        f'--mechanisms={name}: must be one of {", ".join(_TREES)}, '
        f'{", ".join(f"{kind}:SIZE" for kind in _OPTIMIZERS)} or a strategy'
    )


if __name__ == '__main__':
    command_line.run(main)
