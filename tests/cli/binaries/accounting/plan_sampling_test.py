"""The planning binary with amplification by sampling."""

import functools
import json

import pytest

from dpfl import Participation, accounting, mechanisms
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'plan_privacy')
_CYCLIC = (
    '--population=171000',
    '--clients_per_round=100',
    '--rounds=2052',
    '--sampling=cyclic_poisson',
    '--delta=1e-6',
)
_BANDED = ('--mechanism=fichtenberger_toeplitz', '--bands=342')


def _plans(*flags):
    done = _run(*_CYCLIC, *flags, '--format=json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_noise_for_a_target_with_groups():
    result = _plans(*_BANDED, '--target_epsilon=1')
    [row] = result['plans']
    direct = accounting.PrivacyPlan.calibrated(
        epsilon=1.0,
        delta=1e-6,
        accountant='best',
        mechanism=mechanisms.BandedToeplitz.fichtenberger(2052, 342),
        participation=Participation(2052, 342),
        clip_norm=1.0,
        clients_per_round=100,
        population=171_000,
        sampling='cyclic_poisson',
        groups=342,
    )
    assert row['noise_multiplier'] == direct.noise_multiplier
    assert (row['min_separation'], row['max_participations'], row['rho']) == (342, 6, None)
    assert row['separation_limit'] == 'cyclic_poisson' and 0.999 < row['epsilon'] <= 1
    text = ' '.join(result['assumptions'])
    assert 'divided into 342 groups' in text and 'No amplification' not in text


def test_independent_noise_with_other_samplings():
    noisy = ('--mechanism=gaussian', '--noise_multiplier=2')
    cyclic, grouped, poisson, fixed = (
        _plans(*noisy, *flags)['plans'][0]
        for flags in (
            (),
            ('--groups=9',),
            ('--sampling=poisson',),
            ('--sampling=without_replacement',),
        )
    )
    assert cyclic['epsilon'] == poisson['epsilon'] < fixed['epsilon']
    assert grouped['max_participations'] == 228 and poisson['max_participations'] == 2052


def test_several_mechanisms_over_several_cohorts():
    rows = _plans(
        '--mechanisms=gaussian=2,stackoverflow_banded_toeplitz=5',
        '--sweep_clients_per_round=50,100',
    )['plans']
    assert [row['clients_per_round'] for row in rows] == [50, 50, 100, 100]
    assert rows[1]['epsilon'] < rows[3]['epsilon'] and rows[0]['epsilon'] < rows[2]['epsilon']


@pytest.mark.parametrize(
    'flags, message',
    [
        ((*_BANDED, '--noise_multiplier=1', '--groups=5'), '--groups=5: must be at least 342'),
        ((*_BANDED, '--noise_multiplier=1', '--min_separation=9'), '--min_separation: cannot be'),
        ((*_BANDED, '--target_rho=1'), '--target_rho: cannot be combined with sampling=cyclic'),
        ((*_BANDED, '--noise_multiplier=1', '--availability=0.5'), '--availability=0.5: must be 1'),
        (('--target_epsilon=1',), '--mechanism=auto: cannot be combined with sampling='),
        (
            (*_BANDED, '--noise_multiplier=1', '--sampling=none', '--groups=9'),
            '--groups=9: needs a sampling that has it',
        ),
        (
            (*_BANDED, '--noise_multiplier=1', '--sampling=poisson'),
            '--sampling=poisson: must be none, or cyclic_poisson, with correlated noise',
        ),
    ],
)
def test_what_sampling_has_no_use_for_is_refused(flags, message):
    done = _run(*_CYCLIC, *flags)
    assert done.returncode == 2 and done.stderr.startswith(f'error: {message}')
