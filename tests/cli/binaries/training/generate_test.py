"""Pre-training, warm start and generation as their users meet them."""

import functools
import json

import numpy as np
import pytest

from tests import binaries, forked_binaries

_TRAIN = [
    *binaries.TASK,
    '--mechanism=none',
    '--rounds=2',
    '--population=4',
    '--clients_per_round=2',
    '--min_separation=2',
    '--clip_norm=1e-6',
    '--client_max_batches=1',
    '--eval_clients=20',
    '--delta=1e-6',
]


_generate = functools.partial(forked_binaries.run, 'generate')


@pytest.fixture(scope='module', name='public')
def _public(tmp_path_factory):
    path = tmp_path_factory.mktemp('public') / 'model'
    return path, binaries.pretrain(path, '--public_clients=60', '--epochs=4')


@pytest.mark.exhaustive
def test_pretraining_learns(public):
    path, summary = public
    assert summary['words'] == 96 and summary['steps'] == 4 * (summary['sentences'] // 64)
    assert summary['loss'] < 0.8 * np.log(100)
    listed = (path.parent / 'model.vocabulary.txt').read_text().split()
    assert len(listed) == 96


@pytest.mark.exhaustive
@pytest.mark.tff
def test_training_starts_from_the_public_model_and_says_so(public, tmp_path):
    path, _ = public
    cold = forked_binaries.run('train', *_TRAIN, f'--output_dir={tmp_path}/cold', '--format=json')
    assert cold.returncode == 0, cold.stderr
    start = json.loads(cold.stdout)
    done = forked_binaries.run(
        'train',
        *_TRAIN,
        f'--output_dir={tmp_path}/warm',
        f'--warm_start={path}',
        '--warm_start_is_public',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    # Clipped to nothing, two rounds leave each model where it was.
    warm = json.loads(done.stdout)
    assert warm['accuracy'] > start['accuracy'] + 0.1
    before, after = (_weights(folder) for folder in (path, tmp_path / 'warm' / 'saved_model'))
    for first, second in zip(before, after, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-4)
    assert 'it is taken to be public' in (tmp_path / 'warm/privacy_report.md').read_text()

    again = forked_binaries.run(
        'train',
        *_TRAIN,
        f'--output_dir={tmp_path}/again',
        '--seed=1',
        f'--warm_start={tmp_path}/warm',
    )
    assert again.returncode == 2
    assert again.stderr == (
        f'error: --warm_start={tmp_path}/warm: has another vocabulary than the task\n'
    )
    texts = forked_binaries.run(
        'generate', f'--model_dir={tmp_path}/warm', '--count=3', '--format=json'
    )
    assert len(json.loads(texts.stdout)) == 3


def _weights(folder):
    from dpfl.tasks.text.models import saved_models

    return saved_models.load(folder).weights


@pytest.mark.exhaustive
def test_sentences_are_printed_and_ranked(public):
    path, _ = public
    vocabulary = {*(path.parent / 'model.vocabulary.txt').read_text().split(), 'UNK'}
    flags = [f'--model_dir={path}', '--count=5', '--length=12', '--format=json']
    drawn = json.loads(_generate(*flags).stdout)
    assert drawn == json.loads(binaries.run('generate', *flags).stdout)
    assert all(set(one['text'].split()) <= vocabulary for one in drawn)
    ranked = json.loads(_generate(*flags, '--rank=3000').stdout)
    scores = [one['log_probability'] for one in ranked]
    assert scores == sorted(scores, reverse=True) and len({one['text'] for one in ranked}) == 5
    assert min(scores) > np.mean([one['log_probability'] for one in drawn])


@pytest.mark.exhaustive
def test_public_text_from_a_file(tmp_path):
    text, output = tmp_path / 'text.txt', tmp_path / 'model'
    text.write_text('Good day to you! So it goes.\nGood day again.\n' * 20)
    done = forked_binaries.run(
        'pretrain',
        f'--public_text={text}',
        '--vocabulary_size=5',
        '--model=lstm_tiny',
        '--sentence_length=6',
        '--batch_size=10',
        f'--output={output}',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary['words'], summary['sentences'], summary['steps']) == (
        5,
        57,
        5,
    )  # 3 are held out.
    listed = (tmp_path / 'model.vocabulary.txt').read_text().split()
    assert set(listed) > {'good', 'day', '.'}


@pytest.mark.parametrize(
    'binary, flags, message',
    [
        ('generate', [], '--model_dir: must be given'),
        ('generate', ['--model_dir=/nowhere'], '--model_dir=/nowhere: must be a SavedModel'),
        (
            'generate',
            ['--model_dir=x', '--rank=9', '--top_k=2'],
            '--rank=9: cannot be combined with top_k',
        ),
        ('pretrain', ['--output=x', '--public_text=/nowhere'], '--public_text=/nowhere: cannot be'),
        ('pretrain', ['--output=x', '--batch_size=0'], '--batch_size=0: must be'),
        ('pretrain', ['--output=x', '--learning_rate=nan'], '--learning_rate=nan: must be'),
        ('pretrain', ['--output=x', '--model=huge'], '--model=huge: must be one of'),
    ],
)
def test_bad_flags_are_one_line(binary, flags, message):
    done = forked_binaries.run(binary, *flags)
    assert done.returncode == 2 and done.stdout == ''
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f'error: {message}') and 'Traceback' not in done.stderr
