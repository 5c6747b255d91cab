"""What pages say of tests and of figures is true: tests exist, points can be computed again."""

import csv
import re

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from scripts import choosing_figures
from tests import paths

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
