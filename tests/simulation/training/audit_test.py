"""Runs with an audit: canaries take part, scores are written, and a resumed run has the same."""

import json
import shutil

import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting.measured.measured import AUDIT, Scores
from dpfl.accounting.records import archive
from dpfl.accounting.reports import joint
from dpfl.accounting.sampling import monte_carlo
from dpfl.aggregators.noise import keys
from dpfl.cli.command import command_line
from dpfl.cli.results import audited_run, public_copy
from dpfl.errors import ArgumentError
from dpfl.simulation import run_directory
from dpfl.simulation.training import TrainConfig, train
from tests import forked_binaries, json_schema
from tests.simulation.training import small_config

pytestmark = [pytest.mark.tff, pytest.mark.standard]

_CANARIES = 400
_AUDITED = small_config.BLT.with_values({'audit': True, 'audit_canaries': _CANARIES})


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    path = tmp_path_factory.mktemp('audited') / 'run'
    return path, train(_AUDITED, path, progress=False)


def test_the_report_says_what_was_measured(run):
    path, result = run
    found = result.report.measured
    assert found is not None
    assert (found.releases.observed, found.releases.unobserved) == (200, 200)
    # 200 scores of deviation 1: outside of these ends with probability below 1e-6. The sum of real
    # updates can only lower the score.
    assert -0.37 < found.releases.null_mean < 0.37
    assert -0.37 < found.releases.mean < found.mu_of_canaries + 0.37
    assert not found.exceeds_claim
    assert found.mu_of_canaries == pytest.approx(result.report.plan.mu, rel=1e-6)
    values = json.loads((path / archive.REPORT).read_text())
    json_schema.require_report(values)
    assert values['measured']['trials'] == _CANARIES
    assert '## Measured' in (path / archive.PAGE).read_text()
    page = (path / 'audit.html').read_text()
    assert page.count('<svg') == 2 and 'What an audit cannot show' in page


def test_the_directory_is_verified_with_its_audit(run, tmp_path):
    path, result = run
    found = run_directory.verify(path)
    assert found.differences == ()
    assert found.report == result.report
    changed = shutil.copytree(path, tmp_path / 'run')
    scores = Scores.load(changed / AUDIT)
    scores.releases[scores.took_part] = 0.0
    (changed / AUDIT).write_bytes(scores.to_bytes())
    differences = ' '.join(run_directory.verify(changed).differences)
    assert 'measured.epsilon_estimate is' in differences
    (changed / AUDIT).write_bytes(b'PK')
    assert 'not the audit of a run' in ' '.join(run_directory.verify(changed).differences)
    (changed / AUDIT).unlink()
    assert 'measured is' in ' '.join(run_directory.verify(changed).differences)


def test_an_audited_run_shows_its_audit(run, tmp_path):
    path, result = run
    found = audited_run.audited(str(path))
    assert found == result.report.measured.to_dict()
    names = ('mu_claimed', 'mu_lower', 'epsilon_claimed', 'epsilon_lower', 'epsilon_estimate')
    assert all(isinstance(found[name], float) for name in names)
    assert json.loads(audited_run.render(str(path), 'json')) == found
    assert 'What an audit cannot show' in audited_run.render(str(path), 'text')
    with pytest.raises(command_line.UsageError, match='must be a directory'):
        audited_run.audited(str(tmp_path / 'none'))


def test_the_binary_prints_the_audit_of_a_run(run):
    path, result = run
    done = forked_binaries.run('audit_privacy', f'--run_dir={path}', '--format=json')
    assert (done.returncode, json.loads(done.stdout)) == (0, result.report.measured.to_dict())
    done = forked_binaries.run('audit_privacy', f'--run_dir={path}', '--rounds=4')
    assert done.returncode == 2
    assert done.stderr.strip() == 'error: --rounds: cannot be combined with --run_dir'


def test_a_public_copy_has_the_audit(run, tmp_path):
    path, result = run
    names = public_copy.write(
        path, tmp_path / 'copy', archive.read_plan(path), public_heldout=False
    )
    assert {AUDIT, 'audit.html'} <= set(names)
    values = json.loads((tmp_path / 'copy' / archive.REPORT).read_text())
    assert values['measured'] == result.report.measured.to_dict()


def test_a_run_that_passes_says_which_faults_it_would_have_shown(run):
    found = run[1].report.measured
    assert found.verdict == 'not refuted'
    assert min(found.sums.power.values()) > 0.999
    assert set(found.sums.power) >= {'half the noise', 'no noise', 'no clipping'}
    page = (run[0] / archive.PAGE).read_text()
    assert 'Verdict: **not refuted**' in page
    for name in found.sums.power:
        assert f'| {name} | 100 % | not seen |' in page


def test_a_run_with_a_fault_is_refuted_aloud(tmp_path, monkeypatch):
    of_round = keys.of_round
    monkeypatch.setattr(
        keys, 'of_round', lambda root, t, context: of_round(root, t // 2, np.zeros(1))
    )
    result = train(_AUDITED, tmp_path / 'run', progress=False)
    found = result.report.measured
    # The lower bound of the canaries does not see it.
    assert (found.verdict, found.exceeds_claim) == ('refuted', False)
    page = (tmp_path / 'run' / archive.PAGE).read_text()
    assert 'the noise of rounds 1 and 2 is correlated' in page
    assert 'Do not rely on the guarantee' in page
    assert '**The audit of the run refutes what follows (the noise of rounds 1 and 2' in page
    assert '**the audit of the run refutes the guarantee**' in page
    assert accounting.PrivacyReport.from_json(result.report.to_json()) == result.report
    done = forked_binaries.run('audit_privacy', f'--run_dir={tmp_path / "run"}')
    assert done.returncode == 1
    assert done.stderr.startswith('error: the noise of rounds 1 and 2 is correlated')
    # Nothing goes on from a guarantee that is refuted.
    run, copy = (f'{tmp_path / name}' for name in ('run', 'copy'))
    done = forked_binaries.run('report_privacy', f'--run_dir={run}')
    assert done.returncode == 1 and 'the audit refutes the guarantee' in done.stderr
    done = forked_binaries.run('export_run', f'--run_dir={run}', f'--output_dir={copy}', '--public')
    assert done.returncode == 2 and 'has a guarantee that its audit refutes' in done.stderr
    with pytest.raises(ArgumentError, match='audit'):
        joint.guarantee([result.report] * 2)
    with pytest.raises(ArgumentError, match='fork_from=.*audit refutes'):
        train(_AUDITED.with_values({'fork_from': run, 'noise_seed': 1}), copy, progress=False)


@pytest.mark.exhaustive
def test_canaries_change_neither_the_plan_nor_who_takes_part(run, tmp_path):
    plain = train(small_config.BLT, tmp_path / 'run', progress=False)
    assert plain.report.plan == run[1].report.plan
    assert plain.report.measured is None
    assert plain.report.observed == run[1].report.observed
    assert not (tmp_path / 'run' / AUDIT).exists()
    differ = [
        not np.array_equal(one, other)
        for one, other in zip(plain.weights, run[1].weights, strict=True)
    ]
    assert any(differ)
    with pytest.raises(command_line.UsageError, match='has no audit; train --audit'):
        audited_run.audited(str(tmp_path / 'run'))
    with pytest.raises(ArgumentError, match='audit'):
        train(_AUDITED, tmp_path / 'run', resume=True, progress=False)


def test_an_audited_run_has_no_more_rounds_than_planned(run):
    longer = _AUDITED.with_values({'rounds': 8})
    with pytest.raises(ArgumentError, match='rounds=8: must be 4: the canaries'):
        train(longer, run[0], resume=True, progress=False)


_COMBINED = {
    'secagg': {'secagg': True, 'secagg_scale': 2.0**12},
    'adaptive clip': {
        'adaptive_clip': True,
        'restart_first': 1,
        'restart_every': 2,
        'count_stddev': 2.0,
        'mechanism': 'tree',
        'blt_decay': None,
        'blt_scale': None,
    },
    'bins': {'sampling': 'balls_in_bins', 'min_separation': 1, 'groups': 4},
    'fedsgd without noise': {
        'client_update': 'fedsgd',
        'mechanism': 'none',
        'noise_multiplier': None,
        'blt_decay': None,
        'blt_scale': None,
    },
}


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _COMBINED)
def test_canaries_pass_through_every_other_part(name, tmp_path, monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
    config = _AUDITED.with_values(_COMBINED[name])
    result = train(config, tmp_path / 'run', progress=False)
    found = result.report.measured
    assert -0.37 < found.releases.null_mean < 0.37
    assert found.sums.failures == ()
    if name == 'fedsgd without noise':
        # Nothing is claimed, and canaries are seen through the sum of four clients alone.
        assert found.to_dict()['epsilon_claimed'] is None
        assert found.releases.mean > 2
    else:
        most = found.mu_of_canaries or 1.0
        assert -0.37 < found.releases.mean < most + 0.37
    assert run_directory.verify(tmp_path / 'run').differences == ()


@pytest.mark.parametrize(
    'change, message',
    [
        ({'noise': 'hardened'}, 'noise=hardened'),
        ({'clipping': 'per_layer'}, 'clipping=per_layer'),
        ({'estimator': 'clipped'}, 'estimator=clipped'),
        ({'example_cap': 5.0}, 'example_cap'),
        ({'stop_at_accuracy': 0.5}, 'stop_at_accuracy'),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(change, message):
    with pytest.raises(ArgumentError, match='audit=True: cannot be combined with') as caught:
        _AUDITED.with_values(change)
    assert message in str(caught.value)
    assert '\n' not in str(caught.value)


def test_canaries_need_an_audit():
    with pytest.raises(ArgumentError, match='audit_canaries'):
        _AUDITED.with_values({'audit_canaries': 3})
    assert TrainConfig().audit.canaries == 0
    assert TrainConfig().with_values({'audit': True}).audit.canaries == 1000
