"""The tables of the docs have the losses of the mechanisms that the studies compare."""

import re

import pytest

from dpfl import Participation, mechanisms
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.mechanism import MechanismConfig
from experiments.studies.shared import grid
from tests import forked_binaries, paths
from tests.studies import scripts_of_studies

pytestmark = pytest.mark.standard

run_study = scripts_of_studies.load('run_study')

_PAPERS = paths.ROOT / 'docs' / 'papers'
_HEADING = '| mechanism | buffers | max loss | rms loss |'
_COLUMNS = {'columns': ('studies.md', 1), 'commit_columns': ('real_text_results.md', 2)}
_OPTIMIZERS = {
    'scaled': mechanisms.optimize_scaled_blt,
    'block': mechanisms.optimize_block_blt,
}


def _schema(flags):
    fields = ('rounds', 'min_separation', 'max_participations')
    return Participation(*(int(flags[field]) for field in fields))


def _check(made, schema, buffers, shown):
    """Losses that the page shows: searches on other machines end elsewhere in a flat valley."""
    assert made.kernel().buffers <= int(buffers)
    for loss, value, room in zip(('max', 'rms'), shown, (1e-3, 5e-3), strict=True):
        found = getattr(made, f'{loss}_loss')(schema)
        assert float(value) * (1 - 2 * room) <= found <= float(value) * (1 + room)


def test_the_table_of_the_study_has_its_losses(tmp_path):
    study = grid.load('mechanisms')
    (tmp_path / 'prepared').mkdir()
    for job in run_study.preparations(study, tmp_path, study.seeds, {}):
        forked_binaries.run(job.binary, *job.lines, check=True)
    table = (_PAPERS / 'studies.md').read_text().partition(_HEADING)[2].partition('\n\n')[0]
    shown = {}
    for line in table.splitlines()[2:]:
        name, *numbers = (cell.strip() for cell in line.strip('|').split('|'))
        shown[name] = numbers
    compared = set()
    for (name, seed), job in run_study.runs(study, tmp_path, study.seeds, {}).items():
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


@pytest.mark.parametrize('name', _COLUMNS)
def test_the_tables_of_scaled_columns_have_the_losses_of_their_studies(name):
    study = grid.load(name)
    schema = _schema(study.points[0].flags)
    page, column = _COLUMNS[name]
    text = (_PAPERS / page).read_text()
    shown = re.findall(r'^\| (scaled|block) BLT-(\d) \|(.*)\|$', text, re.MULTILINE)
    assert {f'{kind} BLT-{size}' for kind, size, _ in shown} == {
        line for line in study.lines if line.startswith(('scaled', 'block'))
    }
    bounds = [mechanisms.loss_lower_bound(schema, loss) for loss in ('max', 'rms')]
    for kind, size, row in shown:
        made = _OPTIMIZERS[kind](schema, num_buffers=int(size), loss='max')
        _check(made, schema, size, row.split('|')[column - 1 : column + 1])
        assert bounds[0] <= made.max_loss(schema) and bounds[1] <= made.rms_loss(schema)
