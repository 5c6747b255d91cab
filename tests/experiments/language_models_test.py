"""The binaries that pre-train language models, generate with them and compare them."""

import json
import shutil

import numpy as np
import pytest

from tests import binaries, forked_binaries

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope='module', name='model')
def _model(tmp_path_factory):
    path = tmp_path_factory.mktemp('public') / 'model'
    summary = binaries.pretrain(path, '--public_clients=60', '--epochs=4')
    assert summary['words'] == 96 and summary['loss'] < 0.8 * np.log(100)
    return path


def _printed(binary, *flags):
    done = forked_binaries.run(binary, *flags, '--format=json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sentences_are_printed_and_ranked(model):
    words = (model.parent / 'model.vocabulary.txt').read_text().split()
    assert len(words) == 96
    flags = (f'--model_dir={model}', '--count=5', '--length=12')
    drawn = _printed('generate', *flags)
    # The same in another process.
    again = binaries.run('generate', *flags, '--format=json')
    assert drawn == json.loads(again.stdout)
    assert all(set(one['text'].split()) <= {*words, 'UNK'} for one in drawn)
    ranked = _printed('generate', *flags, '--rank=3000')
    scores = [one['log_probability'] for one in ranked]
    assert scores == sorted(scores, reverse=True) and len({one['text'] for one in ranked}) == 5
    assert min(scores) > np.mean([one['log_probability'] for one in drawn])


def test_models_are_compared_in_one_table(model, tmp_path):
    run = tmp_path / 'run'  # As the directory of a run has its model.
    shutil.copytree(model, run / 'saved_model')
    flags = (*binaries.TASK, f'--models={model},{run}', '--eval_clients=20')
    result = _printed('studies.compare_head_words', *flags)
    assert result['heads'] == [10, 50] and result['top'] == 10  # 96 words: 100 says nothing.
    first, second = result['models']
    assert second == first | {'model': str(run)} and 0.05 < first['accuracy'] < 1
    counts = np.array(first['counts'])
    assert counts.shape == (2, 11) and (counts.sum(axis=1) == counts[0].sum()).all()
    # A word among the 10 most frequent is one among the 50: the mass moves to the right.
    assert (counts @ np.arange(11))[1] > (counts @ np.arange(11))[0]
