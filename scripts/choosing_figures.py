"""Draws the figures of docs/choosing.md, and writes their points as CSV files.

- `choosing_memory`: losses of the mechanisms against the copies of the model that their noise
  keeps, for six participations and for one.
- `choosing_sampling`: independent noise with Poisson sampling beside correlated noise with
  separation, at equal epsilon.

Run: python -m scripts.choosing_figures    (some minutes; BandMF takes most of them)
     python -m scripts.choosing_figures --draw    (draws again from the CSV files)
"""

import argparse
import csv
import pathlib
from collections.abc import Iterator

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt

from dpfl import Participation, accounting, mechanisms

FOLDER = pathlib.Path(__file__).parents[1] / 'docs' / 'figures'
MEMORY_CSV = FOLDER / 'choosing_memory.csv'
SAMPLING_CSV = FOLDER / 'choosing_sampling.csv'

# (rounds, min separation, max participations)
SCHEMAS = ((2052, 342, 6), (2052, 2052, 1))
_SEPARATED = Participation(2052, 342, 6)
_BUFFERS = (1, 2, 3, 4)
_BANDS = (2, 4, 8, 16, 32, 64, 128)
_MF_BANDS = (8, 32, 128)

POPULATION = 1_000_000
DELTA = 1e-6
ROUNDS = 1000
PASSES = (1, 2, 5, 10, 20, 50, 100)
EPSILONS = (1.0, 2.0, 8.0)

# Okabe and Ito's colours, which people with any colour vision can tell apart.
_COLORS = {
    'independent': '#000000',
    'tree': '#666666',
    'honaker_tree': '#666666',
    'full_honaker_tree': '#666666',
    'blt': '#D55E00',
    'banded_inverse': '#009E73',
    'banded_toeplitz': '#CC79A7',
    'banded': '#0072B2',
    'scaled_blt': '#E69F00',
    'block_blt': '#B8860B',
    'free_banded': '#56B4E9',
}
_EPSILON_COLORS = {1.0: '#0072B2', 2.0: '#009E73', 8.0: '#D55E00'}


def cheap_mechanisms(rounds: int) -> list[tuple[str, mechanisms.Mechanism]]:
    """The mechanisms without parameters."""
    return [
        ('independent', mechanisms.Identity(rounds)),
        ('tree', mechanisms.BinaryTree(rounds)),
        ('honaker_tree', mechanisms.HonakerTree(rounds)),
        ('full_honaker_tree', mechanisms.FullHonakerTree(rounds)),
    ]


def memory_rows() -> Iterator[dict[str, object]]:
    """Losses and copies of each mechanism under each schema."""
    for rounds, separation, most in SCHEMAS:
        schema = Participation(rounds, separation, most)
        for name, mechanism in cheap_mechanisms(rounds):
            yield _row(schema, name, '', mechanism, mechanism)
        for buffers in _BUFFERS:
            pair = [mechanisms.optimize_blt(schema, buffers, loss=loss) for loss in ('max', 'rms')]
            yield _row(schema, 'blt', buffers, *pair)
        for buffers in (1, 2, 4):
            for name, optimize in (
                ('scaled_blt', mechanisms.optimize_scaled_blt),
                ('block_blt', mechanisms.optimize_block_blt),
            ):
                pair = [optimize(schema, buffers, loss=loss) for loss in ('max', 'rms')]
                yield _row(schema, name, buffers, *pair)
        for bands in _BANDS:
            pair = [
                mechanisms.optimize_banded_inverse(schema, bands, loss=loss)
                for loss in ('max', 'rms')
            ]
            yield _row(schema, 'banded_inverse', bands, *pair)
        for bands in (*_BANDS, 342):
            toeplitz = mechanisms.optimize_banded_toeplitz(schema, bands, loss='rms')
            yield _row(schema, 'banded_toeplitz', bands, toeplitz, toeplitz)
        for bands in (*_MF_BANDS, 342):
            # Columns of norm 1: the same optimum for every schema that separates the bands.
            banded = mechanisms.optimize_banded(_SEPARATED, bands)
            yield _row(schema, 'banded', bands, banded, banded)
        pair = [
            mechanisms.optimize_banded(schema, 342, loss=loss, column_norms='free')
            for loss in ('max', 'rms')
        ]
        yield _row(schema, 'free_banded', 342, *pair)


def _row(schema, name, size, for_max, for_rms) -> dict[str, object]:
    return {
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.count,
        'mechanism': name,
        'size': size,
        'copies': for_max.num_buffers(),
        'max_loss': f'{for_max.max_loss(schema):.4f}',
        'rms_loss': f'{for_rms.rms_loss(schema):.4f}',
    }


def sampling_row(passes: int, epsilon: float, rounds: int = ROUNDS) -> dict[str, object]:
    """Rms noise of the prefix sums in clip norms, by sampling and by separation.

    Args:
      passes: rounds of a client, on average or at most.
      epsilon: of the whole run at `DELTA`.
      rounds: of the run, a multiple of `passes`.
    """
    clients = POPULATION * passes // rounds
    independent = mechanisms.Identity(rounds)
    free, apart = Participation(rounds), Participation(rounds, rounds // passes)
    sampled = accounting.PrivacyPlan.calibrated(
        epsilon=epsilon,
        delta=DELTA,
        mechanism=independent,
        participation=free,
        clip_norm=1.0,
        clients_per_round=clients,
        sampling=accounting.Poisson(population=POPULATION),
    )
    blt = mechanisms.optimize_blt(apart, 3, loss='rms')
    separated = accounting.PrivacyPlan.calibrated(
        epsilon=epsilon,
        delta=DELTA,
        mechanism=blt,
        participation=apart,
        clip_norm=1.0,
        clients_per_round=clients,
    )
    unamplified = sampled.without_sampling(apart)
    return {
        'rounds': rounds,
        'passes': passes,
        'epsilon': epsilon,
        'sampled_multiplier': f'{sampled.noise_multiplier:.5g}',
        'sampled_noise': f'{sampled.noise_multiplier * independent.rms_error():.5g}',
        'blt_multiplier': f'{separated.noise_multiplier:.5g}',
        'blt_noise': f'{separated.noise_multiplier * blt.rms_error():.5g}',
        'epsilon_without_amplification': f'{unamplified.epsilon(DELTA):.4g}',
    }


def _write(path: pathlib.Path, rows: list[dict[str, object]]) -> None:
    with path.open('w', newline='') as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator='\n')
        writer.writeheader()
        writer.writerows(rows)


def _read(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(newline='') as file:
        return list(csv.DictReader(file))


def _figure(rows: int):
    """Axes of a figure that is read at 420 pixels: 4.2 inches wide, saved at 200 dots per inch."""
    plt.rcParams.update({'font.size': 8, 'axes.spines.top': False, 'axes.spines.right': False})
    return plt.subplots(rows, 1, figsize=(4.2, 3.3 * rows), layout='constrained', squeeze=False)


# By mechanism: text, the point that it stands at, offset in points, and alignment.
_LABELS = {
    'independent': ('independent', 0, (7, 0), 'left'),
    'tree': ('tree', 0, (-5, 0), 'right'),
    'honaker_tree': ('tree, less variance', 0, (-5, 0), 'right'),
    'full_honaker_tree': ('TreeAgg-Full', 0, (6, 9), 'right'),
    'blt': ('BLT', 0, (-6, 3), 'right'),
    'banded_inverse': ('banded inverse', 2, (0, 9), 'left'),
    'banded_toeplitz': ('banded Toeplitz', 1, (7, 3), 'left'),
    'banded': ('BandMF', -1, (6, 4), 'left'),
    'scaled_blt': ('scaled BLT', -1, (6, 2), 'left'),
    'block_blt': ('block BLT', -1, (6, -6), 'left'),
    'free_banded': ('free norms', 0, (6, 0), 'left'),
}


def draw_memory() -> None:
    """Draws `choosing_memory.png` from its points."""
    found = _read(MEMORY_CSV)
    figure, axes = _figure(2)
    titles = ('six participations, 342 rounds apart', 'one participation')
    for axis, schema, title in zip(axes[:, 0], SCHEMAS, titles, strict=True):
        separation = str(schema[1])
        rows = [row for row in found if row['min_separation'] == separation]
        for name, color in _COLORS.items():
            points = [row for row in rows if row['mechanism'] == name]
            x = [int(row['copies']) for row in points]
            y = [float(row['max_loss']) for row in points]
            axis.plot(x, y, '.-', color=color, markersize=6, linewidth=1.2)
            text, place, offset, align = _LABELS[name]
            if name == 'tree' and schema[2] > 1:  # Here the line of the bands is left of it.
                offset, align = (5, 4), 'left'
            axis.annotate(
                text,
                (x[place], y[place]),
                offset,
                textcoords='offset points',
                color=color,
                fontsize=8,
                ha=align,
                va='center',
            )
        axis.set_xscale('symlog', linthresh=1)
        axis.set_yscale('log')
        axis.set_xlim(-0.15, 4500)
        ticks = (0, 1, 2, 4, 10, 31, 127, 341, 2052)
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        values = (9, 10, 15, 20, 30, 50, 100) if schema[2] > 1 else (3, 4, 6, 10, 20, 45)
        axis.set_ylim(0.93 * values[0], 1.25 * values[-1])
        axis.set_yticks(values, [str(value) for value in values])
        axis.grid(axis='y', color='#dddddd', linewidth=0.6)
        axis.set_title(f'Max loss, 2052 rounds: {title}', fontsize=8.5, loc='left')
        axis.set_xlabel('copies of the model that the noise keeps')
    figure.savefig(FOLDER / 'choosing_memory.png', dpi=200)


def draw_sampling() -> None:
    """Draws `choosing_sampling.png` from its points."""
    found = _read(SAMPLING_CSV)
    figure, axes = _figure(1)
    axis = axes[0, 0]
    for epsilon, color in _EPSILON_COLORS.items():
        rows = [row for row in found if float(row['epsilon']) == epsilon]
        x = [int(row['passes']) for row in rows]
        y = [float(row['sampled_noise']) / float(row['blt_noise']) for row in rows]
        axis.plot(x, y, '.-', color=color, markersize=6, linewidth=1.4)
        axis.annotate(
            f'epsilon {epsilon:g}',
            (x[0], y[0]),
            (6, 4),
            textcoords='offset points',
            color=color,
            fontsize=8.5,
        )
    axis.axhline(1, color='black', linewidth=0.8)
    axis.set_xscale('log')
    axis.set_yscale('log')
    axis.set_xticks(PASSES, [str(each) for each in PASSES])
    axis.set_ylim(0.5, 5.6)
    axis.set_yticks((0.5, 0.7, 1, 1.5, 2, 3, 4), ('0.5', '0.7', '1', '1.5', '2', '3', '4'))
    axis.minorticks_off()
    axis.text(100, 4, 'above 1: BLT has less noise', ha='right', va='bottom', fontsize=8)
    axis.text(1, 0.6, 'below 1: sampling has less noise', ha='left', va='top', fontsize=8)
    axis.grid(axis='y', color='#dddddd', linewidth=0.6)
    axis.set_title(
        f'Noise of independent + Poisson / noise of BLT, {ROUNDS} rounds', fontsize=8.5, loc='left'
    )
    axis.set_xlabel('rounds of a client in the run')
    figure.savefig(FOLDER / 'choosing_sampling.png', dpi=200)


def main() -> None:
    """Computes the points, unless --draw is given, and draws them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--draw', action='store_true', help='Draw from the CSV files only.')
    if not parser.parse_args().draw:
        _write(MEMORY_CSV, list(memory_rows()))
        _write(SAMPLING_CSV, [sampling_row(p, e) for e in EPSILONS for p in PASSES])
    draw_sampling()
    draw_memory()


if __name__ == '__main__':
    main()
