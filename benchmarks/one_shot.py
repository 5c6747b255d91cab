"""One-shot estimates of the Gaussian mechanism, beside the published ones ([Andrew24], table 1).

  python benchmarks/one_shot.py                           # 50 runs for each noise multiplier
  python benchmarks/one_shot.py --trials=200 --canaries=500 --dimension=100000

A run is one release: the sum of the canaries plus noise, in `--dimension` dimensions. Half of all
canaries take part, `--canaries` of them. As in the paper the attacker does not subtract the other
canaries. The release is simulated exactly, and not in all dimensions: scores depend only on the
products of the canaries with each other and with the noise, which the Bartlett decomposition of
their Wishart matrix gives from as many numbers as there are pairs of canaries.
"""

import argparse
import json
import math
import pathlib

import numpy as np

from benchmarks import measuring
from dpfl.accounting.measured import estimate as estimate_lib

_ROOT = pathlib.Path(__file__).parents[1]
PUBLISHED = _ROOT / 'dpfl' / 'published' / 'tables' / 'published_audits.json'


def published() -> dict:
    """The published estimates with their inputs."""
    return json.loads(PUBLISHED.read_text())


def cosines(
    noise_multiplier: float, canaries: int, dimension: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of canaries with a release: of those in it, and of as many that are not.

    Args:
      noise_multiplier: standard deviation of the noise in clip norms, at least 0.
      canaries: how many take part.
      dimension: of the release, above twice the number of canaries.
      seed: of the run.
    """
    random = np.random.default_rng(seed)
    count = 2 * canaries
    # Coordinates of normal vectors in a basis that the first i of them span for every i.
    vectors = np.tril(random.standard_normal((count, count)), -1)
    np.fill_diagonal(vectors, np.sqrt(random.chisquare(dimension - np.arange(count))))
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    release = noise_multiplier * random.standard_normal(count) + directions[:canaries].sum(axis=0)
    outside = noise_multiplier**2 * random.chisquare(dimension - count)
    found = directions @ release / math.sqrt(release @ release + outside)
    return found[:canaries], found[canaries:]


def estimates(
    noise_multiplier: float, canaries: int, dimension: int, delta: float, trials: int
) -> list[estimate_lib.Estimate]:
    """The estimates of independent runs, with seeds from 0 on."""
    return [
        estimate_lib.estimate(
            *cosines(noise_multiplier, canaries, dimension, seed),
            dimension,
            delta,
            is_gaussian=True,
        )
        for seed in range(trials)
    ]


def _row(row: dict, arguments: argparse.Namespace, delta: float) -> list[str]:
    found = estimates(
        row['noise_multiplier'], arguments.canaries, arguments.dimension, delta, arguments.trials
    )
    columns = [
        [each.epsilon for each in found],
        [each.epsilon_fitted for each in found],
        [each.epsilon_lower for each in found],
    ]
    cells = [f'{np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}' for each in columns]
    above = sum(each.epsilon_lower > row['epsilon'] for each in found)
    numbers = [row['noise_multiplier'], row['epsilon'], row['epsilon_estimate']]
    return [*(f'{each:g}' for each in numbers), *cells, f'{above} of {len(found)}']


def main() -> None:
    """Prints the table in Markdown."""
    parser = measuring.parser(__doc__)
    parser.add_argument('--trials', type=int, default=50, help='runs for each noise multiplier')
    parser.add_argument('--canaries', type=int, default=1000, help='canaries that take part')
    parser.add_argument('--dimension', type=int, default=10**6, help='dimension of the release')
    arguments = parser.parse_args()
    values = published()
    estimated = ('published estimate', 'estimate', 'with fitted deviation', 'lower bound')
    measuring.print_head('noise multiplier', 'epsilon', *estimated, 'above epsilon')
    for row in values['rows']:
        measuring.print_row(*_row(row, arguments, values['delta']))


if __name__ == '__main__':
    main()
