"""The binaries that pre-train language models, generate with them and compare them."""

import json

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


def test_sentences_are_printed(model):
    words = (model.parent / 'model.vocabulary.txt').read_text().split()
    assert len(words) == 96
    flags = (f'--model_dir={model}', '--count=5', '--length=12')
    drawn = forked_binaries.printed('generate', *flags)
    # The same in another process.
    again = binaries.run('generate', *flags, '--format=json')
    assert drawn == json.loads(again.stdout)
    assert all(set(one['text'].split()) <= {*words, 'UNK'} for one in drawn)
