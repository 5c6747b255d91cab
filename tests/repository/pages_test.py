"""Losses and other numbers in tables and figures of pages are computed again."""

import csv
import re

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.mechanism import MechanismConfig
from experiments.studies.shared import grid
from scripts import choosing_figures
from tests import forked_binaries, paths
from tests.studies import scripts_of_studies

_DOCS = paths.ROOT / 'docs'
_CHOOSING = _DOCS / 'choosing.md'


def _rows(path):
    with path.open(newline='') as file:
        return list(csv.DictReader(file))


def _schema(row):
    names = ('rounds', 'min_separation', 'max_participations')
    return Participation(*(int(row[name]) for name in names))


@pytest.mark.standard
def test_losses_of_the_page_on_choosing_are_those_of_the_mechanisms():
    rows = _rows(choosing_figures.MEMORY_CSV)
    plain = dict(choosing_figures.cheap_mechanisms(2052))
    compared = 0
    for row in rows:
        schema = _schema(row)
        if row['mechanism'] in plain:
            for_max = for_rms = plain[row['mechanism']]
        elif (row['mechanism'], row['size']) == ('blt', '2'):
            for_max = mechanisms.optimize_blt(schema, 2)
            for_rms = mechanisms.optimize_blt(schema, 2, loss='rms')
        elif (row['mechanism'], row['size']) == ('scaled_blt', '2'):
            for_max = mechanisms.optimize_scaled_blt(schema, 2)
            for_rms = mechanisms.optimize_scaled_blt(schema, 2, loss='rms')
        else:
            continue
        compared += 1
        found = [for_max.num_buffers(), for_max.max_loss(schema), for_rms.rms_loss(schema)]
        stated = [float(row[name]) for name in ('copies', 'max_loss', 'rms_loss')]
        np.testing.assert_allclose(found, stated, rtol=1e-4)
    assert compared == 12


def test_the_table_on_choosing_has_the_points_of_the_figure():
    points = _rows(choosing_figures.MEMORY_CSV)
    pattern = r'^\| [^|]+ \| (\d+) \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \|$'
    table = re.findall(pattern, _CHOOSING.read_text(), re.MULTILINE)
    assert len(table) == 18
    for copies, *stated in table:
        for separation, losses in (('342', stated[:2]), ('2052', stated[2:])):
            candidates = [
                [f'{float(row[name]):.4g}' for name in ('max_loss', 'rms_loss')]
                for row in points
                if row['min_separation'] == separation and row['copies'] == copies
            ]
            assert losses in candidates


def test_ratios_of_the_page_follow_from_the_points():
    ratios = {}
    for row in _rows(choosing_figures.SAMPLING_CSV):
        ratio = float(row['sampled_noise']) / float(row['blt_noise'])
        ratios.setdefault(row['passes'], []).append(f'{ratio:.2f}')
    text = _CHOOSING.read_text()
    for passes, values in ratios.items():
        assert f'| {passes} | {" | ".join(values)} |' in text


@pytest.mark.exhaustive
def test_a_point_of_the_figure_on_sampling_is_computed_again():
    rows = _rows(choosing_figures.SAMPLING_CSV)
    (stated,) = [row for row in rows if row['passes'] == '1' and float(row['epsilon']) == 8]
    found = choosing_figures.sampling_row(1, 8.0)
    for name in ('sampled_noise', 'blt_noise', 'epsilon_without_amplification'):
        np.testing.assert_allclose(float(found[name]), float(stated[name]), rtol=2e-3)


# Column of the losses, by study of scaled columns.
_COLUMNS = {'columns': ('studies.md', 1), 'commit_columns': ('real_text_results.md', 2)}
_OPTIMIZERS = {
    'scaled': mechanisms.optimize_scaled_blt,
    'block': mechanisms.optimize_block_blt,
}


def _check(made, schema, buffers, shown):
    """Losses that the page shows: searches on other machines end elsewhere in a flat valley."""
    assert made.kernel().buffers <= int(buffers)
    for loss, value, room in zip(('max', 'rms'), shown, (1e-3, 5e-3), strict=True):
        found = getattr(made, f'{loss}_loss')(schema)
        assert float(value) * (1 - 2 * room) <= found <= float(value) * (1 + room)


@pytest.mark.standard
def test_the_table_of_the_study_of_mechanisms_has_their_losses(tmp_path):
    study, run_study = grid.load('mechanisms'), scripts_of_studies.load('run_study')
    (tmp_path / 'prepared').mkdir()
    for job in run_study.preparations(study, tmp_path, study.seeds):
        forked_binaries.run(job.binary, *job.lines, check=True)
    text = (_DOCS / 'papers' / 'studies.md').read_text()
    table = text.partition('| buffers | max loss | rms loss |\n')[2].partition('\n\n')[0]
    cells = [re.split(r' *\| *', line.strip('| ')) for line in table.splitlines()[1:]]
    shown = {name: numbers for name, *numbers in cells}
    compared = set()
    for (name, seed), job in run_study.runs(study, tmp_path, study.seeds).items():
        line, _, value = name.partition('/')
        if seed != study.seeds[0] or value != '2' or job.flags['mechanism'] == 'none':
            continue
        schema = _schema(job.flags)
        config = MechanismConfig(
            mechanism=job.flags['mechanism'], strategy=job.flags.get('strategy')
        )
        made = mechanism_lib.build(config, schema.rounds)
        _check(made, schema, shown[line][0], shown[line][1:])
        compared.add(line)
    assert compared == set(shown)


@pytest.mark.standard
@pytest.mark.parametrize('name', _COLUMNS)
def test_the_tables_of_scaled_columns_have_the_losses_of_their_studies(name):
    study = grid.load(name)
    schema = _schema(study.points[0].flags)
    page, column = _COLUMNS[name]
    text = (_DOCS / 'papers' / page).read_text()
    shown = re.findall(r'^\| (scaled|block) BLT-(\d) \|(.*)\|$', text, re.MULTILINE)
    assert {f'{kind} BLT-{size}' for kind, size, _ in shown} == {
        line for line in study.lines if line.startswith(('scaled', 'block'))
    }
    bounds = [mechanisms.loss_lower_bound(schema, loss) for loss in ('max', 'rms')]
    for kind, size, row in shown:
        made = _OPTIMIZERS[kind](schema, num_buffers=int(size), loss='max')
        _check(made, schema, size, row.split('|')[column - 1 : column + 1])
        assert bounds[0] <= made.max_loss(schema) and bounds[1] <= made.rms_loss(schema)
