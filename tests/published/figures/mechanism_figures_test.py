"""Figures of [McMahan24]: pieces that are quick; the whole is in reproduce_figures_test."""

import os

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms, strategies
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.published.figures import designs, extensions, production, separations
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


def test_panels_of_goals_use_the_separation_of_the_population(monkeypatch):
    monkeypatch.setattr(production, '_GOALS', (100, 300))
    monkeypatch.setattr(production, '_ROUNDS', (20, 40))
    one = production._Production('BandMF', designs.banded(40, 3), 2.0)
    panel = production._by_goal('(a)', 1000, (one,))
    assert [line.label for line in panel.lines] == ['BandMF, 20 rounds', 'BandMF, 40 rounds']
    noise = [2.0 * goal / 6500 for goal in (100, 300)]
    # 1000 clients: separation 10 and 3, so 4 and 14 participations in 40 rounds.
    expected = [count / (2 * z**2) for count, z in zip((4, 14), noise, strict=True)]
    assert panel.lines[1].y == pytest.approx(expected)


def test_columns_in_which_a_client_can_come():
    for rounds, separation, count in ((21, 9, 3), (13, 5, 3), (20, 15, 2)):
        schema = Participation(rounds, separation, count)
        full = [pattern for pattern in oracles.patterns(schema) if len(pattern) == count]
        columns = {t for pattern in full for t in pattern}
        assert separations._columns_of(schema, count) == len(columns)


@pytest.mark.standard
def test_times_are_of_work_and_not_of_kept_results(monkeypatch, tmp_path):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path))
    monkeypatch.setattr(extensions, '_BANDED_ROUNDS', (30, 60))
    monkeypatch.setattr(extensions, '_BLT_ROUNDS', (30, 60, 90))
    monkeypatch.setattr(extensions, '_SEPARATION', 6)
    monkeypatch.setattr(
        extensions.mechanisms,
        'optimize_banded',
        lambda schema, bands: mechanisms.optimize_banded_toeplitz(schema, 6),
    )
    drawn = extensions.figure1()
    assert [len(line.y) for line in drawn.panels[0].lines] == [2, 3, 3]
    assert all(second > 0 for line in drawn.panels[0].lines for second in line.y)
    assert not list(tmp_path.iterdir())
    assert os.environ['DPFL_CACHE_DIR'] == str(tmp_path)
    assert drawn.measured.keys() == {
        '002/fig1/many-rounds',
        '002/fig1/few-rounds',
        '002/fig1/large',
    }


def test_blts_go_on_over_more_rounds():
    design = extensions._extended_blt(800, 2)
    made = mechanisms.optimize_blt(Participation(800, 400), 2, 'rms')
    assert design.mechanism.rounds == 2000
    for rounds in (300, 800, 2000):
        schema = Participation(rounds, 400)
        expected = made.with_rounds(rounds).rms_loss(schema)
        assert design.loss(schema, 'rms') == pytest.approx(expected)


@pytest.mark.exhaustive
def test_blt_is_better_than_a_lower_bound_of_bandmf():
    blt, band = production._blt(400, 7.379), production._banded('002-T4-es-ES-BandMF')
    for rounds in (1000, 2000):
        matrix = band.design.mechanism.with_rounds(rounds).strategy_matrix()
        for separation in production._SEPARATIONS:
            for count in (None, 2):
                schema = Participation(rounds, separation, count)
                squared = matrix_sensitivity.lower_bound(matrix, schema) ** 2
                least = 0.2 * squared / (2 * 1.411**2)
                assert least <= band.rho(schema) * (1 + 1e-9)
                assert blt.rho(schema) < least
