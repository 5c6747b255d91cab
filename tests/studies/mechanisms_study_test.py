"""The study of mechanisms has the lines of the published table, with the losses that docs show."""

import pytest

from dpfl.mechanisms import registry
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.privacy_config import MechanismConfig, ParticipationConfig
from dpfl.simulation.training.sampling_config import participation
from dpfl.studies import definition, jobs, work
from tests import paths

_DOCS = paths.ROOT / 'docs/papers/studies.md'
_HEADING = '| mechanism | buffers | max loss | rms loss |'


@pytest.fixture(scope='module')
def losses(tmp_path_factory):
    """Buffers, max loss and rms loss of each line with noise."""
    study, directory = definition.load('mechanisms'), tmp_path_factory.mktemp('study')
    (directory / 'prepared').mkdir()
    for job in jobs.preparations(study, directory, study.seeds, {}):
        work.run(job.binary, job.flags)
    found = {}
    for (name, seed), job in jobs.runs(study, directory, study.seeds, {}).items():
        line, _, value = name.partition('/')
        if seed != study.seeds[0] or value != '2' or job.flags['mechanism'] == 'none':
            continue
        schema = participation(
            ParticipationConfig(
                rounds=int(job.flags['rounds']),
                min_separation=int(job.flags['min_separation']),
                max_participations=int(job.flags['max_participations']),
            )
        )
        config = MechanismConfig(
            mechanism=job.flags['mechanism'], strategy=job.flags.get('strategy')
        )
        made = mechanism_lib.build(config, schema.rounds)
        found[line] = (
            made.kernel().buffers,
            made.max_loss(schema),
            made.rms_loss(schema),
        )
    return found


def test_the_study_has_every_mechanism_of_the_table_at_two_epsilons():
    study = definition.load('mechanisms')
    assert study.axis is not None and [*study.axis.values] == ['0.5', '2']
    assert {
        'no noise',
        'BandMF',
        'BandToep',
        'TreeAgg-Full',
        'TreeAgg (online)',
        'independent',
        *(f'BLT-{buffers}' for buffers in (2, 3, 4, 5)),
        *(f'BLT-{buffers} (k=1)' for buffers in (2, 3, 4, 5)),
    } == {*study.lines}
    (full,) = {point.flags['mechanism'] for point in study.points if point.line == 'TreeAgg-Full'}
    assert full == 'full_honaker_tree' and full in registry.ENTRIES


def test_losses_are_ordered_as_those_of_the_table(losses):
    worst = {line: each[1] for line, each in losses.items()}
    for loss in (1, 2):
        by_line = {line: each[loss] for line, each in losses.items()}
        assert by_line['BandMF'] < by_line['BandToep'] < by_line['BLT-3']
        assert by_line['TreeAgg-Full'] < by_line['TreeAgg (online)'] < by_line['independent']
        for buffers in (2, 3, 4, 5):
            several, once = by_line[f'BLT-{buffers}'], by_line[f'BLT-{buffers} (k=1)']
            assert several < once
            assert once < by_line['TreeAgg-Full'] or loss == 2
    assert worst['BLT-5'] <= worst['BLT-3'] * (1 + 1e-6) < worst['BLT-2']


def test_docs_show_the_losses(losses):
    lines = _DOCS.read_text().splitlines()
    start = lines.index(_HEADING) + 2
    shown = {}
    for line in lines[start : start + len(losses)]:
        name, *numbers = (cell.strip() for cell in line.strip('|').split('|'))
        shown[name] = numbers
    assert shown == {
        name: [str(buffers), f'{largest:.3f}', f'{mean:.3f}']
        for name, (buffers, largest, mean) in losses.items()
    }
