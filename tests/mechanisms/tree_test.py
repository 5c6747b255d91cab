"""Trees against their definitions, at more rounds than others, and at published schemas."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.sensitivities import tree_sensitivity
from tests import oracles
from tests.sizes import exhaustive


def test_nodes_are_those_of_the_fewest_complete_subtrees():
    tree = mechanisms.BinaryTree(7)
    nodes = tree.released_matrix()
    # A tree over 4 rounds, one over 2, one over 1: 7 + 3 + 1 nodes.
    assert nodes.shape == (11, 7)
    assert sorted(nodes.sum(axis=1)) == [1] * 7 + [2] * 3 + [4]
    assert {tuple(row) for row in tree.strategy_matrix()} <= {tuple(row) for row in nodes}
    decoder = np.cumsum(np.linalg.inv(mechanisms.BinaryTree(13).strategy_matrix()), axis=0)
    assert set(np.unique(decoder.round(12))) == {0.0, 1.0}
    np.testing.assert_allclose(decoder.sum(axis=1), [bin(t).count('1') for t in range(1, 14)])


@pytest.mark.parametrize(
    'rounds, separation, count, expected',
    [
        (2000, 314, 6, 79),
        # Document 002, remark 3.2: evenly spaced rounds give 85 only.
        (1170, 207, 5, 87),
        (530, 55, 8, 182),
        (2350, 438, 5, 92),
        (2052, 342, 6, 118),
    ],
)
def test_known_squared_sensitivities(rounds, separation, count, expected):
    schema = Participation(rounds, separation, count)
    assert mechanisms.BinaryTree(rounds).sensitivity_bound(schema) == (expected, True)


@pytest.mark.parametrize('cases', [20, exhaustive(100)])
def test_random_schemas_of_more_rounds_against_brute_force(cases):
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        rounds = int(rng.integers(13, 25))
        schema = Participation(rounds, int(rng.integers(3, 9)), int(rng.integers(1, 6)))
        for released in ('nodes', 'prefix_sums'):
            tree = mechanisms.BinaryTree(rounds, released)
            truth = oracles.squared_sensitivity(tree.released_matrix(), schema)
            assert tree.sensitivity_bound(schema) == (pytest.approx(truth, rel=1e-12), True)


def _honaker_estimates(rounds: int) -> np.ndarray:
    """Prefix sums' noise as combinations of the nodes' noise, straight from the definition."""
    levels = range(rounds.bit_length())
    nodes = [(level, i) for level in levels for i in range(0, rounds - 2**level + 1, 2**level)]

    def estimate(level, start):
        weight = 1 / (2 - 0.5**level)
        row = weight * np.array([node == (level, start) for node in nodes])
        if level:
            half = 2 ** (level - 1)
            row += (1 - weight) * (estimate(level - 1, start) + estimate(level - 1, start + half))
        return row

    rows = []
    for end in range(1, rounds + 1):
        start, row = 0, np.zeros(len(nodes))
        for level in reversed(levels):
            if end >> level & 1:
                row += estimate(level, start)
                start += 2**level
        rows.append(row)
    return np.array(rows)


def test_honaker_noise_has_the_distribution_of_the_definition():
    for rounds in (1, 2, 3, 4, 7, 8, 13):
        decoder = _honaker_estimates(rounds)
        tree = mechanisms.HonakerTree(rounds)
        square = np.cumsum(np.linalg.inv(tree.strategy_matrix()), axis=0)
        np.testing.assert_allclose(square @ square.T, decoder @ decoder.T, atol=1e-12)
        # The estimates are unbiased: nodes of true counts give true prefix sums.
        sums = decoder @ mechanisms.tree.node_matrix(rounds)
        np.testing.assert_allclose(sums, np.tril(np.ones((rounds, rounds))), atol=1e-12)


@pytest.mark.parametrize('completed', [False, True])
def test_full_decoder_is_the_least_squares_solution(completed):
    tree = mechanisms.FullHonakerTree(13, completed)
    decoder = np.tril(np.ones((13, 13))) @ np.linalg.pinv(tree.released_matrix())
    np.testing.assert_allclose(tree.squared_error(), (decoder**2).sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize('limit', [tree_sensitivity._WORK_LIMIT, 5_000])
def test_sensitivities_of_all_first_rounds_share_their_work(limit, monkeypatch):
    """Tables are made once, given up or not, and each round adds two subtrees on average."""
    calls = []
    monkeypatch.setattr(tree_sensitivity, '_WORK_LIMIT', limit)
    for kind, name in (
        (tree_sensitivity._Subtrees, '_merged'),
        (tree_sensitivity._Subtrees, '_cost'),
        (tree_sensitivity._Patterns, '_add_uncoupled'),
        (tree_sensitivity._Patterns, '_add_coupled'),
    ):
        usual = getattr(kind, name)
        monkeypatch.setattr(
            kind,
            name,
            lambda *args, name=name, usual=usual: (calls.append(name), usual(*args))[1],
        )

    def work(rounds):
        tree_sensitivity._subtrees.cache_clear()
        tree_sensitivity._patterns.cache_clear()
        calls.clear()
        found = [
            mechanisms.BinaryTree(n).sensitivity_bound(Participation(n, 9)).is_exact for n in rounds
        ]
        return found[-1], {name: calls.count(name) for name in set(calls)}

    for most in (150, 300):
        exact, running = work(range(1, most + 1))
        once_exact, once = work([most])
        assert exact == once_exact == (limit > 5_000)
        assert running['_cost'] == once['_cost'] and running['_merged'] == once['_merged']
        assert running['_add_uncoupled'] < 2 * most
        assert running.get('_add_coupled', 0) < 2 * most
