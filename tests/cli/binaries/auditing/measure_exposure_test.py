import csv
import dataclasses
import json
import math

import pytest

from dpfl.auditing import exposure
from dpfl.cli.results import exposures
from dpfl.errors import ArgumentError
from dpfl.simulation.attacks import secrets
from tests import attacked_runs, forked_binaries

pytestmark = pytest.mark.tff


def test_a_run_is_measured_and_drawn(tmp_path):
    run = attacked_runs.private()
    done = forked_binaries.run(
        'measure_exposure',
        f'--run_dirs={run.directory}',
        f'--plot={tmp_path / "exposure.png"}',
        f'--data={tmp_path / "exposure.csv"}',
        '--format=json',
        check=True,
    )
    found = json.loads(done.stdout)
    measured = secrets.measure(run)
    assert found['runs'] == [measured.to_dict()]
    assert [row['mean_exposure'] for row in found['rows']] == [
        kind.mean for kind in sorted(measured.kinds, key=lambda kind: (kind.copies, kind.holders))
    ]
    assert (tmp_path / 'exposure.png').read_bytes()[1:4] == b'PNG'
    with open(tmp_path / 'exposure.csv', newline='') as file:
        rows = list(csv.DictReader(file))
    assert [float(row['p_value']) for row in rows] == [row['p_value'] for row in found['rows']]


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ([], '--run_dirs: must be given'),
        (['--run_dirs=nowhere'], '--run_dirs=nowhere: must be the directory of a finished run'),
        (['--run_dirs=nowhere', '--ranking=best'], 'ranking'),
        (['--run_dirs=nowhere', '--samples=1'], '--samples=1: must be'),
        (['--run_dirs=nowhere', '--plot=a.b'], '--plot=a.b: must end in'),
    ],
)
def test_bad_flags_give_one_line(given, message):
    done = forked_binaries.run('measure_exposure', *given)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count('\n') == 1


def _seeded(run, seed):
    return dataclasses.replace(run, config=run.config.with_values({'seed': seed}))


def test_runs_that_differ_in_their_seeds_are_pooled():
    run = attacked_runs.private()
    measured = secrets.measure(run)
    alone = exposures.rows([(run, measured)])
    pooled = exposures.rows([(run, measured), (_seeded(run, 1), measured)])
    assert len(pooled) == len(alone) == 6
    for one, two, kind in zip(alone, pooled, measured.kinds, strict=True):
        assert (one['runs'], two['runs']) == (1, 2)
        assert two['secrets'] == 2 * one['secrets'] == 4
        assert two['mean_exposure'] == pytest.approx(one['mean_exposure'])
        assert two['p_value'] == exposure.chance(kind.exposures * 2)


def test_other_configurations_are_not_pooled_and_come_in_order():
    run = attacked_runs.private()
    measured = secrets.measure(run)
    other = dataclasses.replace(run, config=run.config.with_values({'client_learning_rate': 0.1}))
    table = exposures.rows([(run, measured), (other, measured)])
    assert [row['configuration'] for row in table] == [0] * 6 + [1] * 6
    assert {row['epsilon'] for row in table} == {run.epsilon}
    figure = exposures.draw(table)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert 'by chance' in labels and 'most that the guarantee allows' in labels


def test_the_same_secrets_twice_are_refused():
    run = attacked_runs.private()
    measured = secrets.measure(run)
    with pytest.raises(ArgumentError) as refused:
        exposures.rows([(run, measured), (run, measured)])
    assert refused.value.name == 'run_dir'


def test_a_run_without_a_guarantee_has_no_epsilon_in_its_row():
    run = attacked_runs.overfit()
    rows = exposures.rows([(run, secrets.measure(run))])
    assert run.epsilon == math.inf
    assert {row['epsilon'] for row in rows} == {None}
