"""What is released, against dense linear algebra with the noise drawn again from its key."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import Participation, accounting, mechanisms
from dpfl.aggregators.noise import draws
from dpfl.auditing import aggregator_runs
from tests import redrawn
from tests.accounting import plans

_ROUNDS, _SIZE = 5, 6
# Every canary has rounds and signs of its own.
_UPDATES = np.random.default_rng(0).integers(-1, 2, (_ROUNDS, _SIZE)).astype(float)


def _plan(**changes):
    blt = mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3])
    fields = dict(mechanism=blt, participation=Participation(_ROUNDS, 2), noise_multiplier=2.0)
    return plans.plan(**{**fields, 'clients_per_round': 2 * _SIZE, **changes})


@pytest.fixture(autouse=True)
def _keys_without_context(monkeypatch):
    """The noise is then known without the sums."""
    redrawn.ignore_context(monkeypatch)


def _noise(plan, seed):
    spec = tf.TensorSpec([_SIZE], tf.float32)
    root = draws.seeded_root_key(seed)
    drawn = [draws.of_round(root, t, ()) for t in range(_ROUNDS)]
    z = np.array([redrawn.of_key(key, spec) for key in drawn])
    return plan.update_noise_multiplier * np.linalg.solve(plan.mechanism.strategy_matrix(), z)


_RESTARTED = mechanisms.Restarted(mechanisms.BinaryTree(_ROUNDS), (2,), _ROUNDS)


# Releases are in units of the clip norm in use.
@pytest.mark.parametrize(
    'changes, how, tolerance',
    [
        ({}, {}, 3e-5),  # Clipping leaves a margin of 1e-5.
        (dict(group_size=2), {'resume_after': 3}, 6e-5),
        (dict(mechanism=_RESTARTED, clip_schedule=((2, 0.01),)), {}, 3e-5),
        (
            dict(mechanism=_RESTARTED, adaptive_clip=accounting.AdaptiveClip(count_stddev=3.0)),
            {},
            3e-5,
        ),
        (dict(discretization=mechanisms.Discretization(1e5, _SIZE, 0.5)), {}, 2e-3),
    ],
)
def test_releases_are_canaries_plus_noise(changes, how, tolerance):
    plan = _plan(**changes)
    found = aggregator_runs.released(plan, _UPDATES, seed=3, **how)
    expected = plan.group_size * _UPDATES + _noise(plan, 3)
    np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.standard
def test_noise_differs_between_keys_and_not_between_repetitions():
    plan = _plan(noise='hardened')
    once, again, other = (
        aggregator_runs.released(plan, _UPDATES, seed=seed, **how)
        for seed, how in ((3, {}), (3, {'resume_after': 2}), (4, {}))
    )
    np.testing.assert_array_equal(once, again)
    assert not np.isclose(once, other).any()
    one, two = (aggregator_runs.released(_plan(), _UPDATES) for _ in range(2))
    assert not np.isclose(one, two).any()  # Without a seed the noise is new.
