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

from dpfl import Participation, accounting, mechanisms
from dpfl.reporting import charts

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

# Names of the mechanisms in the figure: points, then lines, so that no two look the same.
_LABELS = {
    'independent': 'independent',
    'tree': 'tree',
    'honaker_tree': 'tree, less variance',
    'full_honaker_tree': 'TreeAgg-Full',
    'free_banded': 'free norms',
    'blt': 'BLT',
    'banded_inverse': 'banded inverse',
    'banded_toeplitz': 'banded Toeplitz',
    'banded': 'BandMF',
    'scaled_blt': 'scaled BLT',
    'block_blt': 'block BLT',
}
_TITLES = ('six participations, 342 rounds apart', 'one participation')
# Copies of the model at the ticks of the axis.
_COPIES = (0, 1, 2, 4, 10, 31, 127, 341, 2052)


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


def draw_memory() -> None:
    """Draws `choosing_memory.png` from its points."""
    rows = _read(MEMORY_CSV)
    panels = []
    for (_, separation, most), title in zip(SCHEMAS, _TITLES, strict=True):
        lines = []
        for number, (name, label) in enumerate(_LABELS.items()):
            points = [
                row
                for row in rows
                if (row['mechanism'], row['min_separation']) == (name, str(separation))
            ]
            # The axis is logarithmic, and has a place for no copy.
            x = [int(row['copies']) + 1 for row in points]
            y = [float(row['max_loss']) for row in points]
            lines.append(charts.Line(label, x, y, number, None if len(points) == 1 else 0))
        panels.append(
            charts.Panel(
                f'Max loss, 2052 rounds: {title}',
                'copies of the model that the noise keeps',
                'max loss',
                lines,
                x_log=True,
                y_log=True,
                y_range=(8, 120) if most > 1 else (2.5, 60),
                x_ticks={copies + 1: str(copies) for copies in _COPIES},
            )
        )
    charts.draw(panels, columns=1).savefig(FOLDER / 'choosing_memory.png', dpi=150)


def draw_sampling() -> None:
    """Draws `choosing_sampling.png` from its points."""
    lines = [charts.Line('equal noise', [PASSES[0], PASSES[-1]], [1.0, 1.0], color=4, dash=1)]
    for number, epsilon in enumerate(EPSILONS):
        rows = [row for row in _read(SAMPLING_CSV) if float(row['epsilon']) == epsilon]
        ratios = [float(row['sampled_noise']) / float(row['blt_noise']) for row in rows]
        passes = [int(row['passes']) for row in rows]
        lines.append(charts.Line(f'epsilon {epsilon:g}', passes, ratios, number))
    panel = charts.Panel(
        f'Noise of independent + Poisson / noise of BLT, {ROUNDS} rounds',
        'rounds of a client in the run',
        'above 1: BLT has less noise',
        lines,
        x_log=True,
        y_log=True,
        y_range=(0.5, 5.6),
        x_ticks={passes: str(passes) for passes in PASSES},
    )
    charts.draw([panel], columns=1).savefig(FOLDER / 'choosing_sampling.png', dpi=150)


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
