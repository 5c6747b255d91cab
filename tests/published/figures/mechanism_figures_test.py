"""Figures of [McMahan24]: pieces that are quick; the whole is in reproduce_figures_test."""

import numpy as np
import pytest

from dpfl import Participation, accounting, strategies
from dpfl.published.figures import designs, production, separations
from tests import oracles


def test_losses_of_fewer_rounds_are_those_of_the_definition():
    for mechanism in (designs.banded(12, 3).mechanism, designs.blt(12, 3, 3, 2, 'rms').mechanism):
        for rounds in (1, 5, 12):
            schema = Participation(rounds, 3)
            matrix = mechanism.strategy_matrix()[:rounds, :rounds]
            errors = np.linalg.norm(np.tril(np.ones(matrix.shape)) @ np.linalg.inv(matrix), axis=1)
            sensitivity = np.sqrt(oracles.squared_sensitivity(matrix, schema))
            for kind, error in (('max', errors.max()), ('rms', np.sqrt((errors**2).mean()))):
                loss = designs.Design(mechanism).loss(schema, kind)
                assert loss == pytest.approx(error * sensitivity)


def test_coefficients_are_those_of_the_matrix_and_of_its_inverse(monkeypatch):
    monkeypatch.setattr(production, '_COEFFICIENTS', 60)
    drawn = production.figure10()
    for panel, power in zip(drawn.panels, (1, -1), strict=True):
        for line, b in zip(panel.lines, (100, 400, 1000), strict=True):
            matrix = strategies.load(f'blt_b{b}').with_rounds(60).strategy_matrix()
            column = (np.linalg.inv(matrix) if power < 0 else matrix)[1:, 0]
            np.testing.assert_allclose(line.y, power * column, rtol=1e-9, atol=1e-12)
            assert list(line.x) == list(range(1, 60)) and line.label == f'BLT, b = {b:,}'
    kept = drawn.measured['002/fig10/decay']
    c, d = (drawn.panels[0].lines[i].y for i in (0, 2))
    assert kept['ratio_to_1000'] == pytest.approx((c[-1] / c[0]) / (d[-1] / d[0]))


def test_rho_of_production_blts_is_that_of_their_plan():
    goal = 13000
    one = production._blt(400, 7.379)
    schema = Participation(700, 300)
    plan = accounting.PrivacyPlan(
        mechanism=strategies.load('blt_b400').with_rounds(700),
        participation=schema,
        clip_norm=1.0,
        noise_multiplier=7.379 * goal / 6500,
        clients_per_round=goal,
    )
    assert one.rho(schema, goal) == pytest.approx(plan.rho)


def test_columns_in_which_a_client_can_come():
    for rounds, separation, count in ((21, 9, 3), (13, 5, 3), (20, 15, 2)):
        schema = Participation(rounds, separation, count)
        full = [pattern for pattern in oracles.patterns(schema) if len(pattern) == count]
        columns = {t for pattern in full for t in pattern}
        assert separations._columns_of(schema, count) == len(columns)
