"""Training on data of others: StackOverflow in TFF's format, and files of users."""

import collections
import functools
import hashlib
import json
import lzma
import random
import re

import pyarrow
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from pyarrow import parquet

from dpfl import ParticipationLog, accounting
from tests import forked_binaries

_FLAGS = [
    '--model=micro',
    '--sentence_length=8',
    '--mechanism=gaussian',
    '--noise_multiplier=1',
    '--delta=1e-6',
    '--rounds=3',
    '--clients_per_round=5',
    '--min_separation=3',
    '--max_participations=1',
    '--eval_every=3',
    '--noise_seed=1',
    '--shards=1',
]
_run = functools.partial(forked_binaries.run, 'train', *_FLAGS)
_WORDS = [f'word{i}' for i in range(50)]


def _texts(client: int) -> list[str]:
    rng = random.Random(client)
    return [' '.join(rng.choices(_WORDS, k=rng.randrange(1, 12))) for _ in range(10)]


@pytest.fixture(scope='module', name='data')
def _data(tmp_path_factory):
    """A directory with the same 200 clients as SQLite and as JSON Lines, and a vocabulary."""
    path = tmp_path_factory.mktemp('data')
    (path / 'words').write_text('\n'.join(f'{word} 9' for word in _WORDS[:40]))
    clients = {f'secret key {i}': _texts(i) for i in range(200)}
    tff.simulation.datasets.save_to_sql_client_data(
        list(clients),
        lambda client: tf.data.Dataset.from_tensor_slices(
            collections.OrderedDict(tokens=clients[client])
        ),
        str(path / 'data.sqlite'),
        split_names_by_client_id={
            client: 'train' if i < 180 else 'heldout' for i, client in enumerate(clients)
        },
    )
    with open(path / 'data.jsonl', 'w') as file:
        for client, texts in clients.items():
            for text in texts:
                file.write(json.dumps({'client': client, 'text': text}) + '\n')
        file.write('{"client": \n')
    return path


def _report(path) -> accounting.PrivacyReport:
    return accounting.PrivacyReport.from_json((path / 'privacy_report.json').read_text())


def _assert_no_keys(path):
    for file in path.rglob('*'):
        if file.is_file():
            assert b'secret key' not in file.read_bytes(), file


@pytest.mark.exhaustive
@pytest.mark.tff
def test_stackoverflow_trains_and_is_resumed_with_the_same_data_only(data, tmp_path):
    flags = [
        '--task=stackoverflow',
        f'--data_path={data}/data.sqlite',
        f'--vocabulary_file={data}/words',
        f'--output_dir={tmp_path}',
        '--format=json',
    ]
    done = _run(*flags, '--checkpoint_every=1')
    assert done.returncode == 0, done.stderr
    assert '180 clients to train on, 20 held out' in done.stderr
    result = json.loads(done.stdout)
    assert result['num_examples'] == 20 * 10 and 0 < result['loss'] < 10
    description = json.loads((tmp_path / 'data.json').read_text())
    assert description['clients'] == {'training': 180, 'heldout': 20}
    assert description['vocabulary']['words'] == 40 + 32  # Marks are added to plain words.
    # Ten of the 50 words that clients use are unknown, about a fifth of their tokens.
    line = next(each for each in done.stderr.splitlines() if each.startswith('vocabulary: has'))
    assert re.match(r'vocabulary: has (7[7-9]|8[0-3])\.\d% of the tokens of 20 held-out cl', line)
    assert line.split(': ')[-1].split()[0] in _WORDS[40:] and 'key' not in line
    assert re.search(r'^warning: \d\d% of the tokens are unknown', done.stderr, re.M)
    log = ParticipationLog.load(tmp_path / 'participation.npz')
    assert all(0 <= client < 180 for t in range(3) for client in log.cohort(t))
    _assert_no_keys(tmp_path)
    assert 'data.json' in (tmp_path / 'SHA256SUMS').read_text()
    assert not any('vocabulary: it was' in item for item in _report(tmp_path).also_not_covered)

    # As if it had been cut off, and the vocabulary had changed meanwhile.
    (tmp_path / 'checkpoints' / '00000003.checkpoint').unlink()
    description['keyed_digests']['vocabulary'] = 'another'
    (tmp_path / 'data.json').write_text(json.dumps(description, indent=2) + '\n')
    done = _run(*flags, '--resume')
    assert done.returncode == 2
    assert '--data_path: must have the data and the vocabulary with which the run' in done.stderr


@pytest.mark.exhaustive
@pytest.mark.tff
def test_parquet_trains_the_same_model_as_json_lines(data, tmp_path):
    lines = (data / 'data.jsonl').read_text().splitlines()[:-1]  # Without the malformed one.
    rows = pyarrow.Table.from_pylist([json.loads(line) for line in lines])
    parquet.write_table(rows, tmp_path / 'data.parquet', row_group_size=300)
    models = []
    for source in (data / 'data.jsonl', tmp_path / 'data.parquet'):
        output = tmp_path / source.suffix
        done = _run(
            '--task=user_text',
            f'--data_path={source}',
            f'--output_dir={output}',
            f'--vocabulary_file={data}/words',
        )
        assert done.returncode == 0, done.stderr
        models.append((output / 'model.npz').read_bytes())
    assert models[0] == models[1]
    _assert_no_keys(output)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_user_text_trains_with_a_private_vocabulary_and_says_so(data, tmp_path):
    done = _run(
        '--task=user_text',
        f'--data_path={data}/data.jsonl',
        '--vocabulary=data',
        '--vocabulary_size=30',
        '--sampling=poisson',
        '--min_separation=1',
        '--client_max_tokens=20',
        f'--output_dir={tmp_path}',
        '--heldout_fraction=0.05',
        '--max_participations=3',
    )
    assert done.returncode == 0, done.stderr
    assert '190 clients to train on, 10 held out; records left out: 1 (not JSON)' in done.stderr
    description = json.loads((tmp_path / 'data.json').read_text())
    assert description['left_out'] == {'empty': 0, 'not JSON': 1}
    assert description['first_malformed'] == 'line 2001: not JSON'
    report = _report(tmp_path)
    # The population of the data is the one that sampling is accounted with.
    assert report.plan.population == 190
    page = (tmp_path / 'privacy_report.md').read_text()
    assert 'it was counted on the text of the training clients, without noise' in page
    assert 'exact counts' in page
    _assert_no_keys(tmp_path)
    # Neither the size of the file nor a digest that anyone can compute.
    data = (data / 'data.jsonl').read_bytes()
    text = (tmp_path / 'data.json').read_text()
    assert hashlib.sha256(data).hexdigest() not in text and str(len(data)) not in text
    assert len(description['keyed_digests']['data']) == 64
    assert 'not for sharing' in description['confidential']
    verified = forked_binaries.run('report_privacy', f'--run_dir={tmp_path}')
    assert verified.returncode == 0, verified.stderr


def _bad_file(kind: str, data, path):
    if kind == 'truncated':
        whole = (data / 'data.sqlite').read_bytes()
        path.write_bytes(whole[: len(whole) * 2 // 3])
    elif kind == 'packed':
        path.write_bytes(lzma.compress((data / 'data.sqlite').read_bytes()))


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--data_path={bad:truncated}'], '--data_path={path}: is truncated, it has '),
        (['--data_path={bad:packed}'], '--data_path={path}: must be an SQLite file'),
        (['--data_path={path}'], '--data_path={path}: cannot be read (No such file or directory)'),
        (
            ['--data_path={data}/data.sqlite', '--population=181'],
            '--population=181: must be <= 180, the clients to train on that the data have',
        ),
        (
            ['--data_path={data}/data.sqlite', '--vocabulary_size=41'],
            '--vocabulary_size=41: must be <= 40, the words of ',
        ),
        (
            ['--data_path={data}/data.sqlite', '--vocabulary_file='],
            '--vocabulary_file: must be given',
        ),
        (
            ['--data_path={data}/data.sqlite', '--vocabulary_text={data}/words'],
            '--vocabulary_text: cannot be combined with vocabulary_file',
        ),
        (['--data_path={data}/data.sqlite', '--sentence_length=0'], '--sentence_length=0: must be'),
        ([], '--data_path: must be given for task=stackoverflow, or download'),
        (['--download'], '--data_path: must say where to download to; there is no cache'),
        (['--task=user_text', '--download'], '--download: task=user_text has no data set'),
        (
            ['--task=user_text', '--data_path={data}/data.jsonl', '--strict'],
            '--data_path={data}/data.jsonl: line 2001 is malformed: not JSON',
        ),
        (
            ['--task=user_text', '--data_path={data}/data.jsonl', '--client_column=user'],
            '--client_column=user: must be one of the 2 columns: client, text',
        ),
        (
            ['--task=user_text', '--data_path={data}/data.jsonl', '--heldout_fraction=1'],
            '--heldout_fraction=1.0: must be',
        ),
        (
            ['--task=user_text', '--data_path={data}/a.parquet'],
            'a.parquet: cannot be read (No such',
        ),
        (
            ['--task=synthetic_text', '--data_path=x'],
            '--data_path: task=synthetic_text makes its',
        ),
        (['--task=synthetic_text'], '--vocabulary_file: task=synthetic_text makes its own'),
    ],
)
def test_bad_data_and_flags_are_one_line_and_status_2(flags, message, data, tmp_path):
    path = tmp_path / 'data.sqlite'
    for kind in ('truncated', 'packed'):
        if f'{{bad:{kind}}}' in ' '.join(flags):
            _bad_file(kind, data, path)
            flags = [flag.replace(f'{{bad:{kind}}}', '{path}') for flag in flags]
    flags = [flag.replace('{path}', str(path)).replace('{data}', str(data)) for flag in flags]
    message = message.replace('{path}', str(path)).replace('{data}', str(data))
    done = _run(
        '--task=stackoverflow',
        f'--vocabulary_file={data}/words',
        *flags,
        f'--output_dir={tmp_path}/run',
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith('error: ') and message in last
    assert 'Traceback' not in done.stderr
    assert not (tmp_path / 'run').exists()


def test_a_download_that_fails_is_one_line_and_status_1(data, tmp_path):
    done = _run(
        '--task=stackoverflow',
        '--download',
        f'--vocabulary_file={data}/words',
        f'--download_url=file://{tmp_path}/nothing.lzma',
        f'--output_dir={tmp_path}/run',
        f'--data_path={tmp_path}/data.sqlite',
    )
    assert done.returncode == 1
    assert 'nothing.lzma: ' in done.stderr and 'Traceback' not in done.stderr
    assert not (tmp_path / 'data.sqlite').exists()


def test_names_of_models_are_those_that_there_are():
    from dpfl.tasks import config
    from dpfl.tasks.text.models import catalog

    assert sorted(config.WORD_MODELS) == sorted(catalog.WORD_MODELS)
