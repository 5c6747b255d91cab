import csv
import functools
import json
import math
import os

import pytest

from dpfl import Participation, mechanisms
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
    flags = ('--only=002/fig10', f'--output_dir={tmp_path / "new"}', '--format=json')
    done = _run(*flags, check=True)
    assert all(' figures (' in line for line in done.stderr.splitlines()), done.stderr
    (result,) = json.loads(done.stdout)
    assert (result['figure'], result['match']) == ('002/fig10', True)
    (check,) = result['checks']
    assert check['id'] == '002/fig10/decay' and check['match'] is True
    assert check['computed']['ratio_to_400'] < 1e-6
    assert {path.name for path in (tmp_path / 'new').iterdir()} == {
        '002_fig10.png',
        '002_fig10.csv',
        'checks.json',
    }
    assert (tmp_path / 'new' / '002_fig10.png').read_bytes().startswith(b'\x89PNG')
    assert json.loads((tmp_path / 'new' / 'checks.json').read_text()) == [result]
    points = _points(tmp_path / 'new' / '002_fig10.csv', '(a) C', 'BLT, b = 400')
    assert points[1] == pytest.approx(0.0070314825 + 0.1061380690 + 0.1898159060 + 0.1966594748)


def _changed(tmp_path, name, **changes):
    path = tmp_path / 'statements.json'
    path.write_text(json.dumps([{**_ENTRIES[name], **changes}]))
    return f'--statements={path}'


@pytest.mark.standard
def test_a_wrong_statement_is_found(tmp_path):
    wrong = {'ratio_to_400': 1e-9, 'ratio_to_1000': 1}
    flag = _changed(tmp_path, '002/fig10/decay', published=wrong)
    done = _run('--only=002/fig10', flag, f'--output_dir={tmp_path}', '--format=json')
    assert done.returncode == 1, done.stderr
    assert all(' figures (' in line for line in done.stderr.splitlines()), done.stderr
    (result,) = json.loads(done.stdout)
    assert result['match'] is False and result['checks'][0]['published'] == wrong


@pytest.fixture(scope='module', name='everything')
def _everything(tmp_path_factory):
    """The complete command, which finds no kept results: minutes."""
    directory = tmp_path_factory.mktemp('figures')
    kept = {**os.environ, 'DPFL_CACHE_DIR': str(tmp_path_factory.mktemp('kept'))}
    done = binaries.run('reproduce_figures', f'--output_dir={directory}', '--format=json', env=kept)
    assert done.returncode == 0, done.stderr
    assert all(' figures (' in line for line in done.stderr.splitlines()), done.stderr
    results = {result['figure']: result for result in json.loads(done.stdout)}
    return directory, results, kept['DPFL_CACHE_DIR']


@pytest.mark.exhaustive
def test_every_figure_is_drawn_and_every_statement_is_compared(everything):
    directory, results, _ = everything
    assert list(results) == [recipe.name for recipe in checks.RECIPES]
    compared = [check for result in results.values() for check in result['checks']]
    assert {check['id'] for check in compared} >= set(_ENTRIES)
    assert len({check['id'] for check in compared}) == len(compared)
    for result in results.values():
        assert result['match'] is True
    matches = [check['match'] for check in compared]
    assert (matches.count(True), matches.count(False), matches.count(None)) == (116, 0, 11)
    assert len(list(directory.glob('*.png'))) == len(list(directory.glob('*.csv'))) == len(results)


@pytest.mark.exhaustive
def test_losses_of_bandmf_are_those_of_orthogonal_columns_of_norm_1(everything, monkeypatch):
    directory, _, kept = everything
    monkeypatch.setenv('DPFL_CACHE_DIR', kept)
    path = directory / '002_fig2.csv'
    title = '2 participations, 2,000 rounds'
    band = mechanisms.optimize_banded(Participation(2000, 400), 400)
    points = _points(path, title, 'BandMF, 400 bands')
    for separation in (400, 600, 1000):
        assert points[separation] == pytest.approx(band.rms_error() * math.sqrt(2))
    relative = _points(path, f'{title}, relative', 'BandMF, 400 bands')
    blt = _points(path, title, 'BLT (k = 2, mean)')
    assert relative[500] == pytest.approx(points[500] / blt[500])
