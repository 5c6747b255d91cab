import numpy as np
import pytest
from scipy import linalg

from dpfl import Participation, mechanisms
from tests import oracles

_ROUNDS = 12
_SCHEDULES = 125  # of each base: 1,000 of those that are always exact


def _random_banded(rounds, bands):
    matrix = np.random.default_rng(3).normal(size=(rounds, rounds))
    matrix[np.diag_indices(rounds)] = 1.0
    return mechanisms.Banded.from_matrix(matrix, bands)


_ALWAYS_EXACT = {
    'tree': mechanisms.BinaryTree(_ROUNDS),
    'tree_prefix_sums': mechanisms.BinaryTree(_ROUNDS, released='prefix_sums'),
    'honaker_tree': mechanisms.HonakerTree(_ROUNDS),
    'blt': mechanisms.Blt(_ROUNDS, [0.9, 0.4], [0.2, 0.3]),
    'gaussian': mechanisms.Identity(_ROUNDS),
    'banded_toeplitz': mechanisms.BandedToeplitz(_ROUNDS, [1.0, 0.5, 0.2]),
    'banded_inverse': mechanisms.BandedInverse.square_root(_ROUNDS, 4),
    'one_band': _random_banded(_ROUNDS, 1),
}
_SOMETIMES_EXACT = {
    'banded': _random_banded(_ROUNDS, 3),
    'banded_toeplitz_not_monotone': mechanisms.BandedToeplitz(_ROUNDS, [1.0, -0.5, 0.7]),
    'honaker_tree_prefix_sums': mechanisms.HonakerTree(_ROUNDS, released='prefix_sums'),
    'blt_not_monotone': mechanisms.Blt(_ROUNDS, [0.9], [1.5]),
    'lagged_blt': mechanisms.LaggedBlt(_ROUNDS, [0.8], [0, 2], [1, -0.1], [[-0.3], [0.1]]),
    'banded_inverse_of_both_signs': mechanisms.BandedInverse(_ROUNDS, [1.0, 0.6, -0.3]),
}


def _random_cases(base):
    rng = np.random.default_rng(0)
    for _ in range(_SCHEDULES):
        rounds = int(rng.integers(2, _ROUNDS))
        starts = np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1
        schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 6)))
        yield mechanisms.Restarted(base, starts, rounds), schema


@pytest.mark.parametrize('base', _ALWAYS_EXACT.values(), ids=_ALWAYS_EXACT)
def test_random_schedules_equal_brute_force(base):
    for restarted, schema in _random_cases(base):
        bound = restarted.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(restarted.released_matrix(), schema)
        assert bound.is_exact
        assert bound.squared == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize('base', _SOMETIMES_EXACT.values(), ids=_SOMETIMES_EXACT)
def test_random_schedules_are_never_below_brute_force(base):
    exact = 0
    for restarted, schema in _random_cases(base):
        bound = restarted.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(restarted.released_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-12)
        exact += bound.is_exact
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)
        if base.name in ('banded', 'banded_toeplitz') and base.bands <= schema.min_separation:
            assert bound.is_exact
    assert exact > _SCHEDULES / 3


def test_the_bound_without_a_gram_matrix_is_not_below_brute_force(monkeypatch):
    monkeypatch.setattr('dpfl.mechanisms.restarts._MOST_COUPLED_ROUNDS', 0)
    for name in ('blt_not_monotone', 'honaker_tree_prefix_sums'):
        exact = 0
        for restarted, schema in _random_cases(_SOMETIMES_EXACT[name]):
            bound = restarted.sensitivity_bound(schema)
            truth = oracles.squared_sensitivity(restarted.released_matrix(), schema)
            assert bound.squared >= truth * (1 - 1e-12)
            if bound.is_exact:
                assert bound.squared == pytest.approx(truth, rel=1e-12)
                exact += schema.min_separation == 1
        assert exact  # Without a separation the segments do not constrain each other.


def test_a_client_at_a_restart_is_counted_in_both_segments():
    # Without coupling of the segments: rounds 3 and 4 in spite of a separation of 3.
    restarted = mechanisms.Restarted(mechanisms.BinaryTree(4), (4,), 8)
    nodes = restarted.released_matrix()
    for separation in range(1, 8):
        schema = Participation(8, separation)
        truth = oracles.squared_sensitivity(nodes, schema)
        assert restarted.sensitivity_bound(schema) == (truth, True)


_BASES_AT_SCALE = {
    'tree': mechanisms.BinaryTree(1024),
    'tree_prefix_sums': mechanisms.BinaryTree(1024, released='prefix_sums'),
    'honaker_tree': mechanisms.HonakerTree(1024),
    'blt': mechanisms.Blt(1024, [0.999, 0.9, 0.5], [0.02, 0.1, 0.3]),
    'gaussian': mechanisms.Identity(1024),
    'banded_toeplitz': mechanisms.BandedToeplitz.fichtenberger(1024, 100),
}


@pytest.mark.parametrize('base', _BASES_AT_SCALE.values(), ids=_BASES_AT_SCALE)
@pytest.mark.parametrize('separation, count', [(1, 10), (1, 100), (100, 20), (300, 12), (300, 14)])
def test_schedule_of_document_000_over_4000_rounds_is_exact(base, separation, count):
    restarted = mechanisms.Restarted.every(base, rounds=4000)
    assert restarted.starts == (129, 1153, 2177, 3201)
    bound = restarted.sensitivity_bound(Participation(4000, separation, count))
    assert bound.is_exact
    never = base.with_rounds(4000).sensitivity_bound(Participation(4000, separation, count))
    assert bound.squared <= never.squared * (1 + 1e-12)  # Fewer meet in one segment.


def test_restarts_at_scale_equal_an_independent_recursion():
    # Over rounds, not over segments: the largest sum over pairs of a banded Gram matrix, where
    # a participation meets the one before it only (the bands end before the one before that).
    base = mechanisms.BandedToeplitz(1024, np.linspace(1, 0.1, 30))
    restarted = mechanisms.Restarted.every(base, rounds=2500)
    matrix = restarted.strategy_matrix()
    gram = matrix.T @ matrix
    b, k, n = 20, 60, 2500
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
    assert restarted.starts == (129, 1153)
    assert restarted.lengths == (129, 1024, 847)
    assert restarted.rounds == 2000
    matrix = mechanisms.Restarted.every(mechanisms.BinaryTree(8), 2, 3).strategy_matrix()
    # Rounds 0 1 2 | 3 4 5 | 6 7: no entry of a later segment in the columns of an earlier one.
    assert not matrix[3:, :3].any() and not matrix[6:, 3:6].any()
    assert matrix[1, 0] and matrix[4, 3] and matrix[7, 6]


def test_a_schedule_that_begins_after_the_run_never_restarts():
    assert mechanisms.Restarted.every(mechanisms.BinaryTree(129)).starts == ()


@pytest.mark.parametrize(
    'arguments, message',
    [
        ((-1, 4), 'first=-1: must be an integer >= 0'),
        ((1, 0), 'every=0: must be an integer >= 1'),
        ((1, float('nan')), 'every=nan: must be an integer'),
        ((1, 4, 0), 'rounds=0: must be an integer >= 1'),
        ((9, 4, 40), 'base: has 8 rounds, must have at least 10'),
    ],
)
def test_bad_schedules_of_equal_segments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Restarted.every(mechanisms.BinaryTree(8), *arguments)


@pytest.mark.parametrize(
    'starts, rounds, message',
    [
        ((3, 3), 8, r'starts=\(3, 3\): must increase within 1 .. 7'),
        ((0,), 8, 'starts=0: must be an integer >= 1'),
        ((8,), 8, 'must increase within'),
        ((1,), 8, 'base: has 4 rounds, must have at least 7'),
    ],
)
def test_bad_schedules_are_refused(starts, rounds, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Restarted(mechanisms.BinaryTree(4), starts, rounds)


@pytest.mark.parametrize(
    'starts, message',
    [
        ((2.5,), 'starts=2.5: must be an integer >= 1'),
        ((float('nan'),), 'starts=nan: must be an integer'),
        (3, 'starts=3: must be a list of integers'),
        (('2',), 'starts=2: must be an integer'),
    ],
)
def test_starts_that_are_no_integers_are_refused(starts, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Restarted(mechanisms.BinaryTree(8), starts, 8)


@pytest.mark.parametrize('base', [3, None, 'tree', {'mechanism': 'tree', 'rounds': 8}, [1]])
def test_a_base_that_is_no_mechanism_is_refused(base):
    with pytest.raises(ValueError, match='base=.*: must be a mechanism'):
        mechanisms.Restarted(base, (2,), 8)


_NESTED = {**_ALWAYS_EXACT, **_SOMETIMES_EXACT}


@pytest.mark.parametrize('base', _NESTED.values(), ids=_NESTED)
def test_restarts_of_restarts_equal_brute_force(base):
    rng = np.random.default_rng(4)
    for _ in range(30):
        rounds = int(rng.integers(2, 9))
        inner_starts, outer_starts = (
            np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1 for _ in range(2)
        )
        inner = mechanisms.Restarted(base, inner_starts, rounds)
        nested = mechanisms.Restarted(inner, outer_starts, rounds)
        # Block by block, straight from the definition.
        blocks = [inner.with_rounds(length) for length in np.diff([0, *outer_starts, rounds])]
        np.testing.assert_array_equal(
            nested.strategy_matrix(),
            linalg.block_diag(*(block.strategy_matrix() for block in blocks)),
        )
        released = linalg.block_diag(*(block.released_matrix() for block in blocks))
        schema = Participation(rounds, int(rng.integers(1, 4)), int(rng.integers(1, 5)))
        bound = nested.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(released, schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)
        assert mechanisms.from_dict(nested.to_dict()) == nested


def test_restarts_of_restarts_are_one_schedule_of_nodes():
    inner = mechanisms.Restarted(mechanisms.BinaryTree(8), (3,), 8)
    nested = mechanisms.Restarted(inner, (4,), 8)
    assert nested == mechanisms.Restarted(mechanisms.BinaryTree(8), (3, 4, 7), 8)
    assert nested.describe_release().startswith('The noise starts afresh 3 times.')
    assert nested.sensitivity_bound(Participation(8)).is_exact


def test_fewer_rounds_keep_the_schedule():
    restarted = mechanisms.Restarted(mechanisms.BinaryTree(4), (4, 6), 9)
    assert restarted.with_rounds(6).starts == (4,)
    assert restarted.with_rounds(7).lengths == (4, 2, 1)
