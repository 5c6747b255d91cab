"""Detects a client in the float32 release of one round by the discrete steps of its noise.

  python -m tests.attacks.noise_lattice [--trials=400]

The attacker knows the updates of all clients, the plan and the generator, but not its key, and has
the release of the first round as float32 numbers. The plan's mu is 0.001, so nobody should be right
in more than 50.02 % of all trials. If two coordinates come from a uniform number u by the method of
[Box58], then `exp(-radius^2 / 2) = u`. If u has few bits, only the right one of two candidate sums
leaves multiples of a step. The attacker tries steps of 2^-23, 2^-24 and 2^-32, with pairs of
adjacent coordinates and pairs of coordinates half a block apart.

The control is noise from TensorFlow's own normal variables, in which the attack must find the
client. Exits with status 1 if the attack finds a client in dpfl's noise, default or hardened, more
often than chance does once in 10^4 runs, or finds none in the control.
"""

import argparse
import itertools
import sys

import numpy as np
import tensorflow as tf
from scipy import stats

from dpfl import Participation, accounting, aggregators, mechanisms
from dpfl.aggregators.noise import normal

_SIZE = 2 * normal.BLOCK
_ROUNDS = 8
_MU = 0.001
_STEPS = (2.0**-23, 2.0**-24, 2.0**-32)
# For smaller radii a float32 release does not resolve steps of 2^-23.
_SMALLEST_RADIUS = 2.6
_SPEC = tf.TensorSpec([_SIZE])

MECHANISMS = {
    'independent': lambda: mechanisms.Identity(_ROUNDS),
    'blt': lambda: mechanisms.Blt(_ROUNDS, [0.9, 0.3], [0.2, 0.3]),
    'tree': lambda: mechanisms.BinaryTree(_ROUNDS),
    'honaker_tree': lambda: mechanisms.HonakerTree(_ROUNDS),
    'banded': lambda: mechanisms.BandedToeplitz.fichtenberger(_ROUNDS, 4),
    'banded_inverse': lambda: mechanisms.BandedInverse.square_root(_ROUNDS, 4),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--trials', type=int, default=400, help='releases of each kind of noise')
    trials = parser.parse_args().trials
    rng = np.random.default_rng()
    right = count_right(of_tensorflow, trials, rng)
    is_control = is_found(right, trials)
    print(f'{"control":<26}{right} of {trials} right{", as it should be" if is_control else ""}')
    found = []
    for noise, (name, make) in itertools.product(accounting.NOISES, MECHANISMS.items()):
        right = count_right(of_plan(make(), noise), trials, rng)
        print(f'{noise:<10}{name:<16}{right} of {trials} right', flush=True)
        if is_found(right, trials):
            found.append(f'{name} ({noise})')
    print(f'found: {", ".join(found)}' if found else 'nothing found')
    sys.exit(bool(found) or not is_control)


def is_found(right: int, trials: int) -> bool:
    """Whether `right` guesses are more than chance produces once in 10^4 runs."""
    tests = len(accounting.NOISES) * len(MECHANISMS)
    return stats.binomtest(right, trials, 0.5, 'greater').pvalue < 1e-4 / tests


def count_right(release, trials: int, rng) -> int:
    """The number of right guesses in `trials` trials.

    Args:
      release: (updates, float32 [2, _SIZE]) -> their noised sum, float64 [_SIZE] of float32 values,
        and the standard deviation of its noise.
      trials: number of releases.
      rng: decides in which of them the client took part, and what the clients sent.
    """
    right = 0
    for _ in range(trials):
        updates = rng.normal(size=[2, _SIZE])
        updates = (0.99 * updates / np.linalg.norm(updates, axis=1)[:, None]).astype(np.float32)
        sums = updates[0].astype(np.float64), updates.astype(np.float64).sum(axis=0)
        takes_part = bool(rng.integers(2))
        if not takes_part:
            updates[1] = 0
        noised, stddev = release(updates)
        without, with_client = (_misfit((noised - total) / stddev) for total in sums)
        right += takes_part == (with_client < without)
    return right


def _misfit(noise: np.ndarray) -> float:
    """Mean distance of pairs from multiples of a step, in steps: the least over all choices."""
    halves = noise.reshape(-1, 2, normal.BLOCK // 2)
    pairings = ((noise[0::2], noise[1::2]), (halves[:, 0].ravel(), halves[:, 1].ravel()))
    misfits = []
    for first, second in pairings:
        squares = np.square(first) + np.square(second)
        u = np.exp(-squares[squares > _SMALLEST_RADIUS**2] / 2)
        misfits += [float(np.abs(u / step - np.rint(u / step)).mean()) for step in _STEPS]
    return min(misfits)


def of_tensorflow(updates):
    """Releases with TensorFlow's own normal variables."""
    stddev = 1 / _MU
    total = tf.constant(updates.astype(np.float64).sum(axis=0), tf.float32)
    noise = tf.random.stateless_normal(
        [_SIZE], np.random.default_rng().integers(2**62, size=2), alg='philox'
    )
    return (total + stddev * noise).numpy().astype(np.float64), stddev


def of_plan(mechanism, noise: str = 'default'):
    """Releases of the first round of a plan with a mechanism."""
    participation = Participation(_ROUNDS, max_participations=1)
    plan = accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=participation,
        clip_norm=1.0,
        clients_per_round=2,
        noise_multiplier=mechanism.sensitivity(participation) / _MU,
        noise=noise,
    )
    is_hardened = noise == 'hardened'
    query = aggregators.build_query(plan, record_specs=_SPEC, supplied_noise=is_hardened)

    @tf.function
    def released(state, updates):
        sample, params = query.initial_sample_state(updates[0]), query.derive_sample_params(state)
        for update in tf.unstack(updates):
            sample = query.accumulate_record(params, sample, update)
        return query.get_noised_result(sample, state)[0]

    def release(updates):
        # The mean of two: its float32 numbers and those of the sum have the same digits.
        state = query.initial_global_state()
        if is_hardened:
            with aggregators.HardenedRing(plan, show_progress=False) as ring:
                state = tf.nest.map_structure(tf.constant, ring.supply(state, updates))
        noised = released(state, tf.constant(updates)).numpy().astype(np.float64) * plan.denominator
        return noised, plan.stddev / mechanism.strategy_matrix()[0, 0]

    return release


if __name__ == '__main__':
    main()
