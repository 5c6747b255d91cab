import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.auditing.worst_pattern import worst_pattern
from tests import mechanism_cases, oracles

_CASES = (
    'gaussian',
    'tree',
    'honaker_tree',
    'full_honaker_tree',
    'restarted_tree',
    'banded_with_negative_entries',
    'banded_inverse_with_negative_entries',
    'blt_with_negative_entries',
)


def _is_admitted(pattern, schema):
    rounds = np.flatnonzero(pattern)
    return rounds.size <= schema.count and (np.diff(rounds) >= schema.min_separation).all()


@pytest.mark.parametrize('name', _CASES)
def test_the_pattern_is_the_worst_of_all(name):
    matrix = mechanism_cases.FACTORIES[name](6).strategy_matrix()
    for schema in [Participation(6), Participation(6, 2), Participation(6, 2, 2)]:
        u = worst_pattern(matrix, schema)
        assert set(u) <= {-1.0, 0.0, 1.0}
        assert _is_admitted(u, schema)
        largest = oracles.squared_sensitivity(matrix, schema)
        assert (matrix @ u) @ (matrix @ u) == pytest.approx(largest, rel=1e-9)


def test_participations_move_to_the_restarts():
    schema = Participation(64, 16)
    mechanism = mechanisms.Restarted(mechanisms.Blt(64, [0.9], [0.3]), (20, 40), 64)
    u = worst_pattern(mechanism.strategy_matrix(), schema)
    assert mechanism.sensitivity_is_exact(schema)
    reached = np.linalg.norm(mechanism.strategy_matrix() @ u)
    assert reached == pytest.approx(mechanism.sensitivity(schema), rel=1e-9)
