"""The binary that optimises how a run goes on with another matrix."""

import functools
import json

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'optimize_strategy')
_BLT = mechanisms.Blt(48, [0.95, 0.6], [0.2, 0.2])
_BANDED = mechanisms.optimize_banded(Participation(24, 6), bands=6)
_PLANNED, _SEEN = Participation(48, 12, 4), Participation(48, 6, 8)


@pytest.fixture(name='paths')
def _paths(tmp_path):
    """Strategies of the rounds before, by their kind, and the file of the result."""
    found = {'blt': tmp_path / 'blt.npz', 'banded': tmp_path / 'banded.npz'}
    mechanisms.save(_BLT, found['blt'])
    mechanisms.save(_BANDED, found['banded'])
    return {**found, 'output': tmp_path / 'found.npz'}


def _flags(paths, kind='blt'):
    name = 'switched_blt' if kind == 'blt' else 'continued'
    return [f'--mechanism={name}', f'--strategy={paths[kind]}', f'--output={paths["output"]}']


def _switch(paths, *more):
    schema = ['--rounds=48', '--min_separation=6', '--max_participations=8']
    planned = ['--planned_min_separation=12', '--planned_max_participations=4']
    return _run(*_flags(paths), *schema, *planned, '--switch_round=20', *more)


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_a_switch_is_compared_with_going_on_and_with_a_restart(paths, loss):
    done = _switch(paths, f'--loss={loss}', '--format=json')
    assert done.returncode == 0, done.stderr
    found, made = json.loads(done.stdout), mechanisms.load(paths['output'])
    assert made == mechanisms.optimize_switch(_BLT, 20, _SEEN, loss)
    assert made.begins_like(_BLT, 20) and found['first_rounds'] == 20
    planned, unchanged, restarted, switched = found['compared']
    name = f'{loss}_loss'
    assert switched[name] == getattr(made, name)(_SEEN)
    assert unchanged[name] == getattr(_BLT, name)(_SEEN)
    assert planned['sensitivity'] == _BLT.sensitivity(_PLANNED)
    assert (planned['min_separation'], planned['max_participations']) == (12, 4)
    assert switched[name] <= min(unchanged[name], restarted[name])
    best = mechanisms.optimize_blt(_SEEN.within(28), 2, loss)
    decay, scale = (np.resize(each, 2) for each in (best.decay, best.scale))
    scale[best.scale.size :] = 0.0  # The best one may have fewer buffers.
    after = mechanisms.SwitchedBlt.after(_BLT, 20, decay, scale, carry=np.zeros((2, 2)))
    assert restarted[name] == pytest.approx(getattr(after, name)(_SEEN), rel=1e-12)
    for row in found['compared']:
        assert row[name] == pytest.approx(row[f'{loss}_error'] * row['sensitivity'])


def test_a_limit_of_the_sensitivity_keeps_the_epsilon_of_the_plan(paths):
    free = _switch(paths, '--switch_round=12')
    assert free.returncode == 0 and 'rho is' in free.stdout, free.stderr
    assert mechanisms.load(paths['output']).sensitivity(_SEEN) > _BLT.sensitivity(_PLANNED)
    flag = next(word for word in free.stdout.split() if word.startswith('--max_sens'))
    kept = _switch(paths, '--switch_round=12', flag)
    assert kept.returncode == 0, kept.stderr
    assert 'the epsilon of the plan still holds' in kept.stdout
    assert mechanisms.load(paths['output']).sensitivity(_SEEN) <= _BLT.sensitivity(_PLANNED)
    late = _switch(paths, '--switch_round=30')
    assert 'The first 30 rounds alone are above the plan.' in late.stdout, late.stderr
    assert '--max_sensitivity' not in late.stdout


def test_a_banded_matrix_goes_on(paths):
    schema = ['--rounds=60', '--min_separation=6']
    done = _run(*_flags(paths, 'banded'), *schema, '--format=json')
    assert done.returncode == 0, done.stderr
    found, made = json.loads(done.stdout), mechanisms.load(paths['output'])
    whole = Participation(60, 6)
    assert made == mechanisms.optimize_continued(_BANDED, whole) and made.rounds == 60
    planned, restarted, continued = found['compared']
    assert planned['sensitivity'] == _BANDED.sensitivity(Participation(24, 6))
    again = mechanisms.Restarted(_BANDED, (24, 48), 60)
    assert restarted['max_loss'] == pytest.approx(again.max_loss(whole))
    assert continued['max_loss'] == made.max_loss(whole) < restarted['max_loss']
    text = _run(*_flags(paths, 'banded'), *schema).stdout
    assert 'rho is' in text and 'max_sensitivity' not in text


@pytest.mark.parametrize(
    'kind, flags, message',
    [
        ('blt', ['--switch_round=9', '--bands=2'], '--bands: cannot be combined with mechanism='),
        ('blt', ['--switch_round=9', '--buffers=2'], '--buffers: cannot be combined with'),
        ('blt', ['--switch_round=9', '--momentum=0.5'], '--momentum: cannot be combined with'),
        ('blt', ['--switch_round=9', '--separations=3,4'], '--separations: cannot be combined'),
        ('blt', ['--switch_round=9', '--server_schedule=linear'], '--server_schedule: cannot be'),
        ('blt', [], '--switch_round: must be given with mechanism=switched_blt'),
        ('blt', ['--switch_round=0'], '--switch_round=0: must be an integer >= 1'),
        ('blt', ['--switch_round=48'], '--switch_round=48: must be an integer >= 1 and <= 47'),
        ('blt', ['--switch_round=9', '--strategy='], '--strategy: must be given with mechanism='),
        ('blt', ['--switch_round=9', '--strategy=no.npz'], '--strategy=no.npz: must be a file'),
        ('blt', ['--switch_round=9', '--max_sensitivity=0.5'], '--max_sensitivity=0.5: must be'),
        ('blt', ['--switch_round=9', '--min_separation=49'], '--min_separation=49: must be <= 48'),
        ('blt', ['--switch_round=9', '--planned_min_separation=0'], '--planned_min_separation=0'),
        ('blt', ['--mechanism=blt'], '--strategy: needs mechanism=switched_blt or continued'),
        ('blt', ['--mechanism=continued'], 'holds a blt, must hold a banded mechanism'),
        ('banded', ['--mechanism=switched_blt', '--switch_round=9'], 'holds a banded, must hold a'),
        ('banded', ['--switch_round=9'], '--switch_round=9: needs mechanism=switched_blt'),
        ('banded', ['--max_sensitivity=9'], '--max_sensitivity=9.0: needs mechanism=switched_blt'),
        ('banded', ['--rounds=24'], '--rounds=24: must be an integer >= 25'),
        ('banded', ['--min_separation=5'], '--min_separation=5: must be >= 6, the bands'),
    ],
)
def test_bad_flags_are_one_line_and_status_2(paths, kind, flags, message):
    done = _run(*_flags(paths, kind), '--rounds=48', *flags)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert not paths['output'].exists()


def test_flags_of_continuations_need_their_mechanisms(tmp_path):
    for flag in ('--switch_round=3', '--max_sensitivity=2', '--planned_max_participations=2'):
        done = _run('--mechanism=blt', '--rounds=24', f'--output={tmp_path}/found.npz', flag)
        assert done.returncode == 2 and ': needs mechanism=switched_blt or' in done.stderr
