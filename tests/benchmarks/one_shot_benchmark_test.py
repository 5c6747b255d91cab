"""One-shot estimates of the Gaussian mechanism are about the published ones."""

import numpy as np
import pytest

from benchmarks import one_shot
from dpfl.accounting import gaussian


@pytest.mark.parametrize('place', range(3))
@pytest.mark.standard
def test_estimates_are_about_the_published_ones(place):
    values = one_shot.published()
    row = values['rows'][place]
    exact = gaussian.exact_epsilon(1 / row['noise_multiplier'], values['delta'])
    assert exact == pytest.approx(row['epsilon'], rel=5e-3)
    found = one_shot.estimates(row['noise_multiplier'], 200, 10**5, values['delta'], 12)
    # A score has deviation 1, so the mean over 2400 of them has 0.02; epsilon grows about 5 times
    # as fast as mu here. Half of the runs may be off by more, none of their median.
    assert np.median([each.epsilon for each in found]) == pytest.approx(
        row['epsilon_estimate'], abs=0.5
    )
