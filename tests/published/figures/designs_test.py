import math

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.published.figures import designs
from tests import oracles

_SCHEMA = Participation(12, 3, 3)


def _made():
    return [
        designs.banded(12, 3).mechanism,
        designs.blt(12, 3, 3, 2, 'rms').mechanism,
        mechanisms.BinaryTree(12),
    ]


@pytest.mark.parametrize('kind', ['rms', 'max'])
def test_losses_are_those_of_the_definition(kind):
    for mechanism in _made()[:2]:
        matrix = mechanism.strategy_matrix()
        errors = np.linalg.norm(np.tril(np.ones((12, 12))) @ np.linalg.inv(matrix), axis=1)
        error = errors.max() if kind == 'max' else math.sqrt((errors**2).mean())
        sensitivity = math.sqrt(oracles.squared_sensitivity(matrix, _SCHEMA))
        loss = designs.Design(mechanism).loss(_SCHEMA, kind)
        assert loss == pytest.approx(error * sensitivity)


@pytest.mark.parametrize('kind', ['rms', 'max'])
@pytest.mark.parametrize('rounds', [1, 5, 12])
def test_fewer_rounds_are_the_mechanism_of_so_many_rounds(kind, rounds):
    schema = Participation(rounds, 3)
    for mechanism in _made():
        short = mechanism.with_rounds(rounds)
        loss = designs.Design(mechanism).loss(schema, kind)
        assert loss == pytest.approx(getattr(short, f'{kind}_loss')(schema))


def test_a_design_is_made_once():
    assert designs.banded(12, 3) is designs.banded(12, 3)
    assert designs.full_honaker_tree(7).mechanism == mechanisms.FullHonakerTree(7)
