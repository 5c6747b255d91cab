"""`experiments.train` on images: both tasks, and files that cannot be used."""

import json

import pytest

from tests import forked_binaries
from tests.tasks.images import emnist_files


def _train(tmp_path, *arguments):
    return forked_binaries.run(
        'train',
        '--model=tiny',
        '--mechanism=none',
        '--rounds=2',
        '--clients_per_round=2',
        '--client_learning_rate=0.1',
        '--eval_clients=2',
        '--format=json',
        f'--output_dir={tmp_path / "run"}',
        *arguments,
    )


@pytest.mark.exhaustive
@pytest.mark.tff
def test_synthetic_glyphs(tmp_path):
    done = _train(tmp_path, '--task=synthetic_glyphs', '--inject=inverted', '--population=10')
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary['rounds'] == 2 and 0 <= summary['accuracy'] < 0.5


@pytest.mark.exhaustive
@pytest.mark.tff
def test_emnist(tmp_path):
    path = emnist_files.write_sqlite(tmp_path / 'emnist_all.sqlite')
    done = _train(tmp_path, '--task=emnist', f'--data_path={path}')
    assert done.returncode == 0, done.stderr
    # The one held-out writer has five examples, and is no client.
    assert json.loads(done.stdout)['num_examples'] == 5
    report = json.loads((tmp_path / 'run' / 'privacy_report.json').read_text())
    assert any('Held-out writers (1)' in item for item in report['not_covered'])
    assert json.loads((tmp_path / 'run' / 'data.json').read_text())['clients'] == {
        'training': 2,
        'heldout': 1,
    }


def test_files_that_cannot_be_used_are_one_line(tmp_path):
    path = emnist_files.write_sqlite(tmp_path / 'emnist_all.sqlite')
    path.write_bytes(path.read_bytes()[:-5000])
    for arguments, message in (
        ([f'--data_path={path}'], f'--data_path={path}: is truncated, has'),
        ([f'--data_path={tmp_path}/none'], f'--data_path={tmp_path}/none: cannot be read'),
        ([], '--data_path: must be given for task=emnist'),
    ):
        done = _train(tmp_path, '--task=emnist', *arguments)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith(f'error: {message}'), done.stderr


def test_models_of_other_tasks_are_refused(tmp_path):
    done = _train(tmp_path, '--task=synthetic_glyphs', '--model=micro')
    assert done.returncode == 2
    assert 'must be one of small, cnn, tiny for task=synthetic_glyphs' in done.stderr
