"""Epsilons of sampled runs by other packages, in an environment of their own.

  sampling_of_others.py <settings as a JSON list>    prints results as a JSON list

Needs dp_accounting, jax_privacy and PLD_accounting. Each result has `epsilon`, what the package
states or estimates, and `least`, what no correct bound is below: a bound from below of the same
package, the epsilon of some data, or an estimate minus four standard errors.
"""

import json
import math
import sys
import typing

import dp_accounting
import numpy as np
import optax
from scipy import stats

# Releases of optax up to 0.2.8 lack this alias, which annotations of jax_privacy use.
if not hasattr(optax, 'ArrayTree'):
    optax.ArrayTree = typing.Any

import jax_privacy.accounting  # noqa: E402
from jax_privacy import batch_selection  # noqa: E402
from jax_privacy.experimental.monte_carlo import sample_generation  # noqa: E402

_SAMPLES, _CHUNK, _SEED = 1_000_000, 50_000, 1
_STANDARD_ERRORS = 4
# Losses are rounded up to a grid of this step in each release.
_STEP = 1e-4


def _pld(event: dp_accounting.DpEvent, delta: float) -> float:
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=_STEP)
    return accountant.compose(event).get_epsilon(delta)


def cyclic_poisson(setting: dict) -> dict[str, float]:
    """The strategy must have columns of norm 1, but for the last ones, which are shorter."""

    def of_rounds(rounds):
        event = jax_privacy.accounting.amplified_bandmf_event(
            setting['noise_multiplier'],
            rounds,
            num_bands=setting['groups'],
            sampling_prob=setting['probability'],
        )
        return _pld(event, setting['delta'])

    # So many turns of the first group are before the shorter columns.
    whole = (setting['rounds'] - len(setting['coefficients'])) // setting['groups'] + 1
    return dict(epsilon=of_rounds(setting['rounds']), least=of_rounds(whole * setting['groups']))


def truncated_poisson(setting: dict) -> dict[str, float]:
    count, q, cap = setting['population'], setting['probability'], setting['cohort_cap']
    noise, rounds = setting['noise_multiplier'], setting['rounds']
    event = jax_privacy.accounting.truncated_dpsgd_event(
        noise, rounds, sampling_prob=q, num_examples=count, truncated_batch_size=cap
    )
    # If all others send zero, the run is one of Poisson samples of what remains of q.
    sizes = np.arange(1, count + 1)
    kept = float(stats.binom.pmf(sizes, count, q) @ np.minimum(sizes, cap)) / count
    least = jax_privacy.accounting.dpsgd_event(noise, rounds, sampling_prob=kept)
    return dict(epsilon=_pld(event, setting['delta']), least=_pld(least, setting['delta']))


def random_allocation(setting: dict) -> dict[str, float]:
    import PLD_accounting  # Slow to import.

    upper, lower = PLD_accounting.gaussian_allocation_epsilon_range(
        delta=setting['delta'],
        sigma=setting['noise_multiplier'],
        num_steps=setting['groups'],
        num_epochs=setting['rounds'] // setting['groups'],
    )
    return dict(epsilon=float(upper), least=float(lower))


def balls_in_bins(setting: dict) -> dict[str, float]:
    return _by_samples(
        batch_selection.BallsInBinsSampling(setting['rounds'], setting['groups']), setting
    )


def b_min_sep(setting: dict) -> dict[str, float]:
    return _by_samples(
        batch_selection.BMinSepSampling(
            setting['probability'], setting['rounds'], setting['groups'], warm_start=True
        ),
        setting,
    )


def _by_samples(strategy: typing.Any, setting: dict) -> dict[str, float]:
    found = dict(epsilon=0.0, least=0.0)
    for positive in (True, False):
        generator = np.random.default_rng([_SEED, positive])
        losses = np.concatenate(
            [
                sample_generation.get_privacy_loss_sample(
                    strategy,
                    setting['noise_multiplier'],
                    np.array(setting['coefficients']),
                    generator,
                    positive,
                    _CHUNK,
                )[0]
                for _ in range(_SAMPLES // _CHUNK)
            ]
        )
        for name, errors in (('epsilon', 0), ('least', _STANDARD_ERRORS)):
            found[name] = max(found[name], _epsilon_of_samples(losses, setting['delta'], errors))
    return found


def _epsilon_of_samples(losses: np.ndarray, delta: float, errors: float) -> float:
    """Where the mean of (1 - e^(epsilon - loss))+, less so many standard errors, meets delta."""

    def excess(epsilon):
        payoffs = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return payoffs.mean() - errors * payoffs.std() / math.sqrt(payoffs.size) - delta

    low, high = 0.0, max(float(losses.max()), 0.0)
    if excess(low) <= 0:
        return 0.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


if __name__ == '__main__':
    kinds = (cyclic_poisson, truncated_poisson, random_allocation, balls_in_bins, b_min_sep)
    by_name = {kind.__name__: kind for kind in kinds}
    print(json.dumps([by_name[each['sampling']](each) for each in json.loads(sys.argv[1])]))
