import csv
import functools
import json

import pytest

from dpfl.published.figures import checks
from tests import binaries, forked_binaries

_run = functools.partial(forked_binaries.run, 'reproduce_figures')
_ENTRIES = {entry['id']: entry for entry in json.loads(checks.PUBLISHED.read_text())}


def _points(path, panel, line):
    with open(path, newline='') as file:
        rows = [row for row in csv.DictReader(file) if (row['panel'], row['line']) == (panel, line)]
    return {float(row['x']): float(row['y']) for row in rows}


@pytest.mark.standard
def test_a_figure_is_drawn_written_and_compared(tmp_path):
    done = _run('--only=002/fig10', f'--output_dir={tmp_path}/new', '--format=json', check=True)
    assert all(' figures (' in line for line in done.stderr.splitlines()), done.stderr
    (result,) = json.loads(done.stdout)
    (check,) = result['checks']
    assert (result['figure'], check['id']) == ('002/fig10', '002/fig10/decay')
    assert result['match'] is check['match'] is True
    assert check['computed']['ratio_to_400'] < 1e-6
    written = tmp_path / 'new'
    names = {'002_fig10.png', '002_fig10.csv', 'checks.json'}
    assert {path.name for path in written.iterdir()} == names
    assert (written / '002_fig10.png').read_bytes().startswith(b'\x89PNG')
    assert json.loads((written / 'checks.json').read_text()) == [result]
    points = _points(written / '002_fig10.csv', '(a) C', 'BLT, b = 400')
    assert points[1] == pytest.approx(0.0070314825 + 0.1061380690 + 0.1898159060 + 0.1966594748)


@pytest.mark.exhaustive
def test_every_figure_is_drawn_and_every_statement_is_compared(tmp_path):
    """The complete command: minutes."""
    directory = tmp_path / 'figures'
    done = binaries.run('reproduce_figures', f'--output_dir={directory}', '--format=json')
    assert done.returncode == 0, done.stderr
    assert all(' figures (' in line for line in done.stderr.splitlines()), done.stderr
    results = json.loads(done.stdout)
    assert [result['figure'] for result in results] == [recipe.name for recipe in checks.RECIPES]
    assert all(result['match'] is True for result in results)
    compared = [check for result in results for check in result['checks']]
    assert {check['id'] for check in compared} >= set(_ENTRIES)
    assert len({check['id'] for check in compared}) == len(compared)
    matches = [check['match'] for check in compared]
    assert (matches.count(True), matches.count(False), matches.count(None)) == (116, 0, 11)
    assert len(list(directory.glob('*.png'))) == len(list(directory.glob('*.csv'))) == len(results)
