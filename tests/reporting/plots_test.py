import subprocess
import sys

import numpy as np
import pytest

from dpfl.reporting import plots


def test_training_curves_show_what_was_measured(tmp_path):
    rows = [{'round': 1, 'epsilon': 0.5}, {'round': 2, 'epsilon': 0.7, 'accuracy': 0.25}]
    references = {'best accuracy': 0.4, 'best_accuracy_with_oov': 0.3}
    figure = plots.training_curves(rows, references)
    accuracy, loss, epsilon = figure.axes
    assert len(accuracy.texts) == 1  # The curve is over known words.
    assert accuracy.lines[0].get_xydata().tolist() == [[2, 0.25]]
    assert accuracy.lines[1].get_ydata() == [0.4, 0.4]
    assert accuracy.texts[0].get_text() == 'best accuracy 0.400'
    assert epsilon.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 0.7]]
    assert [axes.get_title() for axes in figure.axes] == ['Accuracy', 'Loss', 'Privacy']
    assert not loss.lines[0].get_xydata().size
    figure.savefig(tmp_path / 'curves.png')


def test_training_curves_show_a_loss_that_diverges(tmp_path):
    rows = [{'round': t, 'epsilon': 1.0, 'loss': 4.6 * t**2} for t in (1, 2, 3, 4)]
    figure = plots.training_curves(rows, uniform_loss=4.5, run='runs/one')
    loss = figure.axes[1]
    assert loss.lines[0].get_ydata().tolist() == pytest.approx([4.6, 18.4, 41.4, 73.6])
    assert loss.get_yscale() == 'log' and loss.texts[0].get_text() == 'uniform guess 4.5'
    assert figure.get_suptitle() == 'runs/one: after 4 rounds'
    figure.savefig(tmp_path / 'curves.png')


def test_training_curves_show_an_adaptive_clip_norm(tmp_path):
    rows = [
        {'round': 1, 'epsilon': 0.5, 'clip_norm': 0.1, 'clip_norm_estimate': 0.3},
        {'round': 2, 'epsilon': 0.7, 'clip_norm': 0.3, 'clip_norm_estimate': 0.2},
    ]
    figure = plots.training_curves(rows)
    estimate, in_use = figure.axes[3].lines
    assert estimate.get_xydata().tolist() == [[1, 0.3], [2, 0.2]]
    assert in_use.get_xydata().tolist() == [[1, 0.1], [2, 0.3]]
    assert [axes.get_xlabel() for axes in figure.axes] == ['', '', 'round', 'round']
    figure.savefig(tmp_path / 'curves.png')


def test_training_curves_show_the_spread_of_the_clients():
    spread = dict(accuracy_q10=0.1, accuracy_q25=0.2, accuracy_q75=0.3, accuracy_q90=0.4)
    rows = [{'round': t, 'epsilon': 1.0, 'accuracy': 0.25, **spread} for t in (1, 2)]
    bands = plots.training_curves(rows).axes[0].collections
    ends = [
        (band.get_paths()[0].get_extents().y0, band.get_paths()[0].get_extents().y1)
        for band in bands
    ]
    assert ends == [(0.1, 0.4), (0.2, 0.3)]


def test_participation_shows_both_histograms_and_the_rounds(tmp_path):
    figure = plots.participation({1: 5, 3: 2}, {4: 10, 200: 1})
    counts, gaps = figure.axes
    assert [bar.get_height() for bar in counts.patches] == [5, 2]
    assert sum(bar.get_height() for bar in gaps.patches) == 11
    # Bins hold whole rounds, all of them equally many.
    edges = [bar.get_x() for bar in gaps.patches]
    assert set(np.diff(edges)) == {4.0} and edges[0] == 3.5
    figure.savefig(tmp_path / 'log.png')
    timed = plots.participation(
        {1: 5}, {}, start_hours=np.array([23.0, 25.0]), duration_hours=np.array([0.5, 1.0])
    )
    assert timed.axes[2].lines[0].get_xydata().tolist() == [[23, 30], [1, 60]]
    assert timed.axes[3].lines[0].get_ydata().tolist() == [23 / 24, 25 / 24]
    timed.savefig(tmp_path / 'run.png')


def test_separations_are_in_order_of_the_variable(tmp_path):
    row = {'largest_separation': 9, 'max_participations': 2}
    rows = [
        {'timer_hours': 48.0, 'min_separation': 7, **row},
        {'timer_hours': 24.0, 'min_separation': 5, **row},
    ]
    apart, count = plots.separations(rows, 'timer_hours').axes
    assert apart.lines[0].get_xydata().tolist() == [[24, 5], [48, 7]]
    assert apart.lines[1].get_ydata().tolist() == [9, 9]
    assert count.get_xlabel() == 'timer hours'
    rows = [{**row, 'rho_of_schema': 0.3, 'rho_of_log': 0.2} for row in rows]
    figure = plots.separations(rows, 'timer_hours')
    assert [line.get_ydata().tolist() for line in figure.axes[2].lines] == [[0.3] * 2, [0.2] * 2]
    figure.savefig(tmp_path / 'separations.png')


@pytest.mark.exhaustive
def test_what_draws_is_imported_before_memory_may_be_short():
    code = (
        'import sys\n'
        'from dpfl.reporting import html_page, plots, privacy_page\n'
        'before = {name for name in sys.modules if name.startswith("matplotlib")}\n'
        'import io\n'
        'figure = plots.training_curves([{"round": 1, "loss": 2.0}, {"round": 2, "loss": 1.0}])\n'
        'figure.savefig(io.BytesIO(), format="png")\n'
        'html_page.svg(figure)\n'
        'print({name for name in sys.modules if name.startswith("matplotlib")} - before)\n'
    )
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'set()\n'


def test_plans_have_a_line_for_each_mechanism_and_value(tmp_path):
    rows = [
        {'mechanism': name, 'rounds': rounds, 'population': clients, 'rho': rounds * scale}
        for name, scale in (('tree', 2.0), ('blt', 1.0))
        for clients in (1000, 2000)
        for rounds in (30, 20)
    ]
    rows.append({'mechanism': 'silent', 'rounds': 20, 'population': 1000, 'rho': None})
    (panel,) = plots.plans(rows, 'rounds', ['rho'], ['mechanism', 'population']).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert lines == {
        'tree, population 1,000': [[20, 40], [30, 60]],
        'tree, population 2,000': [[20, 40], [30, 60]],
        'blt, population 1,000': [[20, 20], [30, 30]],
        'blt, population 2,000': [[20, 20], [30, 30]],
    }
    single = plots.plans(rows[:2], 'rounds', ['rho'])
    assert len(single.axes[0].lines) == 1
    single.savefig(tmp_path / 'plans.png')
