"""Training on commit messages: one command, resuming, the report, and errors in one line."""

import json

import pytest

from dpfl.errors import ArgumentError
from dpfl.simulation.training import TrainConfig, train
from dpfl.tasks.text import git_log
from tests import forked_binaries
from tests.simulation.training import small_config
from tests.tasks.text import repositories
from tests.tasks.text.repositories import Commit


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


@pytest.mark.standard
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
        patched.setattr(git_log, 'read_messages', None)
        result = train(longer, run, resume=True, progress=False)
    assert result.metrics['round'].tolist() == [1, 2]
    repositories.make(path, [Commit('author1@example.org', 'Another one')])
    with pytest.raises(ArgumentError, match='data_path: must have the data .* the run began'):
        train(longer.with_values({'rounds': 3}), run, resume=True, progress=False)


# Flags besides those of every command line, and the message.
_REFUSED = [
    ('--data_path={path}/absent', '--data_path={path}/absent: cannot be read (No such'),
    ('--data_path={path}/a --client_column=x', '--client_column=x: needs task='),
    ('--data_path={path}/a --clients_per_round=50', '--clients_per_round=50: must be <= 11'),
    ('--task=user_text --author_max_words=5', '--author_max_words=5: needs task=git_log'),
    (
        '--data_path={path}/a --vocabulary_text={path}/empty',
        '--vocabulary_text={path}/empty: is a repository without commits',
    ),
]
_FLAGS = (
    '--task=git_log --model=micro --mechanism=none --rounds=2 --min_separation=2 '
    '--clients_per_round=2'
)


@pytest.fixture(scope='module', name='path')
def _path(tmp_path_factory):
    path = tmp_path_factory.mktemp('repositories')
    repositories.of_authors(path / 'a', 12)
    repositories.make(path / 'empty', [])
    return path


@pytest.mark.standard
@pytest.mark.parametrize(('flags', 'message'), [*_REFUSED, ('--data_path={path}/a', 'a cache')])
def test_bad_flags_are_refused_in_one_line(flags, message, path, tmp_path):
    cache = '' if message == 'a cache' else str(path / 'cache')
    words = '' if 'vocabulary' in flags else '--vocabulary=data'
    given = f'{_FLAGS} {words} {flags} --output_dir={tmp_path}/run'.format(path=path).split()
    done = forked_binaries.run('train', *given, DPFL_CACHE_DIR=cache)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith('error: ') and message.format(path=path) in last
    assert not (tmp_path / 'run').exists()


@pytest.mark.exhaustive
@pytest.mark.tff
def test_suggest_looks_at_commits(path):
    found = forked_binaries.printed(
        'suggest',
        '--task=git_log',
        f'--data_path={path}/a',
        f'--vocabulary_text={path}/a',
        '--model=micro',
        '--rounds=3',
        DPFL_CACHE_DIR=str(path / 'cache'),
    )
    assert found['data']['clients_to_train_on'] == 11
    assert '--task=git_log' in found['command']
