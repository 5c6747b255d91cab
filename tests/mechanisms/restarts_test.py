"""Schedules of restarts; `conformance_test.py` and `fuzz_test.py` have what they release."""

from dpfl import Participation, mechanisms


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
