"""Banded strategies that are found from the optimum for half the rounds and bands."""

import dataclasses

import numpy as np
import pytest

from dpfl import Participation
from dpfl.mechanisms.optimize import banded
from dpfl.mechanisms.optimize.banded import optimize_banded
from dpfl.mechanisms.optimize.banded_norms import Norms

every_family = pytest.mark.parametrize('family', ['equal', 'blocks', 'free'])


def _halved(schema):
    return dataclasses.replace(
        schema, rounds=-(-schema.rounds // 2), min_separation=-(-schema.min_separation // 2)
    )


@every_family
def test_refined_weights_give_each_round_at_least_half_of_its_squared_norm(family):
    rng = np.random.default_rng(0)
    for _ in range(300):
        rounds = int(rng.integers(1, 40))
        schema = Participation(rounds, int(rng.integers(1, rounds + 3)))
        norms, coarse = (getattr(Norms, family)(one) for one in (schema, _halved(schema)))
        weights = rng.exponential(size=coarse.costs.size)
        refined = norms.refined(coarse, weights, schema)
        assert refined.shape == norms.costs.shape and (refined >= 0).all()
        if np.array_equal(refined, norms.start(schema)):
            continue
        before = np.repeat(coarse.squared(weights), 2)[:rounds]
        assert (norms.squared(refined) >= before / 2).all()
        # The sensitivity is that of the coarse weights, but for what the common one costs.
        windows = refined[: norms.starts.size].sum()
        assert windows == pytest.approx(weights[: coarse.starts.size].sum())


@pytest.mark.parametrize('family', ['blocks', 'free'])
def test_refined_weights_of_an_even_separation_repeat_the_norms(family):
    schema = Participation(24, 6, 4)
    norms, coarse = (getattr(Norms, family)(one) for one in (schema, _halved(schema)))
    weights = np.zeros(coarse.costs.size)
    weights[np.searchsorted(coarse.starts, [0, 3, 6, 9])] = [4.0, 3.0, 2.0, 1.0]
    refined = norms.refined(coarse, weights, schema)
    np.testing.assert_array_equal(norms.squared(refined), np.repeat([4.0, 3.0, 2.0, 1.0], 6))


def test_a_column_without_a_norm_makes_the_start_equal():
    # Half of 99 rounds in blocks of 49 has two blocks, 99 rounds have three.
    schema = Participation(99, 49, 3)
    norms, coarse = Norms.blocks(schema), Norms.blocks(_halved(schema))
    assert (norms.costs.size, coarse.costs.size) == (3, 2)
    refined = norms.refined(coarse, np.array([5.0, 1.0]), schema)
    np.testing.assert_array_equal(refined, norms.start(schema))


@pytest.mark.parametrize('loss, tolerance', [('rms', 2e-5), ('max', 2e-3)])
@pytest.mark.parametrize(
    'family, schema',
    [
        ('equal', (192, 48, 4)),
        ('blocks', (192, 48, 4)),
        ('blocks', (201, 51, 4)),
        ('free', (192, 48, 4)),
        ('free', (201, 51, 3)),
    ],
)
def test_the_optimum_is_that_of_a_search_without_coarser_problems(
    schema, family, loss, tolerance, monkeypatch
):
    schema = Participation(*schema)
    losses = []
    for fewest in (48, 1000):
        monkeypatch.setattr(banded, '_COARSE_BANDS', fewest)
        found = optimize_banded(schema, 48, loss=loss, column_norms=family)
        losses.append(getattr(found, f'{loss}_loss')(schema))
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)


@pytest.mark.parametrize('loss, tolerance', [('rms', 1e-4), ('max', 2e-3)])
@every_family
def test_the_largest_tables_end_near_the_optimum(family, loss, tolerance, monkeypatch):
    schema = Participation(256, 64, 4)
    least = optimize_banded(schema, 64, loss=loss, column_norms=family)
    monkeypatch.setattr(banded, '_HUGE', 4_000)
    near = optimize_banded(schema, 64, loss=loss, column_norms=family)
    ratio = getattr(near, f'{loss}_loss')(schema) / getattr(least, f'{loss}_loss')(schema)
    assert ratio <= 1 + tolerance and near.digest() != least.digest()
