"""Which mechanism has the least error at equal epsilon, with and without amplification.

  python -m benchmarks.sampled_mechanisms --rounds=500,2000 --rates=0.001,0.01,0.05 --epsilon=1

For each number of rounds and each rate, clients per round / population, it prints the root mean
square error of the prefix sums of the noise, `noise multiplier * rms error` in clip norms, of

- `poisson`: independent noise with Poisson sampling;
- `cyclic`: Toeplitz noise with b bands and b groups, which take part with b times the rate in their
  turns, for the best b (in brackets) among powers of 2;
- `separated`: Toeplitz noise without amplification, where clients return after 1 / rate rounds.

It follows [Choquette23], figure 1.
"""

import argparse
import functools

from dpfl import Participation, accounting, mechanisms

_POPULATION = 1_000_000
_DELTA = 1e-6


def _noise(epsilon: float, mechanism: mechanisms.Mechanism, rate: float, **fields) -> float:
    plan = accounting.PrivacyPlan.calibrated(
        epsilon=epsilon,
        delta=_DELTA,
        mechanism=mechanism,
        clip_norm=1.0,
        clients_per_round=round(rate * _POPULATION),
        **fields,
    )
    return plan.noise_multiplier * mechanism.rms_error()


@functools.cache
def _toeplitz(rounds: int, bands: int) -> mechanisms.Mechanism:
    if bands == 1:
        return mechanisms.Identity(rounds)
    return mechanisms.optimize_banded_toeplitz(Participation(rounds, bands), bands, loss='rms')


def losses(rounds: int, rate: float, epsilon: float) -> dict[str, tuple[float, int]]:
    """The error of each mechanism, and its bands.

    Args:
      rounds: number of rounds.
      rate: clients per round / population.
      epsilon: to be met at delta 1e-6.
    """
    free = Participation(rounds)
    poisson = accounting.Poisson(population=_POPULATION)
    found = {
        'poisson': (
            _noise(epsilon, _toeplitz(rounds, 1), rate, participation=free, sampling=poisson),
            1,
        )
    }
    best = (float('inf'), 0)
    bands = 2
    while bands <= min(rounds, 1 / rate):
        error = _noise(
            epsilon,
            _toeplitz(rounds, bands),
            rate,
            participation=free,
            sampling=accounting.CyclicPoisson(population=_POPULATION, groups=bands),
        )
        best = min(best, (error, bands))
        bands *= 2
    found['cyclic'] = best
    apart = min(rounds, round(1 / rate))
    found['separated'] = (
        _noise(epsilon, _toeplitz(rounds, apart), rate, participation=Participation(rounds, apart)),
        apart,
    )
    return found


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', default='500,2000')
    parser.add_argument('--rates', default='0.001,0.01,0.05')
    parser.add_argument('--epsilon', type=float, default=1.0)
    given = parser.parse_args()
    print('| rounds | rate | poisson | cyclic (bands) | separated (bands) |')
    print('|---|---|---|---|---|')
    for rounds in map(int, given.rounds.split(',')):
        for rate in map(float, given.rates.split(',')):
            found = losses(rounds, rate, given.epsilon)
            least = min(error for error, _ in found.values())
            cells = [
                f'{"**" if error == least else ""}{error:.4g}{"**" if error == least else ""}'
                + (f' ({bands})' if name != 'poisson' else '')
                for name, (error, bands) in found.items()
            ]
            print('|', ' | '.join([str(rounds), f'{rate:g}', *cells]), '|', flush=True)


if __name__ == '__main__':
    main()
