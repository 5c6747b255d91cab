from dpfl import plots


def test_training_curves_show_what_was_measured(tmp_path):
    rows = [{'round': 1, 'epsilon': 0.5}, {'round': 2, 'epsilon': 0.7, 'accuracy': 0.25}]
    figure = plots.training_curves(rows, {'best accuracy': 0.4})
    accuracy, epsilon = figure.axes
    assert accuracy.lines[0].get_xydata().tolist() == [[2, 0.25]]
    assert accuracy.lines[1].get_ydata() == [0.4, 0.4]
    assert accuracy.texts[0].get_text() == 'best accuracy 0.400'
    assert epsilon.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 0.7]]
    figure.savefig(tmp_path / 'curves.png')
