"""The attack on participation finds nothing, and finds a sampler that breaks its schema."""

import numpy as np
import pytest

from dpfl import Participation
from tests.attacks import participation


@pytest.mark.parametrize('name', participation.SAMPLERS)
def test_samplers_keep_their_schema(name):
    rng = np.random.default_rng(0)
    outcomes = {participation.outcome(participation.SAMPLERS[name], rng) for _ in range(20)}
    assert 'kept' in outcomes and outcomes <= {'kept', 'refused'}


@pytest.mark.parametrize(
    'cohorts, broken',
    [
        ([[1, 1]], 'a client twice in a round'),
        ([[1], [2], [1], [3]], 'rounds too close to each other'),
        ([[1], [2], [3], [1], [2], [3], [1]], 'too many participations'),
    ],
)
def test_a_sampler_that_breaks_its_schema_is_found(cohorts, broken):
    class Sampler:
        participation = Participation(len(cohorts), 3, 2)

        def cohort(self, t):
            return np.array(cohorts[t])

    assert participation.outcome(lambda rng: (Sampler,), np.random.default_rng(0)) == broken
