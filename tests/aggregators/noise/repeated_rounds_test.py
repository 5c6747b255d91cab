"""A round that is repeated: the same noise for the same sum, independent noise for any other.

States are restored and go on with other cohorts, as programs do that discard rounds. The exact part
is replayed from the recorded keys; independent keys are then what makes the noise independent.
"""

import numpy as np
import pytest
import tensorflow as tf

from dpfl import aggregators, mechanisms
from dpfl.aggregators.noise import correlated
from tests import mechanism_cases, oracles, redrawn
from tests.aggregators import rounds

_ROUNDS, _SIZE = 6, 3000
_SPEC = tf.TensorSpec([_SIZE])
_BLT = rounds.blt(_ROUNDS)
# A mechanism of each kernel, and where its past is kept.
_CASES = {
    'independent': (mechanisms.Identity(_ROUNDS), 'state'),
    'state_space': (_BLT, 'state'),
    'honaker_tree': (mechanisms.HonakerTree(_ROUNDS), 'state'),
    'banded_solve': (mechanism_cases.FACTORIES['banded'](_ROUNDS), 'state'),
    'banded_product': (mechanisms.BandedInverse.square_root(_ROUNDS, 4), 'state'),
    'ring': (mechanism_cases.FACTORIES['banded'](_ROUNDS), 'ring'),
    'hardened': (_BLT, 'hardened'),
}


class _Branches:
    """Rounds from any state."""

    def __init__(self, mechanism, place, **changes):
        noise = 'hardened' if place == 'hardened' else 'default'
        self.plan = rounds.plan(mechanism, noise=noise, **changes)
        self.query = aggregators.build_query(
            self.plan, 3, record_specs=_SPEC, supplied_noise=place != 'state'
        )
        self._ring = None
        if place != 'state':
            ring = aggregators.HardenedRing if place == 'hardened' else aggregators.NoiseRing
            self._ring = ring(self.plan, show_progress=False)
        self.start = self.query.initial_global_state()

    def close(self):
        if self._ring is not None:
            self._ring.close()

    def run(self, state, lengths):
        """Noise of rounds with an update each, in units of the sum, and the state after them."""
        updates = np.float32([np.full(_SIZE, length / np.sqrt(_SIZE)) for length in lengths])
        cohorts = [[update] for update in updates]
        rows, state = rounds.run(self.query, state, cohorts, _SPEC, self._ring)
        return rows * self.plan.denominator - updates, state


@pytest.fixture(scope='module', name='branches', params=_CASES.values(), ids=_CASES)
def _branches(request):
    made = _Branches(*request.param)
    yield made
    made.close()


def test_branches_of_a_run_have_the_noise_of_the_matrix_and_share_none(branches):
    first, middle = branches.run(branches.start, [0.1, 0.2])
    ends = {}
    for name, lengths in {'one': [0.3, 0.1], 'other': [0.4, 0.1], 'again': [0.3, 0.1]}.items():
        rows, state = branches.run(middle, lengths)
        ends[name] = np.concatenate([first, rows]), state
    # The same sums: the same bits.
    np.testing.assert_array_equal(ends['one'][0], ends['again'][0])
    keys = {name: redrawn.keys(state) for name, (_, state) in ends.items()}
    np.testing.assert_array_equal(keys['one'][:2], keys['other'][:2])
    # Another sum: another key, also in the round after it, which has the same sum again.
    assert not np.isin(keys['one'][2:], keys['other'][2:]).any()
    if branches.plan.noise == 'default':
        for rows, state in ends.values():
            z = redrawn.vectors(state, _SPEC)
            expected = oracles.streamed_by_solving(branches.plan.mechanism.with_rounds(4), z)
            np.testing.assert_allclose(rows / branches.plan.stddev, expected, atol=1e-4)


def test_the_difference_of_two_branches_has_the_noise_of_two_releases(branches):
    """In units of one release: a standard deviation of sqrt(2), nothing in common with the past."""
    first, middle = branches.run(branches.start, [0.1, 0.2])
    (one,), _ = branches.run(middle, [0.3])
    (other,), _ = branches.run(middle, [0.4])
    unit = branches.plan.stddev / branches.plan.mechanism.strategy_matrix()[2, 2]
    # 3,000 coordinates: a standard deviation is known to 1.3 %, a correlation to 0.018.
    assert np.std((one - other) / unit) == pytest.approx(np.sqrt(2), rel=0.06)
    for row in first:
        assert abs(np.corrcoef(one - other, row)[0, 1]) < 0.08


def test_two_matrices_that_go_on_from_one_state_have_independent_noise():
    """With common noise, a combination of past noise would be known, and so one of past sums."""
    blocks = mechanisms.BlockBlt(
        _BLT.rounds, [2], [_BLT.decay, [0.5, 0.1]], [_BLT.scale, [0.1, 0.1]], [1.0, 1.0]
    )
    kernels = [mechanism.kernel() for mechanism in (_BLT, blocks)]
    total, key = tf.zeros([3]), np.array([3, 4])
    state = correlated.initial_state(kernels[0], _ROUNDS, _SPEC, key)
    for kernel in kernels:
        np.testing.assert_array_equal(kernel.table[kernel.row(1)], kernels[0].table[0])
    for _ in range(2):
        _, state = correlated.next_noise(kernels[1], _ROUNDS, state, _SPEC, total)
    one, other = (
        correlated.next_noise(kernel, _ROUNDS, state, _SPEC, total)[1].drawn for kernel in kernels
    )
    np.testing.assert_array_equal(one[:2], other[:2])
    assert (one[2] != other[2]).numpy().all()


def test_noise_of_another_scale_is_other_noise():
    keys = []
    for clip_norm in (0.5, 0.25):
        branches = _Branches(_BLT, 'state', clip_norm=clip_norm)
        # Within both norms, so the sum is the same, up to the unit in which it is exact.
        _, state = branches.run(branches.start, [0.0])
        keys.append(redrawn.keys(state))
    assert not np.isin(*keys).any()
