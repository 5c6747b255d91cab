"""Training on commit messages: one command, resuming, the report, and errors in one line."""

import json

import pytest

from dpfl.errors import ArgumentError
from dpfl.simulation.training import TrainConfig, train
from dpfl.tasks.text.messages import git_history
from tests import forked_binaries, paths
from tests.simulation.training import small_config
from tests.tasks.text.messages import repositories
from tests.tasks.text.messages.repositories import Commit


def _config(path) -> TrainConfig:
    return small_config.GAUSSIAN.with_values(
        {
            'task': 'git_log',
            'data_path': str(path),
            'vocabulary': 'data',
            'population': None,
            'rounds': 1,
            'min_separation': 1,
            'max_participations': None,
            'eval_every': 1,
        }
    )


@pytest.mark.tff
def test_a_run_goes_on_with_the_same_clients_and_not_after_a_new_commit(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    path = repositories.of_authors(tmp_path / 'a', 12)
    run = tmp_path / 'run'
    first = train(_config(path), run, progress=False)
    record = json.loads((run / 'data.json').read_text())
    assert record['clients'] == {'training': 11, 'heldout': 1}
    assert record['history']['commits'] == 48 and record['kept']['sentences'] > 0
    assert record['repositories'] == [
        {'name': 'a', 'heads': [repositories.git(path, 'rev-parse', 'main')]}
    ]
    page = first.report.render()
    assert 'it was counted on the text of the training clients, without noise' in page
    assert 'The heads of the repositories in data.json' in page
    assert 'An author with several addresses that no .mailmap joins' in page
    # The text is kept: git log does not run again.
    longer = _config(path).with_values({'rounds': 2})
    with monkeypatch.context() as patched:
        patched.setattr(git_history, 'messages', None)
        result = train(longer, run, resume=True, progress=False)
    assert result.metrics['round'].tolist() == [1, 2]
    repositories.make(path, [Commit('author1@example.org', 'Another one')])
    with pytest.raises(ArgumentError, match='data_path: must have the data .* the run began'):
        train(longer.with_values({'rounds': 3}), run, resume=True, progress=False)


_BAD = {
    'absent': (['--data_path={path}/absent'], '--data_path={path}/absent: cannot be read (No such'),
    'no repository': (['--data_path={path}'], '--data_path={path}: is no git repository'),
    'empty': (['--data_path={path}/empty'], '--data_path={path}/empty: is a repository without'),
    'shallow': (['--data_path={path}/shallow'], '--data_path={path}/shallow: is a shallow clone'),
    'no path': ([], '--data_path: must be given for task=git_log'),
    'download': (['--download'], '--download: task=git_log has no data set to download'),
    'columns': (
        ['--data_path={path}/a', '--client_column=x'],
        '--client_column=x: task=git_log reads no file with columns',
    ),
    'cohort': (
        ['--data_path={path}/a', '--clients_per_round=50'],
        '--clients_per_round=50: must be <= 11, the clients to train on that the data have',
    ),
    'two vocabularies': (
        ['--data_path={path}/a', '--vocabulary_file=x'],
        '--vocabulary: cannot be combined with vocabulary_file',
    ),
    'vocabulary': (['--vocabulary=other'], '--vocabulary=other: must be one of data'),
    'other task': (
        ['--task=user_text', '--author_max_words=5'],
        '--author_max_words=5: needs task=git_log',
    ),
    'no cache': (['--data_path={path}/a', 'DPFL_CACHE_DIR='], '--data_path: needs a cache'),
    'public text': (
        ['--data_path={path}/a', '--vocabulary=', '--vocabulary_text={path}/empty'],
        '--vocabulary_text={path}/empty: is a repository without commits',
    ),
}


@pytest.fixture(scope='module', name='path')
def _path(tmp_path_factory):
    path = tmp_path_factory.mktemp('repositories')
    repositories.of_authors(path / 'a', 12)
    repositories.make(path / 'empty', [])
    repositories.git(path, 'clone', '--quiet', '--depth=1', f'file://{path}/a', 'shallow')
    return path


@pytest.mark.parametrize(('flags', 'message'), _BAD.values(), ids=_BAD)
def test_bad_flags_are_refused_in_one_line(flags, message, path, tmp_path):
    environment = {'DPFL_CACHE_DIR': str(path / 'cache')}
    given = [flag.replace('{path}', str(path)) for flag in flags]
    if 'DPFL_CACHE_DIR=' in given:
        given.remove('DPFL_CACHE_DIR=')
        environment = {'DPFL_CACHE_DIR': ''}
    given = [flag for flag in given if flag != '--vocabulary=']
    vocabulary = [] if '--vocabulary=' in flags else ['--vocabulary=data']
    done = forked_binaries.run(
        'train',
        '--task=git_log',
        '--model=micro',
        '--mechanism=none',
        '--rounds=2',
        '--min_separation=2',
        '--clients_per_round=2',
        *vocabulary,
        *given,
        f'--output_dir={tmp_path}/run',
        **environment,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f'error: {message.replace("{path}", str(path))}')
    assert not (tmp_path / 'run').exists()


@pytest.mark.exhaustive
@pytest.mark.tff
def test_suggest_looks_at_commits(path):
    done = forked_binaries.run(
        'suggest',
        '--task=git_log',
        f'--data_path={path}/a',
        f'--vocabulary_text={path}/a',
        '--model=micro',
        '--rounds=3',
        '--format=json',
        DPFL_CACHE_DIR=str(path / 'cache'),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['data']['clients_to_train_on'] == 11
    assert '--task=git_log' in found['command']


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize('name', ['none', 'blt'])
def test_a_preset_fits_some_hundred_authors(name, path, tmp_path):
    many = repositories.of_authors(tmp_path / 'many', 240, commits=1)
    words = [] if name == 'none' else [f'--vocabulary_text={path}/a']
    done = forked_binaries.run(
        'train',
        f'--flagfile={paths.ROOT}/configs/git_log.{name}.flags',
        f'--data_path={many}',
        *words,
        '--model=micro',
        '--dry_run',
        '--format=json',
        DPFL_CACHE_DIR=str(tmp_path / 'cache'),
    )
    assert done.returncode == 0, done.stderr
    epsilon = json.loads(done.stdout)['epsilon']
    assert epsilon is None if name == 'none' else 7.9 < epsilon <= 8
