import numpy as np
import pytest

from dpfl import Participation, mechanisms
from tests import oracles

_BASES = {
    'tree': mechanisms.BinaryTree(12),
    'tree_prefix_sums': mechanisms.BinaryTree(12, released='prefix_sums'),
    'honaker_tree': mechanisms.HonakerTree(12),
    'blt': mechanisms.Blt(12, [0.9, 0.4], [0.2, 0.3]),
    'blt_not_monotone': mechanisms.Blt(12, [0.9], [1.5]),
    'gaussian': mechanisms.Identity(12),
    'banded_toeplitz': mechanisms.BandedToeplitz(12, [1.0, 0.5, 0.2]),
    'banded_inverse': mechanisms.BandedInverse.square_root(12, 4),
}


@pytest.mark.parametrize('base', _BASES.values(), ids=_BASES)
def test_random_schedules_against_brute_force(base):
    rng = np.random.default_rng(0)
    exact = 0
    for _ in range(40):
        rounds = int(rng.integers(2, 12))
        starts = np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1
        restarted = mechanisms.Restarted(base, starts, rounds)
        schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 6)))
        bound = restarted.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(restarted.released_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)
        exact += bound.is_exact
    assert exact == 40 or base.name in ('gaussian', 'blt', 'banded_toeplitz')


def test_a_client_at_a_restart_is_counted_in_both_segments():
    # Without coupling of the segments: rounds 3 and 4 in spite of a separation of 3.
    restarted = mechanisms.Restarted(mechanisms.BinaryTree(4), (4,), 8)
    nodes = restarted.released_matrix()
    for separation in range(1, 8):
        schema = Participation(8, separation)
        truth = oracles.squared_sensitivity(nodes, schema)
        assert restarted.sensitivity_bound(schema) == (truth, True)


def test_schedule_of_document_000_runs_at_scale():
    starts = tuple(range(129, 3600, 1024))
    restarted = mechanisms.Restarted(mechanisms.BinaryTree(1024), starts, 3600)
    assert restarted.lengths == (129, 1024, 1024, 1024, 399)
    schema = Participation(3600, 300, 12)
    bound = restarted.sensitivity_bound(schema)
    assert bound.is_exact
    one_tree = mechanisms.BinaryTree(3600).sensitivity_bound(schema)
    assert bound.squared < one_tree.squared  # Fewer participations meet in one tree.


@pytest.mark.parametrize('starts, rounds, message', [
    ((3, 3), 8, r'starts=\(3, 3\): must increase within 1 .. 7'),
    ((0,), 8, 'must increase within'),
    ((8,), 8, 'must increase within'),
    ((1,), 8, 'base has 4 rounds: must be at least 7'),
])
def test_bad_schedules_are_refused(starts, rounds, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Restarted(mechanisms.BinaryTree(4), starts, rounds)


def test_fewer_rounds_keep_the_schedule():
    restarted = mechanisms.Restarted(mechanisms.BinaryTree(4), (4, 6), 9)
    assert restarted.with_rounds(6).starts == (4,)
    assert restarted.with_rounds(7).lengths == (4, 2, 1)
