"""Epsilons of sampled runs beside those of other packages, at random settings.

  python -m benchmarks.sampling_peers [--jax_privacy=REQUIREMENT]

The packages have an environment of their own, which is created on first use
(`peers/environments.py`). `--jax_privacy` is a pip requirement, such as the path of a checkout: its
released versions up to 2.0.0 have no Monte Carlo accounting.

For each setting the table has dpfl's epsilon, the other package's, their ratio, and the *least*:
what no correct bound is below (`peers/sampling_of_others.py` says how it is found). The exit status
is 1 if an epsilon of dpfl is below the least by more than 0.2 %, or below the other one by more
than that for a sampling without a stated reason. `_REASONS` has them.
"""

import json
import pathlib
import sys

import numpy as np

from benchmarks import measuring
from benchmarks.peers import environments
from dpfl import mechanisms
from dpfl.accounting.sampling import kinds

_SEED, _EACH = 20, 4
_TOLERANCE = 2e-3
# Limit on the time of one process.
_SECONDS = 7200.0
_REQUIREMENTS = ('dp_accounting==0.6.0', 'PLD_accounting==2.0', 'optax', 'jax', 'numpy>=2')
_JAX_PRIVACY = (
    'git+https://github.com/google-deepmind/jax_privacy@8967688c26d46f3b74bfdfe61ef1f984b887abab'
)
# Why an epsilon may be below that of the other package.
_REASONS = {
    'cyclic_poisson': 'the last columns of C are shorter',
    'truncated_poisson': 'full samples have a smaller bound',
    'balls_in_bins': 'theirs is an estimate',
    'random_allocation': 'theirs is an upper bound',
    'b_min_sep': 'theirs is an estimate',
}


def settings(seed: int = _SEED, each: int = _EACH) -> list[dict]:
    """Random settings, as many of each sampling; what both sides need of a run."""
    random = np.random.default_rng(seed)
    found = []
    for sampling in _REASONS:
        for _ in range(each):
            groups = int(random.integers(2, 13))
            epochs = int(random.integers(2, 13 if sampling != 'random_allocation' else 5))
            rounds = groups * epochs
            if sampling not in ('random_allocation', 'balls_in_bins'):
                rounds += int(random.integers(groups))
            bands = int(random.integers(1, groups + 1))
            if sampling in ('truncated_poisson', 'random_allocation'):
                bands = 1
            if sampling == 'truncated_poisson':
                groups, rounds = 1, 10 * rounds
            coefficients = np.append(1.0, random.uniform(0, 0.8, bands - 1))
            coefficients = np.sort(coefficients / np.linalg.norm(coefficients))[::-1]
            monte_carlo = sampling in ('balls_in_bins', 'b_min_sep')
            setting = dict(
                sampling=sampling,
                rounds=rounds,
                groups=groups,
                coefficients=coefficients.tolist(),
                noise_multiplier=round(float(random.uniform(1.0, 3.0)), 2),
                delta=1e-3 if monte_carlo else 1e-6,
            )
            clients = int(random.integers(5, 30))
            if sampling in ('random_allocation', 'balls_in_bins'):
                population = clients * groups
            else:
                population = clients * groups * int(random.integers(2, 20))
            setting.update(clients_per_round=clients, population=population)
            setting['probability'] = clients * groups / population
            if sampling == 'b_min_sep':
                setting['probability'] = clients / (population - (groups - 1) * clients)
            if sampling == 'truncated_poisson':
                setting['cohort_cap'] = clients + int(random.integers(0, 3 * clients**0.5))
            found.append(setting)
    return found


def ours(setting: dict) -> float:
    """Epsilon by a privacy plan."""
    rounds = setting['rounds']
    name = 'cohort_cap' if setting['sampling'] == 'truncated_poisson' else 'groups'
    values = {'population': setting['population'], name: setting[name]}
    coefficients = setting['coefficients']
    plan = measuring.plan(
        mechanisms.Identity(rounds)
        if len(coefficients) == 1
        else mechanisms.BandedToeplitz(rounds, coefficients),
        setting['clients_per_round'],
        noise_multiplier=setting['noise_multiplier'],
        sampling=kinds.from_settings(setting['sampling'], values),
    )
    return plan.epsilon(setting['delta'], 'best')


def _theirs(python: str, asked: list[dict]) -> list[dict]:
    script = pathlib.Path(__file__).parent / 'peers' / 'sampling_of_others.py'
    return json.loads(environments.call([python, str(script), json.dumps(asked)], _SECONDS))


def _versions(python: str) -> str:
    names = ('dp_accounting', 'jax_privacy', 'PLD_accounting')
    ask = f'from importlib.metadata import version\nfor n in {names}: print(n, version(n))'
    return ', '.join(environments.call([python, '-c', ask], _SECONDS).splitlines())


def verdict(sampling: str, epsilon: float, theirs: float, least: float) -> str:
    """What is to be said of an epsilon; begins with WRONG if it cannot be right."""
    if epsilon < least * (1 - _TOLERANCE):
        return 'WRONG: below the least'
    if epsilon >= theirs * (1 - _TOLERANCE):
        return ''
    return _REASONS.get(sampling, 'WRONG: below the other one without a reason')


def main(argv: list[str] | None = None) -> int:
    parser = measuring.parser(__doc__)
    parser.add_argument('--jax_privacy', default=_JAX_PRIVACY)
    parser.add_argument('--only', choices=tuple(_REASONS))
    flags = parser.parse_args(argv)
    # The requirements of jax_privacy are repositories instead of releases.
    python = environments.python('sampling', _REQUIREMENTS, _SECONDS, alone=[flags.jax_privacy])
    asked = [each for each in settings() if flags.only in (None, each['sampling'])]
    print(_versions(python))
    shared = ('sampling', 'rounds', 'groups', 'bands', 'rate', 'noise')
    measuring.print_head(*shared, 'ours', 'theirs', 'ratio', 'least', '')
    wrong = 0
    for setting, found in zip(asked, _theirs(python, asked), strict=True):
        epsilon, theirs = ours(setting), found['epsilon']
        note = verdict(setting['sampling'], epsilon, theirs, found['least'])
        wrong += note.startswith('WRONG')
        cells = [setting[name] for name in ('sampling', 'rounds', 'groups')]
        rate = setting['clients_per_round'] / setting['population']
        cells += [len(setting['coefficients']), f'{rate:.3g}', setting['noise_multiplier']]
        epsilons = (epsilon, theirs, epsilon / theirs, found['least'])
        cells += [*(f'{value:.4f}' for value in epsilons), note]
        measuring.print_row(*cells)
    print(f'{wrong} of {len(asked)} wrong')
    return int(wrong > 0)


if __name__ == '__main__':
    sys.exit(main())
