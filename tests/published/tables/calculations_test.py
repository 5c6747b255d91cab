"""Calculations of rows against numbers that do not come from them."""

import dataclasses

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.published.tables import calculations, rows

_ROWS = {row.id: row for row in rows.load()}


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


def test_parameters_that_are_not_close_do_not_match(monkeypatch):
    row = _ROWS['002-AppA-b1000']
    assert calculations.compute(row).match
    published = calculations.parameters(row)
    wrong = {**published, 'scale': [*published['scale'][:3], published['scale'][3] + 1e-4]}
    monkeypatch.setattr(calculations, 'parameters', lambda row: wrong)
    assert calculations.compute(row).match is False


def test_rows_that_cannot_be_reproduced_neither_match_nor_differ(monkeypatch):
    """Of every kind, whatever is computed."""
    for kind in calculations._CALCULATIONS:
        monkeypatch.setitem(calculations._CALCULATIONS, kind, lambda row: _Zeros())
    results = [calculations.compute(row) for row in rows.load()]
    assert {result.match for result in results if not result.row.reproducible} == {None}
    assert {result.match for result in results if result.row.reproducible} <= {True, False}


class _Zeros(dict):
    def __missing__(self, name):
        return [0.0] if name in ('decay', 'scale') else 0.0
