"""A whole run on a toy problem: what it leaves behind, and that it learns what the plan says."""

import json

import pytest

from dpfl import ParticipationLog, accounting
from dpfl.accounting.records import archive
from tests import runs
from tests.simulation import toy_experiment

pytestmark = pytest.mark.usefixtures('undrawn')


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    path = tmp_path_factory.mktemp('run')
    experiment = toy_experiment.in_numpy(train_metrics_released=True)
    return path, experiment, toy_experiment.run(experiment, path)


def test_metrics_have_a_row_for_each_round(run):
    path, experiment, _ = run
    rows = runs.metrics(path)
    assert [int(row['round']) for row in rows] == [1, 2, 3, 4]
    assert {'round', 'loss', 'accuracy', 'epsilon', 'seconds', 'train_loss'} <= set(rows[0])
    assert [bool(row['loss']) for row in rows] == [False, True, False, True]
    epsilons = [float(row['epsilon']) for row in rows]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == experiment.plan.epsilon(1e-6, experiment.accountant)
    assert float(rows[-1]['loss']) == archive.read_journal(path).rows()[-1]['loss']


def test_report_and_log_agree_with_the_run(run):
    path, experiment, report = run
    text = (path / 'privacy_report.json').read_text()
    assert accounting.PrivacyReport.from_json(text) == report
    values = json.loads(text)
    assert (values['rho'], values['basis']) == (experiment.plan.rho, 'plan')
    assert values['train_metrics_released'] and values['noise_is_seeded']
    assert 'without noise' in values['not_covered'][0]
    assert archive.OWN_LOOP in values['not_covered']
    log = ParticipationLog.load(path / 'participation.npz')
    assert log == ParticipationLog(map(experiment.sampler.cohort, range(toy_experiment.ROUNDS)))
    assert 'Simulation' in (path / 'privacy_report.md').read_text()


@pytest.mark.parametrize('planned, warnings', [(3, 0), (30, 1)])
def test_a_cohort_far_from_the_plan_is_mentioned_once(planned, warnings, tmp_path, caplog):
    fields = {'clients_per_round': planned}
    toy_experiment.run(toy_experiment.in_numpy(plan_fields=fields), tmp_path)
    found = [each.getMessage() for each in caplog.records if 'clients came' in each.getMessage()]
    assert len(found) == warnings
    if found:
        assert found[0].startswith('round 1: 3 clients came, 30 are planned')
        assert 'mean update is 0.1 times' in found[0]
    # Nobody asked for these.
    assert 'train_' not in (tmp_path / 'metrics.csv').read_text()


def test_an_empty_address_leaves_ray_out(tmp_path):
    """`--resume --ray=`: a run that began on Ray could only go on with Ray."""
    toy_experiment.run(toy_experiment.in_numpy(ray='', ray_timeout=9.0), tmp_path)
    assert 'ray_losses' not in (tmp_path / 'ledger.jsonl').read_text()


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(delta=0), 'delta=0: must be'),
        (dict(accountant='guess'), 'accountant=guess: must be one of'),
        (dict(eval_every=0), 'eval_every=0: must be'),
    ],
)
def test_bad_fields_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        toy_experiment.in_numpy(**changes)
