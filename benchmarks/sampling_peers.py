"""Epsilons of sampled runs beside those of other packages, at random settings.

  python -m benchmarks.sampling_peers --environment=DIRECTORY [--jax_privacy=REQUIREMENT]

The directory gets an environment with the packages on first use, by pip; it should be outside of
the checkout. `--jax_privacy` is a pip requirement, such as the path of a checkout: its released
versions up to 2.0.0 have no Monte Carlo accounting.

For each setting the table has dpfl's epsilon, the other package's, their ratio, and the *least*:
what no correct bound is below (`peers/sampling_of_others.py` says how it is found). The exit status
is 1 if an epsilon of dpfl is below the least by more than 0.2 %, or below the other one by more
than that for a sampling without a stated reason. `_REASONS` has them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import venv

import numpy as np

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.sampling import kinds

_SEED, _EACH = 20, 4
_TOLERANCE = 2e-3
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
    independent = len(coefficients) == 1
    plan = accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(rounds)
        if independent
        else mechanisms.BandedToeplitz(rounds, coefficients),
        participation=Participation(rounds),
        clip_norm=1.0,
        noise_multiplier=setting['noise_multiplier'],
        clients_per_round=setting['clients_per_round'],
        sampling=kinds.from_settings(setting['sampling'], values),
    )
    return plan.epsilon(setting['delta'], 'best')


def environment(directory: pathlib.Path, jax_privacy: str) -> pathlib.Path:
    """The interpreter of an environment with the other packages; makes it if it is not there."""
    python = directory / 'bin' / 'python'
    if not python.exists():
        venv.create(directory, symlinks=True, with_pip=True)
    ask = 'from importlib import metadata, util; import os; '
    ask += 'metadata.version("dp_accounting"), metadata.version("PLD_accounting"); '
    ask += 'place = util.find_spec("jax_privacy").submodule_search_locations[0]; '
    ask += 'os.stat(os.path.join(place, "experimental", "monte_carlo"))'
    if subprocess.run([python, '-c', ask], capture_output=True, check=False).returncode:
        install = [python, '-m', 'pip', 'install', '--quiet']
        subprocess.run([*install, *_REQUIREMENTS], check=True)
        # Its own requirements are repositories instead of releases.
        subprocess.run([*install, '--no-deps', jax_privacy], check=True)
    return python


def _theirs(python: pathlib.Path, asked: list[dict]) -> list[dict]:
    script = pathlib.Path(__file__).parent / 'peers' / 'sampling_of_others.py'
    done = subprocess.run(
        [python, script], input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def _versions(python: pathlib.Path) -> str:
    names = ('dp_accounting', 'jax_privacy', 'PLD_accounting')
    ask = f'from importlib.metadata import version\nfor n in {names}: print(n, version(n))'
    done = subprocess.run([python, '-c', ask], stdout=subprocess.PIPE, text=True, check=True)
    return ', '.join(done.stdout.splitlines())


def verdict(sampling: str, epsilon: float, theirs: float, least: float) -> str:
    """What is to be said of an epsilon; begins with WRONG if it cannot be right."""
    if epsilon < least * (1 - _TOLERANCE):
        return 'WRONG: below the least'
    if epsilon >= theirs * (1 - _TOLERANCE):
        return ''
    return _REASONS.get(sampling, 'WRONG: below the other one without a reason')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--environment', type=pathlib.Path, required=True)
    parser.add_argument('--jax_privacy', default=_JAX_PRIVACY)
    parser.add_argument('--only', choices=tuple(_REASONS))
    flags = parser.parse_args(argv)
    python = environment(flags.environment, flags.jax_privacy)
    asked = [each for each in settings() if flags.only in (None, each['sampling'])]
    print(_versions(python))
    print('| sampling | rounds | groups | bands | rate | noise | ours | theirs | ratio | least | |')
    print('|---' * 11 + '|')
    wrong = 0
    for setting, found in zip(asked, _theirs(python, asked), strict=True):
        epsilon, theirs = ours(setting), found['epsilon']
        note = verdict(setting['sampling'], epsilon, theirs, found['least'])
        wrong += note.startswith('WRONG')
        cells = [setting['sampling'], setting['rounds'], setting['groups']]
        cells += [
            len(setting['coefficients']),
            f'{setting["clients_per_round"] / setting["population"]:.3g}',
        ]
        cells += [setting['noise_multiplier'], f'{epsilon:.4f}', f'{theirs:.4f}']
        cells += [f'{epsilon / theirs:.4f}', f'{found["least"]:.4f}', note]
        print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)
    print(f'{wrong} of {len(asked)} wrong')
    return int(wrong > 0)


if __name__ == '__main__':
    sys.exit(main())
