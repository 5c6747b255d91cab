"""Nobody detects a client in the float32 release of one round by the steps of its noise.

The attacker knows the updates of all clients, the plan and the generator, but not its key, and has
the release of the first round as float32 numbers. The plan's mu is 0.001, so nobody should be right
in more than 50.02 % of all trials. If two coordinates come from a uniform number u by the method of
[Box58], then `exp(-radius^2 / 2) = u`. If u has few bits, only the right one of two candidate sums
leaves multiples of a step. The attacker tries steps of 2^-23, 2^-24 and 2^-32, with pairs of
adjacent coordinates and pairs of coordinates half a block apart. The control is noise from
TensorFlow's own normal variables.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, aggregators
from dpfl.aggregators.noise import draws
from tests import mechanism_cases
from tests.accounting import plans
from tests.aggregators import rounds

_SIZE = 2 * draws.BLOCK
_ROUNDS = 8
_MU = 0.001
_STEPS = (2.0**-23, 2.0**-24, 2.0**-32)
# For smaller radii a float32 release does not resolve steps of 2^-23.
_SMALLEST_RADIUS = 2.6
_SPEC = tf.TensorSpec([_SIZE])


def _count_right(release, trials: int, rng) -> int:
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
    halves = noise.reshape(-1, 2, draws.BLOCK // 2)
    pairings = ((noise[0::2], noise[1::2]), (halves[:, 0].ravel(), halves[:, 1].ravel()))
    misfits = []
    for first, second in pairings:
        squares = np.square(first) + np.square(second)
        u = np.exp(-squares[squares > _SMALLEST_RADIUS**2] / 2)
        misfits += [float(np.abs(u / step - np.rint(u / step)).mean()) for step in _STEPS]
    return min(misfits)


def _of_tensorflow(updates):
    """Releases with TensorFlow's own normal variables."""
    stddev = 1 / _MU
    total = tf.constant(updates.astype(np.float64).sum(axis=0), tf.float32)
    noise = tf.random.stateless_normal(
        [_SIZE], np.random.default_rng().integers(2**62, size=2), alg='philox'
    )
    return (total + stddev * noise).numpy().astype(np.float64), stddev


def _of_plan(mechanism, noise: str = 'default'):
    """Releases of the first round of a plan with a mechanism."""
    participation = Participation(_ROUNDS, max_participations=1)
    plan = plans.plan(
        mechanism=mechanism,
        participation=participation,
        clip_norm=1.0,
        noise_multiplier=mechanism.sensitivity(participation) / _MU,
        noise=noise,
    )
    is_hardened = noise == 'hardened'
    query = aggregators.build_query(plan, record_specs=_SPEC, supplied_noise=is_hardened)

    @tf.function
    def released(state, updates):
        sample = rounds.total(query, state, tf.unstack(updates), _SPEC)
        return query.get_noised_result(sample, state)[0]

    def release(updates):
        # The mean of two: its float32 numbers and those of the sum have the same digits.
        state = query.initial_global_state()
        if is_hardened:
            with aggregators.build_noise_ring(plan, show_progress=False) as ring:
                state = tf.nest.map_structure(tf.constant, ring.supply(state, updates))
        noised = released(state, tf.constant(updates)).numpy().astype(np.float64) * plan.denominator
        return noised, plan.stddev / mechanism.strategy_matrix()[0, 0]

    return release


@pytest.mark.exhaustive
def test_noise_of_tensorflow_tells_the_client():
    assert _count_right(_of_tensorflow, 20, np.random.default_rng(0)) == 20


@pytest.mark.exhaustive
@pytest.mark.parametrize('noise', accounting.NOISES)
@pytest.mark.parametrize(
    'name', ['gaussian', 'blt', 'tree', 'honaker_tree', 'banded_toeplitz', 'banded_inverse']
)
def test_steps_of_the_noise_tell_nobody(noise, name):
    release = _of_plan(mechanism_cases.FACTORIES[name](_ROUNDS), noise)
    # 20 of 20 by chance: 10^-6. The noise is not seeded.
    assert _count_right(release, 20, np.random.default_rng(0)) < 20
