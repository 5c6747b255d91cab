"""Schedules of restarts, and restarts at sizes of which brute force knows nothing."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms


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
    restarted = mechanisms.Restarted.every(mechanisms.BinaryTree(1024), rounds=4000)
    assert restarted.starts == (129, 1153, 2177, 3201)
    assert restarted.lengths == (129, 1024, 1024, 1024, 799)
    assert restarted.sensitivity_is_exact(Participation(4000, 300, 14))
    matrix = mechanisms.Restarted.every(mechanisms.BinaryTree(8), 2, 3).strategy_matrix()
    # Rounds 0 1 2 | 3 4 5 | 6 7: no entry of a later segment in the columns of an earlier one.
    assert not matrix[3:, :3].any() and not matrix[6:, 3:6].any()
    assert matrix[1, 0] and matrix[4, 3] and matrix[7, 6]
    # A schedule that begins after the run never restarts.
    assert mechanisms.Restarted.every(mechanisms.BinaryTree(129)).starts == ()


def test_restarts_of_restarts_are_one_schedule():
    inner = mechanisms.Restarted(mechanisms.BinaryTree(8), (3,), 8)
    nested = mechanisms.Restarted(inner, (4,), 8)
    assert nested == mechanisms.Restarted(mechanisms.BinaryTree(8), (3, 4, 7), 8)
    assert nested.describe_release().startswith('The noise starts afresh 3 times.')
    # Fewer rounds keep the schedule.
    assert nested.with_rounds(4).starts == (3,)
    assert nested.with_rounds(5).lengths == (3, 1, 1)
