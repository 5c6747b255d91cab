"""One-shot estimates of the Gaussian mechanism are about the published ones."""

import numpy as np
import pytest

from benchmarks import one_shot
from dpfl.accounting import gaussian_curve


@pytest.mark.parametrize('place', range(3))
def test_estimates_are_about_the_published_ones(place):
    values = one_shot.published()
    row = values['rows'][place]
    exact = gaussian_curve.epsilon(1 / row['noise_multiplier'], values['delta'])
    assert exact == pytest.approx(row['epsilon'], rel=5e-3)
    found = one_shot.estimates(row['noise_multiplier'], 200, 10**5, values['delta'], 12)
    # A score has deviation 1, so the mean over 2400 of them has 0.02; epsilon grows about 5 times
    # as fast as mu here. Half of the runs may be off by more, none of their median.
    assert np.median([each.epsilon for each in found]) == pytest.approx(
        row['epsilon_estimate'], abs=0.5
    )


def test_the_simulation_is_that_of_all_dimensions():
    """Means and deviations against a simulation with vectors of all dimensions."""
    dimension, count, noise_multiplier = 300, 20, 0.4
    random = np.random.default_rng(7)
    dense = []
    for _ in range(100):
        vectors = random.standard_normal((2 * count, dimension))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        release = noise_multiplier * random.standard_normal(dimension)
        release += vectors[:count].sum(axis=0)
        dense.append(vectors @ release / np.linalg.norm(release))
    sparse = [
        np.concatenate(one_shot.cosines(noise_multiplier, count, dimension, seed))
        for seed in range(100)
    ]
    for part in (slice(0, count), slice(count, None)):
        one, other = (np.concatenate([each[part] for each in all_]) for all_ in (dense, sparse))
        # 2000 cosines each, of deviation about 0.06: six deviations of the difference of means.
        assert one.mean() == pytest.approx(other.mean(), abs=0.011)
        assert one.std() == pytest.approx(other.std(), rel=0.12)
