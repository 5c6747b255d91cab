import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms import toeplitz
from tests import oracles


def test_precondition_of_the_theorem_is_checked():
    assert toeplitz.is_monotone(np.array([1.0, 1.0, 0.5, 0.0]))
    assert not toeplitz.is_monotone(np.array([1.0, 0.4, 0.5]))
    assert not toeplitz.is_monotone(np.array([1.0, 0.5, -0.1]))


def test_the_theorem_would_be_wrong_without_its_precondition():
    # Rounds 0 and b are not the worst pattern for increasing coefficients.
    coefficients = np.array([1.0, 0.0, 0.0, 1.0])
    schema = Participation(4, min_separation=1, max_participations=2)
    bound = toeplitz.sensitivity(coefficients, schema)
    truth = oracles.squared_sensitivity(toeplitz.matrix(coefficients), schema)
    evenly_spaced = toeplitz.matrix(coefficients)[:, [0, 1]].sum(axis=1)
    assert evenly_spaced @ evenly_spaced < truth <= bound.squared
    assert not bound.is_exact


def test_random_coefficients_are_never_below_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(150):
        rounds = int(rng.integers(1, 8))
        coefficients = rng.normal(size=rounds)
        if rng.random() < 0.4:
            coefficients = np.sort(np.abs(coefficients))[::-1]
        schema = Participation(rounds, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        bound = toeplitz.sensitivity(coefficients, schema)
        truth = oracles.squared_sensitivity(toeplitz.matrix(coefficients), schema)
        assert bound.squared >= truth * (1 - 1e-12)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-12)


def test_blt_coefficients_by_hand():
    blt = mechanisms.Blt(4, decay=[0.5, 0.25], scale=[0.4, 0.2])
    np.testing.assert_allclose(blt.coefficients(), [1, 0.6, 0.25, 0.1125])


@pytest.mark.parametrize('decay, scale, message', [
    ([0.5], [0.1, 0.2], 'decay has 1 and scale 2 entries'),
    ([], [], 'decay has 0 and scale 0 entries'),
    ([1.1], [0.1], r'decay=\[1.1\]: each entry must be within \[0, 1\]'),
    ([-0.1], [0.1], 'each entry must be within'),
    ([float('nan')], [0.1], 'decay=.*: must be a list of finite numbers'),
    ([0.5], ['x'], 'scale=.*: must be a list of numbers'),
])
def test_bad_parameters_are_named(decay, scale, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.Blt(5, decay, scale)
