"""A study of power as its users meet it: cells that are made once, and one-line errors."""

import functools
import json

import pytest

from tests import forked_binaries

_FLAGS = [
    '--flagfile=configs/detection_power_text.flags',
    '--vocabulary_size=96',
    '--rounds=2',
    '--min_separation=2',
    '--population=40',
    '--clients_per_round=4',
    '--eval_clients=2',
    '--samples=200',
    '--inject=joined_words',
    '--epsilons=8',
    '--accountant=analytic_gaussian',
]
_run = functools.partial(forked_binaries.run, 'detection_power', *_FLAGS)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_finished_cells_are_not_made_again(tmp_path):
    first = _run('--seeds=1', '--inject_share=1', f'--output_dir={tmp_path}', '--format=json')
    assert first.returncode == 0, first.stderr
    values = json.loads(first.stdout)
    names = [(each['fault'], each['share']) for each in values['cells']]
    assert names == [(None, 0), ('joined_words', 1)]
    assert [each['count'] for each in values['results'][0]['trials']] == [1, 1]
    again = _run('--seeds=1', '--inject_share=1', f'--output_dir={tmp_path}', '--format=json')
    assert json.loads(again.stdout) == values and 'round' not in again.stderr
    changed = _run('--seeds=1', f'--output_dir={tmp_path}', '--client_learning_rate=1')
    assert changed.returncode == 2
    assert changed.stderr.splitlines()[-1].startswith(
        'error: --client_learning_rate=1.0: must be 2.0, as for the cells in'
    )
    assert (tmp_path / 'power.html').is_file() and (tmp_path / 'power_joined_words.png').is_file()


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--epsilons=8,8'], '--epsilons=8,8: must be different values'),
        (['--seeds='], '--seeds=: must be different values, at least one'),
        (['--power=1'], '--power=1.0: must be a finite number > 0 and < 1'),
        (['--inject=', '--inject_share='], '--inject=: must name at least one fault'),
        (['--epsilons=0'], '--epsilons=0.0: must be'),
    ],
)
def test_bad_flags_are_one_line(flags, message, tmp_path):
    done = _run(*flags, f'--output_dir={tmp_path}')
    assert done.returncode == 2 and done.stdout == ''
    assert done.stderr.startswith(f'error: {message}'), done.stderr
    assert len(done.stderr.splitlines()) == 1
