import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.sensitivities import tree_sensitivity
from tests import oracles


def test_prefix_sums_are_the_fewest_subtrees():
    decoder = np.cumsum(np.linalg.inv(mechanisms.BinaryTree(13).strategy_matrix()), axis=0)
    assert set(np.unique(decoder.round(12))) == {0.0, 1.0}
    np.testing.assert_allclose(decoder.sum(axis=1), [bin(t).count('1') for t in range(1, 14)])


def test_released_nodes_are_the_forest_of_complete_subtrees():
    nodes = mechanisms.BinaryTree(7).released_matrix()
    # A tree over 4 rounds, one over 2, one over 1: 7 + 3 + 1 nodes.
    assert nodes.shape == (11, 7)
    assert sorted(nodes.sum(axis=1)) == [1] * 7 + [2] * 3 + [4]


def test_strategy_rows_are_among_the_released_nodes():
    tree = mechanisms.BinaryTree(12)
    nodes = {tuple(row) for row in tree.released_matrix()}
    assert {tuple(row) for row in tree.strategy_matrix()} <= nodes


@pytest.mark.parametrize(
    'rounds, separation, count, expected',
    [
        (2000, 314, 6, 79),
        (1170, 207, 5, 87),
        (530, 55, 8, 182),
        (2350, 438, 5, 92),
        (2052, 342, 6, 118),
    ],
)
def test_known_squared_sensitivities(rounds, separation, count, expected):
    schema = Participation(rounds, separation, count)
    assert mechanisms.BinaryTree(rounds).sensitivity_bound(schema) == (expected, True)


def test_rounds_evenly_spaced_are_not_always_the_worst():
    # Document 002, remark 3.2 gives a lower bound only: 85 here, where the worst pattern has 87.
    schema = Participation(1170, 207, 5)
    forest = tree_sensitivity.Forest.of(1170)
    assert tree_sensitivity._evenly_spaced(schema, forest) == 85


def test_random_schemas_of_more_rounds_against_brute_force():
    rng = np.random.default_rng(1)
    for _ in range(60):
        rounds = int(rng.integers(13, 25))
        schema = Participation(rounds, int(rng.integers(3, 9)), int(rng.integers(1, 6)))
        nodes = mechanisms.BinaryTree(rounds).released_matrix()
        bound = mechanisms.BinaryTree(rounds).sensitivity_bound(schema)
        assert bound == (oracles.squared_sensitivity(nodes, schema), True)


def test_bound_that_replaces_the_recursion_is_an_upper_bound(monkeypatch):
    monkeypatch.setattr(tree_sensitivity, '_WORK_LIMIT', 0)
    exact = 0
    for rounds in range(1, 13):
        tree = mechanisms.BinaryTree(rounds)
        for schema in oracles.small_schemas(rounds):
            bound = tree.sensitivity_bound(schema)
            truth = oracles.squared_sensitivity(tree.released_matrix(), schema)
            assert bound.squared >= truth
            assert not bound.is_exact or bound.squared == truth
            exact += bound.is_exact
    assert 0 < exact < 650  # Some schemas need the recursion, some do not.


def test_without_separation_every_round_counts():
    schema = Participation(64)
    tree = mechanisms.BinaryTree(64)
    everything = tree.released_matrix().sum(axis=1)
    assert tree.sensitivity_bound(schema) == (everything @ everything, True)


@pytest.mark.parametrize('rounds', range(1, 13))
def test_prefix_sums_reveal_less_than_the_nodes_and_exactly_what_c_does(rounds):
    nodes = mechanisms.BinaryTree(rounds)
    prefixes = mechanisms.BinaryTree(rounds, released='prefix_sums')
    for schema in oracles.small_schemas(rounds):
        bound = prefixes.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(prefixes.strategy_matrix(), schema)
        assert bound == (truth, True)
        assert bound.squared <= nodes.sensitivity_bound(schema).squared


def _honaker_estimates(rounds: int) -> np.ndarray:
    """Prefix sums' noise as combinations of the nodes' noise, straight from the definition."""
    levels = range(rounds.bit_length())
    index = {
        node: i
        for i, node in enumerate(
            (level, start)
            for level in levels
            for start in range(0, rounds - 2**level + 1, 2**level)
        )
    }

    def estimate(level, start):
        row = np.zeros(len(index))
        weight = 1 / (2 - 0.5**level)
        row[index[level, start]] = weight
        if level:
            half = 2 ** (level - 1)
            row += (1 - weight) * (estimate(level - 1, start) + estimate(level - 1, start + half))
        return row

    rows = []
    for end in range(1, rounds + 1):
        start, row = 0, np.zeros(len(index))
        for level in reversed(levels):
            if end >> level & 1:
                row += estimate(level, start)
                start += 2**level
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize('rounds', [1, 2, 3, 4, 7, 8, 13])
def test_honaker_noise_has_the_distribution_of_the_definition(rounds):
    decoder = _honaker_estimates(rounds)
    tree = mechanisms.HonakerTree(rounds)
    square = np.cumsum(np.linalg.inv(tree.strategy_matrix()), axis=0)
    np.testing.assert_allclose(square @ square.T, decoder @ decoder.T, atol=1e-12)
    # The estimates are unbiased: nodes of true counts give true prefix sums.
    nodes = np.array([row for row in mechanisms.tree.node_matrix(rounds)])
    np.testing.assert_allclose(decoder @ nodes, np.tril(np.ones((rounds, rounds))), atol=1e-12)


def test_honaker_error_is_below_the_plain_tree_and_above_the_full_decoder():
    plain, honaker, full = (
        kind(100).squared_error()
        for kind in (mechanisms.BinaryTree, mechanisms.HonakerTree, mechanisms.FullHonakerTree)
    )
    assert (honaker <= plain + 1e-12).all() and honaker.sum() < 0.9 * plain.sum()
    assert (full <= honaker + 1e-12).all() and full.sum() < 0.9 * honaker.sum()


@pytest.mark.parametrize('completed', [False, True])
def test_full_decoder_is_the_least_squares_solution(completed):
    tree = mechanisms.FullHonakerTree(13, completed)
    nodes = tree.released_matrix()
    decoder = np.tril(np.ones((13, 13))) @ np.linalg.pinv(nodes)
    np.testing.assert_allclose(tree.squared_error(), (decoder**2).sum(axis=1), rtol=1e-10)


def test_full_decoder_of_document_002_table_3():
    # Its two loss columns are interchanged in print: the first is the max loss.
    tree = mechanisms.FullHonakerTree(2052)
    schema = Participation(2052, 342, 6)
    assert tree.sensitivity_bound(schema) == (118, True)
    assert round(tree.max_loss(schema), 2) == 14.98
    assert round(tree.rms_loss(schema), 2) == 12.47
    completed = mechanisms.FullHonakerTree(2052, completed=True)
    assert round(completed.max_loss(schema), 2) == 16.62
    assert round(completed.rms_loss(schema), 2) == 13.96
