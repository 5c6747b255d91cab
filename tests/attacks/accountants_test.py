"""No epsilon of sampled releases is below the truth, in random cases.

Epsilons are held against lower bounds of delta, down to 1e-100. tests/accounting/oracle_test.py has
Gaussian releases.
"""

import math

import dp_accounting
import numpy as np
import pytest

from dpfl.accounting import events
from tests.accounting import plans
from tests.attacks import sampled_truth

# Tolerance of the logarithm of the lower bounds of delta, which are computed in float64.
_ROUNDING = 1e-6


def _delta(rng) -> float:
    if rng.random() < 0.2:
        return float(1 - 10 ** rng.uniform(-12, -0.1))
    return float(10 ** rng.uniform(-(100 if rng.random() < 0.3 else 16), -0.1))


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
        plans.poisson_event(q, noise_multiplier, rounds),
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
    epsilon = events.epsilon_of_event(plans.poisson_event(1e-3, 0.8, 1000), 1e-14, 'pld')
    assert epsilon > 3.0387 + 0.05
