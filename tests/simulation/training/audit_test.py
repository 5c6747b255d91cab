"""Runs with an audit: canaries take part, scores are written, and a resumed run has the same."""

import json
import shutil

import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting.measured.measured import AUDIT, Scores
from dpfl.accounting.records import archive
from dpfl.accounting.reports import two_reports
from dpfl.accounting.sampling import monte_carlo
from dpfl.aggregators.noise import draws
from dpfl.errors import ArgumentError
from dpfl.simulation import public_copy, run_directory
from dpfl.simulation.training import train
from tests import forked_binaries
from tests.simulation.training import small_config

pytestmark = [pytest.mark.tff, pytest.mark.standard]

_CANARIES = 400
_AUDITED = small_config.BLT.with_values({'audit': True, 'audit_canaries': _CANARIES})


@pytest.fixture(name='run')
def _run():
    """Directory and result."""
    result = small_config.finished(_AUDITED)
    return result.directory, result


def test_the_report_says_what_was_measured(run):
    path, result = run
    found = result.report.measured
    assert found is not None
    assert (found.releases.observed, found.releases.unobserved) == (200, 200)
    # 200 scores of deviation 1: outside of these ends with probability below 1e-6. The sum of real
    # updates can only lower the score.
    assert -0.37 < found.releases.null_mean < 0.37
    assert -0.37 < found.releases.mean < found.mu_of_canaries + 0.37
    assert not found.exceeds_claim and found.verdict == 'not refuted'
    # It would have shown these.
    assert min(found.sums.power.values()) > 0.999
    assert set(found.sums.power) >= {'half the noise', 'no noise', 'no clipping'}
    text = (path / archive.PAGE).read_text()
    assert all(f'| {name} | 100 % | not seen |' in text for name in found.sums.power)
    assert found.mu_of_canaries == pytest.approx(result.report.plan.mu, rel=1e-6)
    values = json.loads((path / archive.REPORT).read_text())
    assert values['measured']['trials'] == _CANARIES
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


def test_every_reader_gets_the_same_audit(run, tmp_path):
    path, result = run
    expected = result.report.measured.to_dict()
    names = ('mu_claimed', 'mu_lower', 'epsilon_claimed', 'epsilon_lower', 'epsilon_estimate')
    assert all(isinstance(expected[name], float) for name in names)
    done = forked_binaries.run('audit_privacy', f'--run_dir={path}')
    assert done.returncode == 0 and 'What an audit cannot show' in done.stdout
    done = forked_binaries.run('audit_privacy', f'--run_dir={tmp_path / "none"}')
    assert done.returncode == 2 and 'must be a directory' in done.stderr
    done = forked_binaries.run('audit_privacy', f'--run_dir={path}', '--format=json')
    assert (done.returncode, json.loads(done.stdout)) == (0, expected)
    done = forked_binaries.run('audit_privacy', f'--run_dir={path}', '--rounds=4')
    assert done.returncode == 2
    assert done.stderr.strip() == 'error: --rounds: cannot be combined with --run_dir'

    record = archive.read_plan(path)
    copied = public_copy.write(path, tmp_path / 'copy', record)
    assert {AUDIT, 'audit.html'} <= set(copied)
    assert json.loads((tmp_path / 'copy' / archive.REPORT).read_text())['measured'] == expected


def test_a_run_with_a_fault_is_refuted_aloud(tmp_path, monkeypatch):
    of_round = draws.of_round
    monkeypatch.setattr(
        draws, 'of_round', lambda root, t, context: of_round(root, t // 2, np.zeros(1))
    )
    result = train(_AUDITED, tmp_path / 'run')
    found = result.report.measured
    # The lower bound of the canaries does not see it.
    assert (found.verdict, found.exceeds_claim) == ('refuted', False)
    page = (tmp_path / 'run' / archive.PAGE).read_text()
    assert 'the noise of rounds 1 and 2 is correlated' in page
    assert 'Do not rely on the guarantee' in page
    assert '**The audit of the run refutes what follows (the noise of rounds 1 and 2' in page
    assert '(refuted by its audit' in page
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
        two_reports.guarantee([result.report] * 2)
    with pytest.raises(ArgumentError, match='warm_start=.*audit refutes'):
        train(_AUDITED.with_values({'warm_start': run, 'noise_seed': 1}), copy)


def test_canaries_change_neither_the_plan_nor_who_takes_part(run, tmp_path):
    plain, audited = small_config.finished(), run[1]
    path = small_config.copied(tmp_path / 'run')
    assert plain.report.plan == audited.report.plan
    assert plain.report.measured is None and not (path / AUDIT).exists()
    assert plain.report.observed == audited.report.observed
    pairs = zip(plain.weights, audited.weights, strict=True)
    assert any(not np.array_equal(one, other) for one, other in pairs)
    done = forked_binaries.run('audit_privacy', f'--run_dir={path}')
    assert done.returncode == 2 and 'has no audit; train --audit' in done.stderr
    with pytest.raises(ArgumentError, match='audit'):
        train(_AUDITED, path, resume=True)
    path = small_config.copied(tmp_path / 'audited', _AUDITED)
    with pytest.raises(ArgumentError, match='rounds=8: must be 4: the canaries'):
        train(_AUDITED.with_values({'rounds': 8}), path, resume=True)


_COMBINED = {
    'secagg': {'secagg': True, 'secagg_bits': 20},
    'adaptive clip': {
        'adaptive_clip': True,
        'restart_first': 1,
        'restart_every': 2,
        'count_stddev': 2.0,
        **small_config.TREE,
    },
    'bins': {'sampling': 'balls_in_bins', 'min_separation': 1, 'groups': 4},
    'fedsgd without noise': {
        'client_update': 'fedsgd',
        'mechanism': 'none',
        'noise_multiplier': None,
        **small_config.NO_BUFFERS,
    },
}


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', _COMBINED)
def test_canaries_pass_through_every_other_part(name, tmp_path, monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
    config = _AUDITED.with_values(_COMBINED[name])
    result = train(config, tmp_path / 'run')
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
