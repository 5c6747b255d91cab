"""The table of frequent words as its users meet it."""

import functools
import json
import shutil

import numpy as np
import pytest

from tests import binaries, forked_binaries

_run = functools.partial(forked_binaries.run, 'compare_head_words', *binaries.TASK)


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory):
    path = tmp_path_factory.mktemp('model') / 'saved'
    binaries.pretrain(path, '--public_clients=40')
    return path


@pytest.mark.exhaustive
def test_models_are_compared_in_one_table(model, tmp_path):
    run = tmp_path / 'run'  # As the directory of a run has its model.
    shutil.copytree(model, run / 'saved_model')
    done = _run(f'--models={model},{run}', '--eval_clients=20', '--format=json')
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result['heads'] == [10, 50] and result['top'] == 10  # 96 words: 100 says nothing.
    first, second = result['models']
    assert second == first | {'model': str(run)} and 0.05 < first['accuracy'] < 1
    counts = np.array(first['counts'])
    assert counts.shape == (2, 11) and (counts.sum(axis=1) == counts[0].sum()).all()
    # A word among the 10 most frequent is one among the 50: the mass moves to the right.
    assert (counts @ np.arange(11))[1] > (counts @ np.arange(11))[0]

    done = _run(f'--models={model}', '--eval_clients=20')
    shares = [line.split() for line in done.stdout.splitlines() if str(model) in line]
    assert [sum(map(float, row[2:])) for row in shares] == pytest.approx([100, 100], abs=0.6)


@pytest.mark.parametrize(
    'flags, message',
    [
        ([], '--models: must be given'),
        (['--models='], '--models: must be given'),
        (['--models=/nowhere'], '--models=/nowhere: must be a SavedModel of a language model'),
        (
            ['--models={model}', '--seed=1'],
            '--models={model}: has another vocabulary than the task',
        ),
        (
            ['--models={model}', '--task=synthetic_glyphs', '--model=cnn'],
            '--task=synthetic_glyphs: must be',
        ),
        (
            [
                '--models={model}',
                '--task=user_text',
                '--data_path={text}/data.jsonl',
                '--vocabulary_file={text}/words',
                '--vocabulary_size=10',
                '--novocabulary_marks',
                '--heldout_fraction=0.5',
            ],
            '--vocabulary_size: must be > 10, is 10',
        ),
    ],
)
def test_bad_flags_are_one_line(model, flags, message, tmp_path):
    rows = [{'client': str(n % 4), 'text': f'w{n} w{n + 1}.'} for n in range(10)]
    (tmp_path / 'data.jsonl').write_text(''.join(f'{json.dumps(row)}\n' for row in rows))
    (tmp_path / 'words').write_text(''.join(f'w{n}\n' for n in range(10)))
    flags = [flag.format(model=model, text=tmp_path) for flag in flags]
    done = _run(*flags)
    assert done.returncode == 2 and done.stdout == ''
    errors = [line for line in done.stderr.splitlines() if line.startswith('error: ')]
    assert len(errors) == 1 and message.format(model=model) in errors[0]
    assert 'Traceback' not in done.stderr
