"""Draws the figure of scaled columns in docs/concepts/robust_designs.md, from a JSON file.

`robust_scaled`: how much more a BLT, and a BLT with scaled columns, made for a range of
separations lose than the BLT optimised for the separation that the run turns out to have, and than
the BLT with scaled columns optimised for it.

Run: python -m scripts.robust_scaled_figures    (about three quarters of an hour)
     python -m scripts.robust_scaled_figures --draw    (draws again from the JSON file)
"""

import argparse
import json
from typing import Any

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt
import numpy as np

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize.proven_loss import loss_of
from scripts import robust_figures

POINTS = robust_figures.FOLDER / 'robust_scaled.json'
BUFFERS = 4
# Separations for which the designs are made and at which they are measured.
_SEPARATIONS = 17
_OCTAVES = 2.0
# The expected loss, and the optimum with scaled columns of each separation, are for this loss.
_FULL = 'max'
# The bound is computed for at most so many rounds: it takes two minutes for 2000, many for 4000.
_MOST_ROUNDS = 2500

_STYLES = {
    'BLT, worst': ('#D55E00', '-'),
    'scaled, one separation': ('#0072B2', '-'),
    'scaled, worst': ('#CC79A7', '-'),
    'scaled, expected': ('#009E73', '-'),
    'scaled optimum': ('#666666', ':'),
}


def curve(plan: tuple[int, int, int | None, str], loss: str) -> dict[str, Any]:
    """Losses of designs for all separations of a plan, relative to the BLT for each of them."""
    rounds, planned, most, _ = plan
    schemas = robust_figures.schemas(rounds, planned, most, _OCTAVES, _SEPARATIONS)
    designs = {
        'BLT, worst': mechanisms.optimize_robust_blt(schemas, None, BUFFERS, loss, 'worst'),
        'scaled, one separation': mechanisms.optimize_scaled_blt(
            schemas[_SEPARATIONS // 2], BUFFERS, loss
        ),
        'scaled, worst': mechanisms.optimize_robust_scaled_blt(
            schemas, None, BUFFERS, loss, 'worst'
        ),
    }
    if loss == _FULL:
        designs['scaled, expected'] = mechanisms.optimize_robust_scaled_blt(
            schemas, None, BUFFERS, loss, 'expected'
        )
    relative = {
        name: np.round(mechanisms.relative_losses(one, schemas, BUFFERS, loss), 5).tolist()
        for name, one in designs.items()
    }
    if loss == _FULL:
        relative['scaled optimum'] = [_of_optimum(schema, loss) for schema in schemas]
    return {
        'rounds': rounds,
        'planned': planned,
        'most': most,
        'loss': loss,
        'separations': [schema.min_separation for schema in schemas],
        'relative': relative,
        'bound': _bound(schemas, loss),
    }


def _bound(schemas: list[Participation], loss: str) -> float | None:
    """What no mechanism is below at all of the separations."""
    if schemas[0].rounds > _MOST_ROUNDS:
        return None
    return round(mechanisms.relative_loss_lower_bound(schemas, BUFFERS, loss), 5)


def _of_optimum(schema: Participation, loss: str) -> float:
    """Relative loss of the BLT with scaled columns that is optimised for the schema."""
    scaled = mechanisms.optimize_scaled_blt(schema, BUFFERS, loss)
    blt = mechanisms.optimize_blt(schema, BUFFERS, loss)
    return round(loss_of(scaled, schema, loss) / loss_of(blt, schema, loss), 5)


def table(found: list[dict[str, Any]]) -> str:
    """Mean and largest loss in percent above the optimum, a line for each curve, as Markdown.

    The last but one is that of 'scaled, worst' above the optimum with scaled columns. The last is
    what no mechanism is below at all of the separations.
    """
    names = list(_STYLES)[:4]
    lines = ['| rounds, b, k | loss | ' + ' | '.join(names)]
    lines[0] += ' | above scaled optimum | no mechanism below |'
    lines.append('|' + '---|' * (4 + len(names)))
    for one in found:
        most = 'all that fit' if one['most'] is None else one['most']
        cells = [f'{one["rounds"]}, {one["planned"]}, {most}', one['loss']]
        relative = {name: np.array(values) for name, values in one['relative'].items()}
        cells += [_shown(relative[name]) if name in relative else '' for name in names]
        optimum = relative.get('scaled optimum')
        cells.append('' if optimum is None else _shown(relative['scaled, worst'] / optimum))
        cells.append('' if one['bound'] is None else f'{100 * (one["bound"] - 1):.1f}')
        lines.append('| ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines)


def _shown(relative: np.ndarray) -> str:
    above = 100 * (relative - 1)
    return f'{above.mean():.1f} / {above.max():.1f}'


def draw(found: list[dict[str, Any]]) -> None:
    """Draws `robust_scaled.png`: the first two plans, max loss."""
    plt.rcParams.update({'font.size': 8, 'axes.spines.top': False, 'axes.spines.right': False})
    figure, axes = plt.subplots(2, 1, figsize=(4.2, 5.6), layout='constrained')
    shown = [one for one in found if (one['planned'], one['loss']) == (342, 'max')]
    for axis, one in zip(axes, shown, strict=True):
        for name, (color, line) in _STYLES.items():
            above = 100 * (np.array(one['relative'][name]) - 1)
            axis.plot(one['separations'], above, line, color=color, linewidth=1.4, label=name)
        axis.axhline(0, color='#bbbbbb', linewidth=0.8)
        axis.set_xscale('log')
        ticks = one['separations'][::4]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.set_ylim(-11, 18)
        axis.grid(axis='y', color='#dddddd', linewidth=0.6)
        most = 'all that fit' if one['most'] is None else f'at most {one["most"]}'
        axis.set_title(
            f'Max loss above the BLT for the separation in %: {one["rounds"]} rounds, {most}',
            fontsize=7.5,
            loc='left',
        )
        axis.set_xlabel('separation that the run has')
    axes[0].legend(frameon=False, fontsize=7, ncols=2)
    figure.savefig(robust_figures.FOLDER / 'robust_scaled.png', dpi=200)


def main() -> None:
    """Computes the points, unless --draw is given, draws them, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--draw', action='store_true', help='Draw from the JSON file only.')
    if not parser.parse_args().draw:
        found = [curve(plan, loss) for plan in robust_figures.PLANS for loss in ('max', 'rms')]
        POINTS.write_text(json.dumps(found, indent=1) + '\n')
    found = json.loads(POINTS.read_text())
    draw(found)
    print(table(found))


if __name__ == '__main__':
    main()
