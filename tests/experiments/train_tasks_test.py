"""Training on data of others: what a run says of them, and that nobody's name is in its files."""

import hashlib
import json
import math
import re
import shutil

import pytest

from dpfl import ParticipationLog, accounting
from dpfl.errors import ArgumentError
from dpfl.simulation.training import train
from tests import forked_binaries
from tests.simulation.training import small_config
from tests.tasks.images import emnist_files
from tests.tasks.text import repositories, small_files

_FLAGS = (
    '--mechanism=gaussian --noise_multiplier=1 --delta=1e-6 --rounds=3 --clients_per_round=2 '
    '--min_separation=3 --eval_every=3 --noise_seed=1 --shards=1 --format=json'
)
_TEXT = f'{_FLAGS} --model=micro --sentence_length=8'


def _run(flags, *more, check=True, **environment):
    return forked_binaries.run('train', *flags.split(), *more, check=check, **environment)


@pytest.fixture(scope='module', name='data')
def _data(tmp_path_factory):
    """A directory with the same clients as SQLite and as JSON Lines, and a vocabulary."""
    path = tmp_path_factory.mktemp('data')
    small_files.write_stackoverflow(path / 'data.sqlite')
    small_files.write_json_lines(path / 'data.jsonl')
    words = small_files.write_vocabulary(path / 'all').read_text().splitlines()
    (path / 'words').write_text('\n'.join(words[:40]))
    lines = (path / 'data.jsonl').read_text().replace('"client": "', '"client": "secret key ')
    (path / 'data.jsonl').write_text(lines + '{"client": \n')
    return path


def _report(path) -> accounting.PrivacyReport:
    return accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())


def _description_without_keys(path):
    """What a run says of its data, when no file of it has the name of a client."""
    for file in path.rglob('*'):
        if file.is_file():
            content = file.read_bytes()
            assert b'secret key' not in content and b'client 0' not in content, file
    return json.loads((path / 'data.json').read_text())


@pytest.mark.exhaustive
@pytest.mark.tff
def test_stackoverflow_trains_and_is_resumed_with_the_same_data_only(data, tmp_path):
    run = tmp_path / 'run'
    words = shutil.copy(data / 'words', tmp_path / 'words')
    files = (f'--data_path={data}/data.sqlite', f'--vocabulary_file={words}')
    flags = ('--task=stackoverflow', *files, '--checkpoint_every=1', f'--output_dir={run}')
    done = _run(_TEXT, *flags)
    assert '12 clients to train on, 3 held out' in done.stderr
    result = json.loads(done.stdout)
    assert result['num_examples'] == 3 * 10 and 0 < result['loss'] < math.inf
    description = _description_without_keys(run)
    assert description['clients'] == {'training': 12, 'heldout': 3}
    assert description['vocabulary']['words'] == 40 + 32  # Marks are added to plain words.
    assert re.search(r'^warning: \d\d% of the tokens are unknown', done.stderr, re.M)
    log = ParticipationLog.load(run / 'participation.npz')
    assert all(0 <= client < 12 for t in range(3) for client in log.cohort(t))
    assert 'data.json' in (run / 'SHA256SUMS').read_text()
    assert not any('vocabulary: it was' in item for item in _report(run).also_not_covered)

    # As if it had been cut off, and the vocabulary had changed meanwhile.
    lines = (run / 'ledger.jsonl').read_bytes().splitlines(keepends=True)
    (run / 'ledger.jsonl').write_bytes(b''.join(lines[:-1]))
    (run / 'checkpoints' / '00000003.checkpoint').unlink()
    (tmp_path / 'words').write_text('\n'.join(reversed((data / 'words').read_text().splitlines())))
    done = _run(_TEXT, *flags, '--resume', check=False)
    assert done.returncode == 2
    assert '--data_path: must have the data and the vocabulary with which the run' in done.stderr


@pytest.mark.exhaustive
@pytest.mark.tff
def test_user_text_trains_with_a_vocabulary_of_its_own_and_says_so(data, tmp_path):
    flags = f'--task=user_text --data_path={data}/data.jsonl --heldout_fraction=0.2'
    flags += ' --vocabulary=data --vocabulary_size=30 --sampling=poisson --min_separation=1'
    done = _run(f'{_TEXT} {flags} --output_dir={tmp_path}')
    assert 'records left out: 1 (not JSON)' in done.stderr
    description = _description_without_keys(tmp_path)
    assert description['left_out'] == {'empty': 0, 'not JSON': 1}
    # The population of the data is the one that sampling is accounted with.
    assert _report(tmp_path).plan.population == description['clients']['training'] < 18
    page = (tmp_path / 'privacy_report.md').read_text()
    assert 'it was counted on the text of the training clients, without noise' in page
    # Neither the size of the file nor a digest that anyone can compute.
    content = (data / 'data.jsonl').read_bytes()
    text = (tmp_path / 'data.json').read_text()
    assert hashlib.sha256(content).hexdigest() not in text and str(len(content)) not in text
    assert len(description['keyed_digests']['data']) == 64
    assert 'not for sharing' in description['confidential']


@pytest.mark.exhaustive
@pytest.mark.tff
def test_images_train(tmp_path):
    path = emnist_files.write_sqlite(tmp_path / 'emnist_all.sqlite')
    emnist = f'--task=emnist --model=tiny --data_path={path} --min_separation=1'
    done = _run(f'{_FLAGS} {emnist} --output_dir={tmp_path}/run')
    # The one held-out writer has five examples, and is no client.
    assert json.loads(done.stdout)['num_examples'] == 5
    items = _report(tmp_path / 'run').also_not_covered
    assert any('Held-out writers (1)' in item for item in items)
    description = json.loads((tmp_path / 'run' / 'data.json').read_text())
    assert description['clients'] == {'training': 2, 'heldout': 1}


@pytest.mark.standard
@pytest.mark.tff
def test_commits_train_and_are_continued_without_a_new_one(tmp_path, monkeypatch):
    monkeypatch.setenv('DPFL_CACHE_DIR', str(tmp_path / 'cache'))
    path = repositories.of_authors(tmp_path / 'a', 12)
    run = tmp_path / 'run'
    config = small_config.GAUSSIAN.with_values(
        dict(task='git_log', data_path=str(path), vocabulary='data', population=None)
        | dict(rounds=1, min_separation=1, max_participations=None, eval_every=1)
    )
    with pytest.raises(ArgumentError, match='clients_per_round=50: must be <= 11'):
        train(config.with_values({'clients_per_round': 50}), run, progress=False)
    first = train(config, run, progress=False)
    record = json.loads((run / 'data.json').read_text())
    assert record['clients'] == {'training': 11, 'heldout': 1}
    assert record['history']['commits'] == 48 and record['kept']['sentences'] > 0
    heads = [repositories.git(path, 'rev-parse', 'main')]
    assert record['repositories'] == [{'name': 'a', 'heads': heads}]
    page = first.report.render()
    assert 'it was counted on the text of the training clients, without noise' in page
    assert 'The heads of the repositories in data.json' in page
    assert 'An author with several addresses that no .mailmap joins' in page
    longer = config.with_values({'rounds': 2})
    result = train(longer, run, resume=True, progress=False)
    assert result.metrics['round'].tolist() == [1, 2]
    repositories.make(path, [repositories.Commit('author1@example.org', 'Another one')])
    with pytest.raises(ArgumentError, match='data_path: must have the data .* the run began'):
        train(longer.with_values({'rounds': 3}), run, resume=True, progress=False)


@pytest.mark.standard
def test_a_download_that_fails_is_one_line_and_status_1(data, tmp_path):
    flags = f'--task=stackoverflow --download --vocabulary_file={data}/words'
    flags += f' --output_dir={tmp_path}/run --data_path={tmp_path}/data.sqlite'
    done = _run(f'{_TEXT} {flags}', check=False, https_proxy='http://127.0.0.1:1')
    assert done.returncode == 1
    assert 'stackoverflow.sqlite.lzma: ' in done.stderr and 'Traceback' not in done.stderr
    assert not (tmp_path / 'data.sqlite').exists()
