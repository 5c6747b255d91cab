"""The binary: what it prints, and what it refuses."""

import json

import pytest

from tests import forked_binaries

_FLAGS = (
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


@pytest.mark.tff
def test_an_audit_is_printed_as_json():
    done = forked_binaries.run('audit_privacy', *_FLAGS, '--resume_after=3', '--format=json')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.5 * found['mu_claimed'] < found['mu_lower'] < found['mu_claimed']
    assert 0 < found['epsilon_lower'] < found['epsilon_claimed']
    assert found['epsilon_lower'] < found['epsilon_of_mu_lower'] < found['epsilon_claimed']
    assert (found['trials'], found['confidence'], found['resume_after']) == (512, 0.95, 3)
    assert found['mechanism'] == 'blt'
    assert any('simulation' in each for each in found['assumptions'])


@pytest.mark.tff
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'flags',
    [
        ['--adaptive_clip', '--restart_first=2', '--restart_every=3'],
        ['--secagg', '--secagg_scale=100000', '--model_dimension=64'],
        ['--noise=hardened'],
        ['--supplied_noise', '--adjacency=replace_one'],
    ],
)
def test_features_are_audited(flags):
    done = forked_binaries.run('audit_privacy', *_FLAGS, *flags, '--format=text')
    assert done.returncode == 0, done.stderr
    assert 'mu_lower' in done.stdout
    assert 'exceeded' in done.stdout


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (['--mechanism=gaussian'], '--rounds: must be given'),
        (['--rounds=4', '--noise_multiplier=1'], '--mechanism: must be given'),
        (['--mechanism=gaussian', '--rounds=4'], '--noise_multiplier: must be given'),
        (
            ['--mechanism=gaussian', '--rounds=4', '--noise_multiplier=0'],
            '--noise_multiplier=0.0: must be > 0 for an audit',
        ),
        (
            ['--mechanism=gaussian', '--rounds=4', '--noise_multiplier=1', '--resume_after=4'],
            '--resume_after=4: must be an integer >= 1 and <= 3',
        ),
        (['--trials=3'], '--trials=3: must be an integer >= 64 and <= 16777216'),
        (['--confidence=1'], '--confidence=1.0: must be a finite number > 0 and < 1'),
    ],
)
def test_bad_flags_are_refused_in_one_line(flags, message):
    done = forked_binaries.run('audit_privacy', *flags)
    assert done.returncode == 2
    assert done.stdout == ''
    (line,) = done.stderr.splitlines()
    assert message in line
