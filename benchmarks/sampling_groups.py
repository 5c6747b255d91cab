"""Epsilons of one banded mechanism with balls in bins, cyclic Poisson and b-min-sep sampling.

  python -m benchmarks.sampling_groups --rounds=512 --bands=8 --groups=8,32,128,512 --epsilon=4

For each number of bins there are as many cohorts' worth of clients; cyclic Poisson and b-min-sep
sampling have as many groups as the mechanism has bands. The noise gives `--epsilon` at delta 1e-6
without amplification, to clients who are kept as far apart as the bins keep them.
"""

import dataclasses

from benchmarks import measuring
from dpfl import Participation, accounting, mechanisms

_DELTA, _CLIENTS = 1e-6, 100


def main() -> None:
    parser = measuring.parser(__doc__)
    parser.add_argument('--rounds', type=int, default=512)
    parser.add_argument('--bands', type=int, default=8)
    parser.add_argument('--groups', default='8,32,128,512')
    parser.add_argument('--epsilon', type=float, default=4.0)
    flags = parser.parse_args()
    mechanism = mechanisms.optimize_banded_toeplitz(
        Participation(flags.rounds, flags.bands), flags.bands, loss='rms'
    )
    kinds = (accounting.BallsInBins, accounting.CyclicPoisson, accounting.BMinSep)
    measuring.print_head('bins', 'noise multiplier', *(kind.name for kind in kinds))
    for groups in map(int, flags.groups.split(',')):
        apart = accounting.PrivacyPlan.calibrated(
            epsilon=flags.epsilon,
            delta=_DELTA,
            mechanism=mechanism,
            participation=Participation(flags.rounds, groups),
            clip_norm=1.0,
            clients_per_round=_CLIENTS,
        )
        cells = [groups, f'{apart.noise_multiplier:.3f}']
        for kind, turns in zip(kinds, (groups, flags.bands, flags.bands), strict=True):
            plan = dataclasses.replace(
                apart,
                participation=Participation(flags.rounds, turns),
                sampling=kind(population=_CLIENTS * groups, groups=turns),
            )
            cells.append(f'{plan.epsilon(_DELTA, "best"):.4g}')
        measuring.print_row(*cells)


if __name__ == '__main__':
    main()
