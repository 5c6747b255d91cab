"""A round that is repeated: the same noise for the same sum, independent noise for any other.

States are restored and go on with other cohorts, as programs do that discard rounds. The exact part
is replayed from the recorded keys; independent keys are then what makes the noise independent.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from dpfl import aggregators, mechanisms
from dpfl.aggregators.noise import correlated
from tests import mechanism_cases, oracles, redrawn
from tests.aggregators import rounds

_ROUNDS, _SIZE = 6, 300
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
        noise, is_supplied = 'hardened' if place == 'hardened' else 'default', place != 'state'
        self.plan = rounds.plan(mechanism, noise=noise, **changes)
        self.query = aggregators.build_query(
            self.plan, 3, record_specs=_SPEC, supplied_noise=is_supplied
        )
        self.ring = aggregators.build_noise_ring(self.plan) if is_supplied else None
        self.start = self.query.initial_global_state()

    def run(self, state, lengths):
        """Noise of rounds with an update each, in units of the sum, and the state after them."""
        updates = np.float32([np.full(_SIZE, length / np.sqrt(_SIZE)) for length in lengths])
        cohorts = [[update] for update in updates]
        rows, state = rounds.run(self.query, state, cohorts, _SPEC, self.ring)
        return rows * self.plan.denominator - updates, state


@pytest.fixture(scope='module', name='branches', params=_CASES.values(), ids=_CASES)
def _branches(request):
    made = _Branches(*request.param)
    with made.ring or contextlib.nullcontext():
        yield made


def test_branches_of_a_run_share_no_noise_but_that_of_their_common_rounds(branches):
    first, middle = branches.run(branches.start, [0.1, 0.2])
    ends = {}
    for name, lengths in {'one': [0.3, 0.1], 'other': [0.4, 0.1], 'again': [0.3, 0.1]}.items():
        rows, state = branches.run(middle, lengths)
        ends[name] = np.concatenate([first, rows]), redrawn.keys(state)
        if branches.plan.noise == 'default':  # The keys are those of the noise that was released.
            noise = redrawn.vectors(state, _SPEC)
            expected = oracles.streamed_by_solving(branches.plan.mechanism.with_rounds(4), noise)
            np.testing.assert_allclose(ends[name][0] / branches.plan.stddev, expected, atol=1e-4)
    # The same sums: the same bits.
    np.testing.assert_array_equal(ends['one'][0], ends['again'][0])
    np.testing.assert_array_equal(ends['one'][1][:2], ends['other'][1][:2])
    # Another sum: another key, also in the round after it, which has the same sum again.
    assert not np.isin(ends['one'][1][2:], ends['other'][1][2:]).any()


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
