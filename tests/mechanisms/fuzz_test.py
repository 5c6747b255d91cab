"""Random small cases over the whole family: no sensitivity is below the truth."""

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from tests import oracles

_CASES = 2000


def _random_mechanism(rng, rounds):
    def coefficients(size):
        return np.concatenate([[1.0], rng.normal(size=size - 1) * rng.uniform(0.1, 1)])

    kinds = [
        lambda: mechanisms.BinaryTree(rounds, rng.choice(['nodes', 'prefix_sums'])),
        lambda: mechanisms.HonakerTree(rounds, rng.choice(['nodes', 'prefix_sums'])),
        lambda: mechanisms.FullHonakerTree(rounds, bool(rng.integers(2))),
        lambda: mechanisms.Blt(rounds, rng.random(2), rng.normal(0.2, 0.3, size=2)),
        lambda: mechanisms.Blt(rounds, rng.random(2), rng.uniform(0, 0.5, size=2)),
        lambda: mechanisms.BandedToeplitz(rounds, coefficients(int(rng.integers(1, 5)))),
        lambda: mechanisms.BandedInverse(rounds, coefficients(int(rng.integers(1, 5)))),
        lambda: _lagged_blt(rng, rounds),
        lambda: mechanisms.Banded.from_matrix(
            np.tril(rng.normal(size=(rounds, rounds)), -1) + np.diag(rng.uniform(0.5, 2, rounds)),
            int(rng.integers(1, rounds + 1)),
        ),
    ]
    make = kinds[rng.integers(len(kinds))]
    base = make()
    starts = np.flatnonzero(rng.random(rounds - 1) < 0.2) + 1
    if rng.random() < 0.25 and base.name not in ('full_honaker_tree', 'banded'):
        return mechanisms.Restarted(base, starts, rounds)
    return base


def _lagged_blt(rng, rounds):
    lags = [0, *(np.flatnonzero(rng.random(6) < 0.3) + 1)]
    buffers = int(rng.integers(1, 3))
    direct = np.append(1.0, rng.normal(0.0, 0.3, len(lags) - 1))
    scale = rng.normal(-0.1, 0.3, (len(lags), buffers))
    return mechanisms.LaggedBlt(rounds, rng.uniform(-0.5, 1, buffers), lags, direct, scale)


def test_no_sensitivity_is_below_the_truth(record_property):
    rng = np.random.default_rng(2026)
    tight = exact = 0
    for _ in range(_CASES):
        rounds = int(rng.integers(1, 9))
        mechanism = _random_mechanism(rng, rounds)
        schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 5)))
        bound = mechanism.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(mechanism.released_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-10), (mechanism, schema)
        close = bound.squared == pytest.approx(truth, rel=1e-9)
        assert close or not bound.is_exact, (mechanism, schema)
        tight += close
        exact += bound.is_exact
    print(f'{tight / _CASES:.1%} of {_CASES} cases are tight, {exact / _CASES:.1%} known to be')
    record_property('share_tight', tight / _CASES)
    assert tight / _CASES > 0.5
