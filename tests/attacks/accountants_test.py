"""No epsilon of sampled releases and no sensitivity is below the truth, in random cases.

Epsilons are held against lower bounds of delta, down to 1e-100; sensitivities against brute force
over patterns and signs in rational numbers. tests/accounting/oracle_test.py has Gaussian releases.
"""

import fractions
import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from dpfl import Participation
from dpfl.accounting import events
from tests import oracles
from tests.attacks import sampled_truth
from tests.mechanisms import random_members

# Tolerance of the logarithm of the lower bounds of delta, which are computed in float64.
_ROUNDING = 1e-6


def _delta(rng) -> float:
    if rng.random() < 0.2:
        return float(1 - 10 ** rng.uniform(-12, -0.1))
    return float(10 ** rng.uniform(-(100 if rng.random() < 0.3 else 16), -0.1))


def _poisson(q, noise_multiplier, rounds):
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    one = dp_accounting.PoissonSampledDpEvent(q, release)
    return dp_accounting.SelfComposedDpEvent(one, rounds)


@pytest.mark.exhaustive
@pytest.mark.parametrize('case', range(2))
def test_no_epsilon_of_samples_is_below_the_truth(case):
    rng = np.random.default_rng(case)
    rounds = int(10 ** rng.uniform(0, 3))
    noise_multiplier = float(10 ** rng.uniform(-0.7, 1.5))
    population = int(10 ** rng.uniform(1, 7))
    cohort = int(rng.integers(1, max(2, population // 2)) ** rng.uniform(0.3, 1))
    q, delta = cohort / population, _delta(rng)
    # Without replacement the others all have the update that is opposite to the client's: that
    # too moves a sum by all of the sensitivity, with probability cohort / population.
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    fixed = dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, release)
    for event in (
        _poisson(q, noise_multiplier, rounds),
        dp_accounting.SelfComposedDpEvent(fixed, rounds),
    ):
        for method in events.methods_for(event):
            bound = events.bound(event, delta, method)
            assert math.isfinite(bound.epsilon)
            least = sampled_truth.least_log_delta(
                q, noise_multiplier, rounds, bound.epsilon, math.log(delta)
            )
            assert least <= math.log(delta) + _ROUNDING, (event, method, bound)


@pytest.mark.standard
def test_the_composition_of_dp_accounting_is_found_below_the_truth_at_tiny_deltas():
    # Its privacy loss distribution gives 3.0387 at 1e-14 for these samples.
    least = sampled_truth.least_log_delta(1e-3, 0.8, 1000, 3.0387, math.log(1e-14))
    assert least > math.log(1e-14) + 0.3
    epsilon = events.epsilon_of_event(_poisson(1e-3, 0.8, 1000), 1e-14, 'pld')
    assert epsilon > 3.0387 + 0.05


@pytest.mark.parametrize(
    'noise_multiplier, rounds, epsilon', [(1.0, 1, 2.0), (5.0, 20, 3.0), (10.0, 100, 8.0)]
)
def test_deltas_from_below_are_close_to_the_curve_where_all_are_sampled(
    noise_multiplier, rounds, epsilon
):
    mu = math.sqrt(rounds) / noise_multiplier
    tails = stats.norm.sf([epsilon / mu - mu / 2, epsilon / mu + mu / 2])
    exact = math.log(tails[0] - math.exp(epsilon) * tails[1])
    least = sampled_truth.least_log_delta(1 - 1e-12, noise_multiplier, rounds, epsilon, exact)
    assert exact - 0.05 < least <= exact + 1e-6


def _exact_squared_sensitivity(matrix, schema) -> fractions.Fraction:
    """Largest squared norm over admitted patterns and signs, in rational numbers."""
    columns = [[fractions.Fraction(float(value)) for value in column] for column in matrix.T]
    others = (1,) if (matrix >= 0).all() else (1, -1)
    squares = []
    for pattern in oracles.patterns(schema):
        rows = list(zip(*(columns[t] for t in pattern), strict=True))
        for signs in itertools.product((1,), *[others] * (len(pattern) - 1)):
            sums = (sum(a * b for a, b in zip(signs, row, strict=True)) for row in rows)
            squares.append(sum(value**2 for value in sums))
    return max(squares)


@pytest.mark.parametrize('cases', [20, pytest.param(300, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    'make',
    [
        *(random_members.tree, random_members.full_honaker_tree, random_members.banded),
        *(random_members.banded_toeplitz, random_members.banded_inverse, random_members.blt),
        *(random_members.monotone_blt, random_members.block_blt, random_members.column_scaled),
        *(random_members.column_scaled_block_blt, random_members.restarted),
        random_members.restarted_blt,
    ],
    ids=lambda make: make.__name__,
)
def test_no_sensitivity_is_below_the_truth_by_any_digit(make, cases):
    rng = np.random.default_rng(cases)
    for _ in range(cases):
        rounds = int(rng.integers(1, 7))
        mechanism = make(rng, rounds)
        schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 5)))
        truth = _exact_squared_sensitivity(mechanism.released_matrix(), schema)
        squared = mechanism.sensitivity_bound(schema).squared
        assert fractions.Fraction(squared) >= truth, (mechanism, schema)
