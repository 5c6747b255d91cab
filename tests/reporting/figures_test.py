"""Figures and sheets of images: what they show, point by point."""

import io
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import image

from dpfl.reporting import charts, html_parts, plots
from dpfl.reporting.charts import Line, Panel

_LINE = Line('one', [1, 2], [3.0, 4.0], 0)
_POINTS = Line('printed ones', [1], [3.5], 4, None, 'as printed')


def _panel(title, *lines, **kwargs):
    return Panel(title, 'rounds', 'rho', lines, **kwargs)


def test_panels_their_legend_and_their_table_have_every_line():
    panels = [_panel('left', _LINE, _POINTS), _panel('right', _LINE, Line('two', [1], [2], 1, 1))]
    figure = charts.draw(panels, 2)
    left, right = figure.axes
    assert [line.get_xydata().tolist() for line in left.lines] == [[[1, 3], [2, 4]], [[1, 3.5]]]
    assert (left.get_title(), right.get_title()) == ('left', 'right')
    assert (left.get_xlabel(), left.get_ylabel()) == ('rounds', 'rho')
    solid, points = left.lines
    assert (solid.get_linestyle(), solid.get_marker()) == ('-', 'None')
    assert (points.get_linestyle(), points.get_marker()) == ('None', 'o')
    (legend,) = figure.legends  # It names a line once.
    assert [text.get_text() for text in legend.get_texts()] == ['one', 'as printed', 'two']
    table = charts.table(panels)
    assert [(row['panel'], row['line'], row['x'], row['y']) for row in table] == [
        ('left', 'one', 1, 3.0),
        ('left', 'one', 2, 4.0),
        ('left', 'printed ones', 1, 3.5),
        ('right', 'one', 1, 3.0),
        ('right', 'one', 2, 4.0),
        ('right', 'two', 1, 2.0),
    ]
    assert {(row['x_name'], row['y_name']) for row in table} == {('rounds', 'rho')}


def _points(axes):
    return [line.get_xydata().tolist() for line in axes.lines]


def test_training_curves_show_what_was_measured():
    rows = [
        {'round': 1, 'epsilon': 0.5, 'clip_norm': 0.1, 'clip_norm_estimate': 0.3},
        {'round': 2, 'epsilon': 0.7, 'clip_norm': 0.3, 'clip_norm_estimate': 0.2},
    ]
    rows[1]['accuracy'] = 0.25
    references = {'best accuracy': 0.4, 'best_accuracy_with_oov': 0.3}
    figure = plots.training_curves(rows, references)
    accuracy, loss, epsilon, clip_norms = figure.axes
    assert [axes.get_title() for axes in figure.axes[:3]] == ['Accuracy', 'Loss', 'Privacy']
    assert [axes.get_xlabel() for axes in figure.axes] == ['', '', 'round', 'round']
    assert _points(accuracy)[0] == [[2, 0.25]]
    assert accuracy.lines[1].get_ydata() == [0.4, 0.4]
    # The curve is over known words.
    assert [text.get_text() for text in accuracy.texts] == ['best accuracy 0.400']
    assert _points(epsilon) == [[[1, 0.5], [2, 0.7]]]
    assert not loss.lines[0].get_xydata().size
    assert _points(clip_norms) == [[[1, 0.3], [2, 0.2]], [[1, 0.1], [2, 0.3]]]


@pytest.mark.standard
def test_what_draws_is_imported_before_memory_may_be_short():
    code = (
        'import sys\n'
        'from dpfl.reporting import html_parts, plots, privacy_page\n'
        'before = {name for name in sys.modules if name.startswith("matplotlib")}\n'
        'import io\n'
        'figure = plots.training_curves([{"round": 1, "loss": 2.0}, {"round": 2, "loss": 1.0}])\n'
        'figure.savefig(io.BytesIO(), format="png")\n'
        'html_parts.svg(figure)\n'
        'print({name for name in sys.modules if name.startswith("matplotlib")} - before)\n'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'set()\n'


def test_plans_have_a_line_for_each_mechanism_and_value():
    rows = [
        {'mechanism': name, 'rounds': rounds, 'population': clients, 'rho': rounds * scale}
        for name, scale in (('tree', 2.0), ('blt', 1.0))
        for clients in (1000, 2000)
        for rounds in (30, 20)
    ]
    rows.append({'mechanism': 'silent', 'rounds': 20, 'population': 1000, 'rho': None})
    (panel,) = plots.plans(rows, 'rounds', ['rho'], ['mechanism', 'population']).axes
    assert {line.get_label(): line.get_xydata().tolist() for line in panel.lines} == {
        'tree, population 1,000': [[20, 40], [30, 60]],
        'tree, population 2,000': [[20, 40], [30, 60]],
        'blt, population 1,000': [[20, 20], [30, 30]],
        'blt, population 2,000': [[20, 20], [30, 30]],
    }


def test_images_stand_in_rows_with_grey_gaps():
    pixels = np.stack([np.full((3, 2), value) for value in (0.0, 0.25, 1.0)])
    sheet = html_parts.tiled(pixels, columns=2, scale=1)
    assert sheet.shape == (3 + 2 + 3, 2 + 2 + 2) and sheet.dtype == np.uint8
    assert (sheet[:3, :2] == 0).all() and (sheet[:3, 4:] == 64).all()
    assert (sheet[5:, :2] == 255).all()
    assert set(sheet[3:5].ravel()) | set(sheet[:, 2:4].ravel()) == {128}
    assert (sheet[5:, 4:] == 128).all()  # Left over.
    twice = html_parts.tiled(pixels, columns=2, scale=2)
    np.testing.assert_array_equal(twice[::2, ::2], sheet)
    np.testing.assert_array_equal(twice[1::2, 1::2], sheet)


def test_the_file_is_a_png_of_the_sheet():
    pixels = np.random.default_rng(0).uniform(size=(5, 4, 4))
    read = image.imread(io.BytesIO(html_parts.png(pixels, 3)), format='png')
    np.testing.assert_allclose(read[..., 0], html_parts.tiled(pixels, 3) / 255, atol=1 / 255)
    assert html_parts.png(pixels, 3) == html_parts.png(pixels, 3)


def test_names_with_dollar_signs_are_no_formulas():
    name = 'costs $\\frac$'
    rows = [{'round': 1, 'accuracy': 0.1, 'loss': 2.0, 'epsilon': 1.0}]
    line = charts.Line(name, [1.0, 2.0], [1.0, 2.0], 0)
    panel = charts.Panel(name, name, name, [line], x_ticks={1.0: name})
    for figure in (plots.training_curves(rows, run=name), charts.draw([panel], 1)):
        figure.savefig(io.BytesIO(), format='png')


def test_relative_losses_are_drawn_where_the_other_mechanism_has_one():
    rows = [
        {'mechanism': name, 'rounds': rounds, 'max_loss': loss}
        for name, rounds, loss in [('a', 4, 2.0), ('b', 4, 3.0), ('b', 8, 9.0), ('c', 8, 9.0)]
    ]
    (axes,) = plots.losses(rows, 'rounds', 'max_loss', 'a').axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[4, 1]], [[4, 1.5]], []]
    (axes,) = plots.losses(rows, 'rounds', 'max_loss').axes
    assert [len(line.get_xydata()) for line in axes.lines] == [1, 2, 1]
