import numpy as np
import pytest
from scipy import linalg

from dpfl import Participation, mechanisms
from tests import oracles

_ROUNDS = 12
_ALWAYS_EXACT = {
    'tree': mechanisms.BinaryTree(_ROUNDS),
    'tree_prefix_sums': mechanisms.BinaryTree(_ROUNDS, released='prefix_sums'),
    'honaker_tree': mechanisms.HonakerTree(_ROUNDS),
    'blt': mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3]),
    'gaussian': mechanisms.Identity(_ROUNDS),
    'banded_toeplitz': mechanisms.BandedToeplitz(_ROUNDS, [1.0, 0.5, 0.2]),
    'banded_inverse': mechanisms.BandedInverse.square_root(_ROUNDS, 4),
    'one_band': mechanisms.Banded(np.linspace(0.5, 2, _ROUNDS)[:, None]),
}


@pytest.mark.parametrize('schedules', [20, pytest.param(125, marks=pytest.mark.standard)])
@pytest.mark.parametrize('base', _ALWAYS_EXACT.values(), ids=_ALWAYS_EXACT)
def test_random_schedules_equal_brute_force(base, schedules):
    rng = np.random.default_rng(schedules)
    for _ in range(schedules):
        rounds = int(rng.integers(2, _ROUNDS))
        starts = np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1
        schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 6)))
        restarted = mechanisms.Restarted(base, starts, rounds)
        bound = restarted.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(restarted.released_matrix(), schema)
        assert bound.is_exact
        assert bound.squared == pytest.approx(truth, rel=1e-12)


def test_segments_apart_are_exact_without_a_separation(monkeypatch):
    # Without a separation the segments do not constrain each other.
    monkeypatch.setattr('dpfl.mechanisms.restarts._MOST_COUPLED_ROUNDS', 0)
    base = mechanisms.Blt(9, [0.9], [1.5])
    for count in range(1, 6):
        restarted, schema = mechanisms.Restarted(base, (2, 7), 9), Participation(9, 1, count)
        bound = restarted.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(restarted.released_matrix(), schema)
        assert bound.is_exact and bound.squared == pytest.approx(truth, rel=1e-12)


_BASES_AT_SCALE = {
    'tree': mechanisms.BinaryTree(1024),
    'tree_prefix_sums': mechanisms.BinaryTree(1024, released='prefix_sums'),
    'honaker_tree': mechanisms.HonakerTree(1024),
    'blt': mechanisms.Blt(1024, [0.999, 0.9, 0.5], [0.02, 0.1, 0.3]),
    'gaussian': mechanisms.Identity(1024),
    'banded_toeplitz': mechanisms.BandedToeplitz.fichtenberger(1024, 100),
}


@pytest.mark.standard
@pytest.mark.parametrize('base', _BASES_AT_SCALE.values(), ids=_BASES_AT_SCALE)
def test_schedule_of_document_000_over_4000_rounds_is_exact(base):
    restarted = mechanisms.Restarted.every(base, rounds=4000)
    assert restarted.starts == (129, 1153, 2177, 3201)
    for separation, count in ((1, 10), (1, 100), (100, 20), (300, 12), (300, 14)):
        bound = restarted.sensitivity_bound(Participation(4000, separation, count))
        assert bound.is_exact
        never = base.with_rounds(4000).sensitivity_bound(Participation(4000, separation, count))
        assert bound.squared <= never.squared * (1 + 1e-12)  # Fewer meet in one segment.


def test_restarts_at_scale_equal_an_independent_recursion():
    # Over rounds, not over segments: the largest sum over pairs of a banded Gram matrix, where
    # a participation meets the one before it only (the bands end before the one before that).
    n, b, k = 600, 20, 20
    base = mechanisms.BandedToeplitz(256, np.linspace(1, 0.1, 30))
    restarted = mechanisms.Restarted.every(base, 100, 256, n)
    matrix = restarted.strategy_matrix()
    gram = matrix.T @ matrix
    last = np.diag(gram).copy()  # Best with the last participation in each round.
    best = last.max()
    for _ in range(k - 1):
        earlier = np.maximum.accumulate(last)
        longer = np.full(n, -np.inf)
        for t in range(b, n):
            near = np.arange(max(t - 29, 0), t - b + 1)
            options = last[near] + 2 * gram[near, t]
            far = earlier[t - 30] if t >= 30 else -np.inf
            longer[t] = gram[t, t] + max(options.max(), far)
        last = longer
        best = max(best, last.max())
    bound = restarted.sensitivity_bound(Participation(n, b, k))
    assert bound.is_exact
    assert bound.squared == pytest.approx(best, rel=1e-10)


def test_a_restart_comes_after_the_round_of_the_schedule():
    # Document 000, algorithm 1: round 128 is the last one of the first tree.
    restarted = mechanisms.Restarted.every(mechanisms.BinaryTree(2000))
    assert (restarted.starts, restarted.lengths) == ((129, 1153), (129, 1024, 847))
    assert restarted.rounds == 2000
    matrix = mechanisms.Restarted.every(mechanisms.BinaryTree(8), 2, 3).strategy_matrix()
    # Rounds 0 1 2 | 3 4 5 | 6 7: no entry of a later segment in the columns of an earlier one.
    assert not matrix[3:, :3].any() and not matrix[6:, 3:6].any()
    assert matrix[1, 0] and matrix[4, 3] and matrix[7, 6]
    # A schedule that begins after the run never restarts.
    assert mechanisms.Restarted.every(mechanisms.BinaryTree(129)).starts == ()


def test_restarts_of_restarts_are_those_of_the_definition():
    rng = np.random.default_rng(4)
    for base in _ALWAYS_EXACT.values():
        rounds = int(rng.integers(4, 9))
        inner_starts, outer_starts = (
            np.flatnonzero(rng.random(rounds - 1) < 0.4) + 1 for _ in range(2)
        )
        inner = mechanisms.Restarted(base, inner_starts, rounds)
        nested = mechanisms.Restarted(inner, outer_starts, rounds)
        # Block by block.
        blocks = [inner.with_rounds(length) for length in np.diff([0, *outer_starts, rounds])]
        expected = linalg.block_diag(*(block.strategy_matrix() for block in blocks))
        np.testing.assert_array_equal(nested.strategy_matrix(), expected)
        released = linalg.block_diag(*(block.released_matrix() for block in blocks))
        schema = Participation(rounds, int(rng.integers(1, 4)), int(rng.integers(1, 5)))
        truth = oracles.squared_sensitivity(released, schema)
        assert nested.sensitivity_bound(schema).squared == pytest.approx(truth, rel=1e-12)
        assert mechanisms.from_dict(nested.to_dict()) == nested


def test_restarts_of_restarts_are_one_schedule():
    inner = mechanisms.Restarted(mechanisms.BinaryTree(8), (3,), 8)
    nested = mechanisms.Restarted(inner, (4,), 8)
    assert nested == mechanisms.Restarted(mechanisms.BinaryTree(8), (3, 4, 7), 8)
    assert nested.describe_release().startswith('The noise starts afresh 3 times.')
    assert nested.sensitivity_bound(Participation(8)).is_exact
    # Fewer rounds keep the schedule.
    assert nested.with_rounds(4).starts == (3,)
    assert nested.with_rounds(5).lengths == (3, 1, 1)
