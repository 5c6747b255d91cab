"""Calculations of rows against numbers that do not come from them."""

import dataclasses
import math

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.published.tables import calculations, rows
from tests import paths

_ROWS = {row.id: row for row in rows.load(paths.PUBLISHED)}


def test_each_published_number_is_compared_and_takes_no_part_in_what_is_computed():
    for name in ('000-T2-de-DE', '002-T4-es-ES-BLT', '004-T3 real 3a', '002-launch-id-ID_OTF'):
        row = _ROWS[name]
        for key, value in row.published.items():
            wrong = {**row.published, key: value + 10.0 ** -row.decimals[key]}
            result = calculations.compute(dataclasses.replace(row, published=wrong))
            assert not result.match and result.computed == calculations.compute(row).computed


def test_bands_that_overlap_cost_more_than_their_norms_and_less_than_one_block():
    row = _ROWS['002-T4-es-ES-BandMF']
    inputs = dict(n=200, rounds=150, bands=40, MinS=29, MaxP=4)
    small = dataclasses.replace(row, inputs={**row.inputs, **inputs})
    rho = calculations.production_banded(small)['zcdp']
    apart = 0.2 / (2 * 1.411**2) * 4
    assert apart < rho < apart * 4
    strategy = mechanisms.optimize_banded(Participation(200, 40), 40).strategy_matrix()[:150, :150]
    norms = [np.sum(strategy[:, first + 30 * np.arange(4)].sum(axis=1) ** 2) for first in range(60)]
    attained = 0.2 * max(norms) / (2 * 1.411**2)
    assert rho >= attained - 1e-12
    assert rho == pytest.approx(attained, rel=0.02)


@pytest.mark.parametrize(
    'convention, round_to',
    [
        ('nearest', lambda value, decimals: round(value, decimals)),
        ('up', lambda value, decimals: math.ceil(value * 10**decimals) / 10**decimals),
    ],
)
def test_exact_rho_prints_as_both_numbers_and_no_other_does(convention, round_to):
    for row in (row for row in _ROWS.values() if row.mechanism == 'launch'):
        low, high = calculations.exact_rho(row, convention)
        for share, inside in ((0.01, True), (0.99, True), (-0.01, False), (1.01, False)):
            rho = low + share * (high - low)
            epsilon = accounting.epsilon_from_rho(rho, 1e-10, 'analytic_gaussian')
            prints = (
                round_to(rho, row.decimals['zcdp']) == row.published['zcdp']
                and round_to(epsilon, row.decimals['eps']) == row.published['eps']
            )
            assert prints == inside, (row.id, rho)


def test_no_exact_rho():
    row = dataclasses.replace(_ROWS['002-launch-id-ID_OTF'], published={'zcdp': 0.099, 'eps': 2.84})
    assert calculations.exact_rho(row, 'nearest') is None
    assert 'no rho prints as both numbers, rounded up' in calculations.compute(row).note


def test_parameters_that_are_not_close_do_not_match(monkeypatch):
    row = _ROWS['002-AppA-b1000']
    assert calculations.compute(row).match
    published = calculations.parameters(row)
    wrong = {**published, 'scale': [*published['scale'][:3], published['scale'][3] + 1e-4]}
    monkeypatch.setattr(calculations, 'parameters', lambda row: wrong)
    assert calculations.compute(row).match is False


@pytest.mark.parametrize(
    'change, message',
    [
        ({'mechanism': 'magic'}, 'mechanism=magic: must be one of tree, '),
        ({'inputs': {'rounds': 5}}, 'noise_multiplier: must be given'),
        (
            {'inputs': {'rounds': 0, 'MinS': 1, 'MaxP': 1, 'noise_multiplier': 1}},
            'rounds=0: must be',
        ),
        ({'mechanism': 'gaussian', 'inputs': {'alpha': 0}}, 'an input is 0: must be above 0'),
    ],
)
def test_rows_that_cannot_be_computed_say_why(change, message):
    row = dataclasses.replace(_ROWS['000-T1-de-DE'], **change)
    with pytest.raises(ValueError, match=message):
        calculations.compute(row)
