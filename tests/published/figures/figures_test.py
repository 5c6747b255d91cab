"""Figures of the documents: pieces that are quick; the whole is in reproduce_figures_test."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

from dpfl import Participation, strategies
from dpfl.mechanisms import tree
from dpfl.published.figures import production, sampled_training, separations
from dpfl.published.figures.drawn import Design, banded, blt, selected
from tests import oracles
from tests.accounting import plans


def _line(panel, beginning):
    line = next(line for line in panel.lines if line.label.startswith(beginning))
    return dict(zip(line.x, line.y, strict=True))


@pytest.mark.standard
def test_rho_of_trees_is_that_of_all_patterns():
    for rounds, separation in ((13, 4), (16, 5), (20, 9)):
        schema = Participation(rounds, separation)
        squared = oracles.squared_sensitivity(tree.node_matrix(rounds, False), schema)
        for goal, noise in ((6500, 7), (650, 0.7)):
            found = production._tree_rho(rounds, separation, goal)
            assert found == pytest.approx(squared / (2 * noise**2))


@pytest.mark.standard
def test_one_participation_costs_as_many_nodes_as_a_round_is_in():
    xu = production.tree_figure4()
    # Among 1000 rounds the subtree of 512 rounds is the largest: 10 nodes above each of its rounds.
    by_goal = _line(xu.panels[1], '1,000 rounds')
    assert by_goal[500] == pytest.approx(10 / (2 * (7 * 500 / 6500) ** 2))
    # Two participations, both of them in the largest subtrees (512 and 256) or within one.
    assert by_goal[20000] * 2 * (7 * 20000 / 6500) ** 2 == pytest.approx(22)


def test_epsilon_is_the_classic_conversion_of_renyi_divergences():
    curve = _line(sampled_training.table1().panels[0], 'K = 10^5, C = 10^2, z = 1')
    event = dp_accounting.PoissonSampledDpEvent(1e-3, dp_accounting.GaussianDpEvent(1.0))
    accountant = rdp.RdpAccountant(np.arange(2, 34)).compose(event)
    delta = 10.0 ** (-5 * 1.1)
    for rounds in (1, 1000, 10**6):
        orders = np.arange(1, 33)
        classic = rounds * accountant._rdp - math.log(delta) / orders
        assert curve[rounds] == pytest.approx(classic.min(), rel=1e-6)


@pytest.mark.parametrize('make', [sampled_training.table1, sampled_training.table2])
def test_curves_go_through_the_printed_points(make):
    for panel in make().panels:
        curves = {line.label: line for line in panel.lines if line.dash is not None}
        for points in panel.lines:
            if points.dash is None:
                line = curves[points.label.removesuffix(', as printed')]
                found = np.interp(np.log(points.x), np.log(line.x), line.y)
                np.testing.assert_allclose(points.y, found, rtol=0.02)


def test_every_printed_epsilon_of_the_tables_is_drawn_once():
    for make, beginnings in (
        (sampled_training.table1, ('001-T1',)),
        (sampled_training.table2, ('001-T2', '001-Ttext')),
        (sampled_training.table5, ('004-S5',)),
    ):
        drawn = make()
        found = selected(*beginnings)
        points = [line for panel in drawn.panels for line in panel.lines if line.dash is None]
        shown = sorted((x, y) for line in points for x, y in zip(line.x, line.y, strict=True))
        assert shown == sorted((row.inputs['rounds'], row.published['eps']) for row in found)
        assert set(drawn.measured) == {row.id for row in found}


def test_losses_of_fewer_rounds_are_those_of_the_definition():
    for mechanism in (banded(12, 3).mechanism, blt(12, 3, 3, 2, 'rms').mechanism):
        for rounds in (1, 5, 12):
            schema = Participation(rounds, 3)
            matrix = mechanism.strategy_matrix()[:rounds, :rounds]
            errors = np.linalg.norm(np.tril(np.ones(matrix.shape)) @ np.linalg.inv(matrix), axis=1)
            sensitivity = np.sqrt(oracles.squared_sensitivity(matrix, schema))
            for kind, error in (('max', errors.max()), ('rms', np.sqrt((errors**2).mean()))):
                loss = Design(mechanism).loss(schema, kind)
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
    plan = plans.production(
        mechanism=strategies.load('blt_b400').with_rounds(700),
        participation=schema,
        noise_multiplier=7.379 * goal / 6500,
    )
    assert one.rho(schema, goal) == pytest.approx(plan.rho)


def test_columns_in_which_a_client_can_come():
    for rounds, separation, count in ((21, 9, 3), (13, 5, 3), (20, 15, 2)):
        schema = Participation(rounds, separation, count)
        full = [pattern for pattern in oracles.patterns(schema) if len(pattern) == count]
        columns = {t for pattern in full for t in pattern}
        assert separations._columns_of(schema, count) == len(columns)
