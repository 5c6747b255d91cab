"""The binary that has generated images labelled, from a run of train_gan to the measure."""

import functools
import json

import numpy as np
import pytest

from dpfl.tasks.images import image_batches
from experiments.studies.labelling import labelling
from tests import forked_binaries

_run = functools.partial(forked_binaries.run, 'studies.label_images')
_TINY = (
    '--images=12',
    '--steps=2',
    '--model=tiny',
    '--public_clients=2',
    '--eval_clients=3',
    '--format=json',
)


@pytest.fixture(scope='module', name='gan')
def _gan(tmp_path_factory):
    path = tmp_path_factory.mktemp('gan')
    done = forked_binaries.run(
        'train_gan',
        *('--model=tiny', '--rounds=1', '--population=20', '--clients_per_round=2'),
        *('--client_max_batches=1', '--client_batch_size=4', '--eval_clients=1'),
        *('--sampling=without_replacement', '--delta=1e-3', '--noise_multiplier=0.5'),
        *('--noise_seed=1', f'--output_dir={path}'),
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.exhaustive
@pytest.mark.tff
def test_people_label_between_two_calls(gan, tmp_path):
    out = tmp_path / 'labels'
    done = _run(*_TINY, f'--run_dir={gan}', f'--output_dir={out}')
    assert done.returncode == 0, done.stderr
    page = json.loads(done.stdout)['page']
    assert page == str(out / labelling.SHEET)
    text = (out / labelling.SHEET).read_text()
    assert 'trained with epsilon' in text and 'it is a simulation' in text
    before = labelling.read_images(out)
    given = tmp_path / 'given.csv'
    given.write_text('image,label\n' + ''.join(f'{i},{i}\n' for i in range(10)))
    done = _run(*_TINY, f'--run_dir={gan}', f'--output_dir={out}', f'--labels={given}')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((out / 'labelled.json').read_text())
    assert (found['images'], found['labelled']) == (12, 10)
    assert found['effective_classes'] == pytest.approx(10)
    learned, few, both, public = found['models']
    assert (learned['images'], few['images'], both['images']) == (10, 10, 20) < (public['images'],)
    assert all(each['clients'] == 3 for each in found['models'])
    np.testing.assert_array_equal(labelling.read_images(out), before)
    kept = labelling.read_labels(out / labelling.LABELS, 12)
    assert kept.tolist() == [*range(10), -1, -1]


@pytest.mark.exhaustive
@pytest.mark.tff
def test_a_classifier_labels_in_place_of_people(gan, tmp_path):
    done = _run(
        *_TINY,
        *(f'--run_dir={gan}', f'--output_dir={tmp_path}'),
        *('--rater=tiny', '--rater_confidence=0'),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)['labelled'] == 12
    labels = labelling.read_labels(tmp_path / labelling.LABELS, 12)
    assert 0 <= labels.min() and labels.max() < len(image_batches.CLASSES)


@pytest.mark.exhaustive
@pytest.mark.tff
@pytest.mark.parametrize(
    'flags, message',
    [
        (('--labels=x.csv',), 'images.npz'),
        (('--rater=tiny', '--rater_confidence=1'), '--rater_confidence=1.0: leaves 0 images'),
        (('--rater=nowhere',), '--rater=nowhere: holds no classifier of images'),
        (('--rater=tiny', '--primary_model=nowhere'), '--primary_model=nowhere: holds no'),
    ],
)
def test_what_a_run_does_not_fit_is_refused(gan, tmp_path, flags, message):
    done = _run(*_TINY, f'--run_dir={gan}', f'--output_dir={tmp_path}', *flags)
    assert done.returncode == 2 and message in done.stderr.splitlines()[-1], done.stderr


def test_a_run_that_is_missing_leaves_no_directory(tmp_path):
    done = _run(*_TINY, f'--run_dir={tmp_path}/nowhere', f'--output_dir={tmp_path}/labels')
    assert done.returncode == 2 and '--run_dir=' in done.stderr.splitlines()[-1], done.stderr
    assert list(tmp_path.iterdir()) == []
