"""The binaries that attack and audit: what they print of a run, and how runs are pooled."""

import csv
import dataclasses
import json
import math

import pytest

from dpfl.errors import ArgumentError
from experiments.studies.attacks import exposure, secrets
from experiments.studies.attacks import exposure_rows as exposures
from tests import forked_binaries
from tests.studies.attacks import attacked_runs

pytestmark = [pytest.mark.tff, pytest.mark.standard]

_AUDITED = (
    '--mechanism=blt',
    '--blt_decay=0.9,0.4',
    '--blt_scale=0.2,0.3',
    '--rounds=6',
    '--min_separation=2',
    '--noise_multiplier=1',
    '--delta=1e-6',
    '--trials=512',
    '--seed=1',
)


def test_a_run_is_attacked():
    run = attacked_runs.private()
    flags = [f'--run_dir={run.directory}', '--others=40']
    found = json.loads(
        forked_binaries.run('studies.attack_membership', *flags, '--format=json', check=True).stdout
    )
    assert (found['members'], found['others'], found['members_are']) == (16, 40, 'took part')
    loss = found['attacks']['loss']
    assert [test['target_fpr'] for test in loss['tests']] == [0.001, 0.01, 0.1]
    assert not any(test['exceeds'] for test in (*loss['tests'], loss['best']))


def test_the_exposure_of_a_run_is_measured_and_drawn(tmp_path):
    run = attacked_runs.private()
    done = forked_binaries.run(
        'studies.measure_exposure',
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


def _changed(run, **values):
    return dataclasses.replace(run, config=run.config.with_values(values))


def test_runs_that_differ_in_their_seeds_are_pooled_and_others_are_not():
    run = attacked_runs.private()
    measured = secrets.measure(run)
    alone = exposures.rows([(run, measured)])
    pooled = exposures.rows([(run, measured), (_changed(run, seed=1), measured)])
    assert len(pooled) == len(alone) == 6
    for one, two, kind in zip(alone, pooled, measured.kinds, strict=True):
        assert (one['runs'], two['runs']) == (1, 2)
        assert two['secrets'] == 2 * one['secrets'] == 4
        assert two['mean_exposure'] == pytest.approx(one['mean_exposure'])
        assert two['p_value'] == exposure.chance(kind.exposures * 2)
    other = _changed(run, client_learning_rate=0.1)
    table = exposures.rows([(run, measured), (other, measured)])
    assert [row['configuration'] for row in table] == [0] * 6 + [1] * 6
    with pytest.raises(ArgumentError) as refused:
        exposures.rows([(run, measured), (run, measured)])
    assert refused.value.name == 'run_dir'


def test_a_run_without_a_guarantee_has_no_epsilon_in_its_row():
    run = attacked_runs.overfit()
    rows = exposures.rows([(run, secrets.measure(run))])
    assert run.epsilon == math.inf
    assert {row['epsilon'] for row in rows} == {None}


def test_an_audit_is_printed_as_json():
    done = forked_binaries.run('audit_privacy', *_AUDITED, '--resume_after=3', '--format=json')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.5 * found['mu_claimed'] < found['mu_lower'] < found['mu_claimed']
    assert 0 < found['epsilon_lower'] < found['epsilon_of_mu_lower'] < found['epsilon_claimed']
    assert (found['trials'], found['confidence'], found['resume_after']) == (512, 0.95, 3)
    assert any('simulation' in each for each in found['assumptions'])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'flags',
    [
        '--adaptive_clip --restart_first=2 --restart_every=3',
        '--secagg --secagg_scale=100000 --model_dimension=64',
        '--noise=hardened',
        '--supplied_noise --adjacency=replace_one',
    ],
)
def test_features_are_audited(flags):
    done = forked_binaries.run('audit_privacy', *_AUDITED, *flags.split(), '--format=text')
    assert done.returncode == 0, done.stderr
    assert 'mu_lower' in done.stdout and 'exceeded' in done.stdout
