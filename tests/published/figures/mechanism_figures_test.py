"""Figures of [McMahan24]: pieces that are quick; the whole is in reproduce_figures_test."""

import os

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms, strategies
from dpfl.mechanisms.sensitivities import matrix_sensitivity
from dpfl.published.figures import designs, extensions, production, separations
from dpfl.reporting.charts import Line
from tests import oracles


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


@pytest.mark.parametrize('goal', [6500, 13000])
def test_rho_of_production_blts_is_that_of_their_plan(goal):
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


def test_noise_and_norms_are_those_of_table_4():
    assert production._sigma('002-T4-es-ES-BLT') == 7.379
    assert production._sigma('002-T4-pt-PT-5.5-BLT') == 5.5


def test_squared_norms_scale_rho():
    design = designs.banded(12, 3)
    schema = Participation(12, 4)
    columns = production._Production('BandMF', design, 2.0, 0.2)
    # Three participations of columns with norm 1 do not overlap.
    assert columns.rho(schema) == pytest.approx(0.2 * 3 / (2 * 2.0**2))


def test_separations_beyond_the_rounds_are_one_participation():
    assert production._schema(100, 5000).count == 1
    assert production._schema(100, 30).count == 4
    assert production._schema(100, 30, 2).count == 2


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


def test_losses_relative_to_a_line():
    at = {'BLT': {1: 2.0, 2: 4.0}, 'BandMF': {1: 1.0, 2: 8.0}}
    assert separations._relative(at, 'BLT') == {'BLT': {1: 1, 2: 1}, 'BandMF': {1: 0.5, 2: 2}}
    relative, absolute = separations._relative_and_absolute(at, 'BLT')
    assert [line.dash for line in relative.lines] == [0, 1]
    assert absolute.lines[1].y == [1.0, 8.0] and relative.x_log


def test_separations_of_figure_2_admit_the_participations():
    for count in (2, 5):
        for b in separations._separations(count):
            assert Participation(2000, b).count >= count
    assert {395, 399, 400} < set(separations._separations(2))


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


def test_the_most_rounds_in_the_time_of_bandmf():
    banded = Line('BandMF', [10, 20], [1.0, 4.0], 0)
    first = Line('BLT', [10, 20, 40], [0.1, 3.0, 5.0], 1)
    second = Line('BLT rms', [10, 20, 40], [0.1, 0.1, 0.1], 2)
    assert extensions._most_rounds([banded, first, second]) == 20
    assert extensions._most_rounds([banded, second, second]) == 40


def test_the_environment_is_as_before_without_a_cache_of_its_own(monkeypatch):
    monkeypatch.delenv('DPFL_CACHE_DIR')
    with extensions._nothing_kept():
        assert os.environ['DPFL_CACHE_DIR'] == ''
    assert 'DPFL_CACHE_DIR' not in os.environ


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
