import numpy as np

from dpfl.reporting import charts
from dpfl.reporting.charts import Line, Panel

_LINE = Line('one', [1, 2], [3.0, 4.0], 0)
_POINTS = Line('printed ones', [1], [3.5], 4, None, 'as printed')


def _panel(title, *lines, **kwargs):
    return Panel(title, 'rounds', 'rho', lines, **kwargs)


def test_panels_show_their_lines_and_labels():
    figure = charts.draw([_panel('left', _LINE, _POINTS), _panel('right', _LINE)], 2)
    left, right = figure.axes
    assert [line.get_xydata().tolist() for line in left.lines] == [[[1, 3], [2, 4]], [[1, 3.5]]]
    assert (left.get_title(), right.get_title()) == ('left', 'right')
    assert (left.get_xlabel(), left.get_ylabel()) == ('rounds', 'rho')
    solid, points = left.lines
    assert (solid.get_linestyle(), solid.get_marker()) == ('-', 'None')
    assert (points.get_linestyle(), points.get_marker()) == ('None', 'o')


def test_the_legend_names_a_line_once():
    panels = [_panel('left', _LINE, _POINTS), _panel('right', _LINE, Line('two', [1], [2], 1, 1))]
    (legend,) = charts.draw(panels, 2).legends
    assert [text.get_text() for text in legend.get_texts()] == ['one', 'as printed', 'two']


def test_panels_that_do_not_fill_the_last_row(tmp_path):
    figure = charts.draw([_panel(str(i), _LINE) for i in range(3)], 2)
    assert len(figure.axes) == 3
    figure.savefig(tmp_path / 'chart.png')
    assert (tmp_path / 'chart.png').stat().st_size > 0


def test_logarithmic_axes_and_their_range():
    line = Line('one', [10, 1000], [1e-30, 0.5], 0)
    figure = charts.draw([_panel('a', line, x_log=True, y_log=True, y_range=(1e-10, 1))], 1)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ('log', 'log')
    assert axes.get_ylim() == (1e-10, 1)
    figure.canvas.draw()
    shown = {text.get_text() for text in axes.get_xticklabels()}
    assert {'10', '100', '1,000'} <= shown


def test_every_line_looks_different_within_the_colours_and_dashes():
    lines = [
        Line(f'{color} {dash}', [1, 2], [1, 2], color, dash)
        for color in range(8)
        for dash in range(5)
    ]
    (axes,) = charts.draw([_panel('many', *lines)], 1).axes
    looks = {(line.get_color(), str(line._dash_pattern)) for line in axes.lines}
    assert len(looks) == 40


def test_the_table_has_every_point():
    panels = [_panel('left', _LINE, _POINTS), _panel('right', _LINE)]
    table = charts.table(panels)
    assert [(row['panel'], row['line'], row['x'], row['y']) for row in table] == [
        ('left', 'one', 1, 3.0),
        ('left', 'one', 2, 4.0),
        ('left', 'printed ones', 1, 3.5),
        ('right', 'one', 1, 3.0),
        ('right', 'one', 2, 4.0),
    ]
    assert {(row['x_name'], row['y_name']) for row in table} == {('rounds', 'rho')}
    assert np.isfinite([row['y'] for row in table]).all()
