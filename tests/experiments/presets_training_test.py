"""Every preset of a paper trains on small files in the real formats."""

import math

import pytest

from dpfl import Participation, mechanisms
from dpfl.simulation.training import train
from tests import forked_binaries, presets
from tests.tasks.images import emnist_files
from tests.tasks.text import small_files

_PRESETS = presets.load()
_SMALL = dict(
    rounds=2,
    clients_per_round=3,
    min_separation=1,
    max_participations=None,
    client_max_tokens=40,
    client_max_batches=1,
    sentence_length=6,
    vocabulary_size=40,
    eval_clients=2,
    shards=1,
    noise_seed=1,
)
_IMAGE_FLAGS = ('rounds', 'clients_per_round', 'eval_clients', 'noise_seed', 'client_max_batches')
_SMALL_MODELS = {
    'lstm_256': 'lstm_tiny',
    'lstm_670': 'lstm_dense_tiny',
    'cifg_670': 'micro',
    'dcgan': 'tiny',
    'char_cifg_256': 'char_tiny',
}


@pytest.fixture(scope='module', name='files')
def _files(tmp_path_factory):
    """Small files in the real formats."""
    path = tmp_path_factory.mktemp('files')
    small_files.write_stackoverflow(path / 'stackoverflow.sqlite')
    small_files.write_json_lines(path / 'user_text.jsonl')
    small_files.write_vocabulary(path / 'words')
    emnist_files.write_sqlite(path / 'emnist.sqlite')
    banded = mechanisms.optimize_banded(Participation(2, 2), 2, loss='rms')
    mechanisms.save(banded, path / 'banded.npz')
    return path


def _small(preset, files):
    flags = preset.flags()
    task = flags['task']
    of_text = task != 'emnist'
    suffix = '.jsonl' if task == 'user_text' else '.sqlite'
    changes = {name: value for name, value in _SMALL.items() if of_text or name in _IMAGE_FLAGS}
    if of_text:
        changes['vocabulary_file'] = files / 'words'
    for name in ('model', 'word_model', 'char_model'):
        if name in flags:
            changes[name] = _SMALL_MODELS[flags[name]]
    if flags.get('client_min_tokens'):
        changes['client_min_tokens'] = 5
    if flags.get('test_clients'):
        changes['test_clients'] = 2
    if flags.get('strategy') == 'banded.npz':
        changes |= dict(strategy=files / 'banded.npz', min_separation=2)
    if flags['sampling' if 'sampling' in flags else 'task'] in ('poisson', 'without_replacement'):
        changes['population'] = 2 if task == 'emnist' else 12
    if flags.get('client_update') == 'fedsgd':
        changes['client_max_batches'] = None
    if flags.get('adaptive_clip'):
        changes |= dict(restart_first=0, restart_every=1, count_stddev=4, noise_multiplier=3)
    return {**changes, 'data_path': files / f'{task}{suffix}'}


# What some presets need besides; cohorts of enough rounds that those of two generators of text
# differ in their counts, too.
_OWN = {
    'emnist.004.gan': dict(clients_per_round=2, generator_batch_size=4, generator_steps=1),
    'stackoverflow.004.debug': dict(rounds=8, inject_share='1', samples=100, word_length=8),
    'emnist.004.debug': dict(
        samples=8,
        clients_per_round=1,
        primary_model='tiny',
        primary_steps=2,
        generator_batch_size=4,
        generator_steps=1,
        population=None,
    ),
}


@pytest.mark.standard
@pytest.mark.tff
def test_the_preset_of_the_keyboard_trains_on_a_small_file(files, tmp_path):
    test_a_preset_trains_on_small_files(_PRESETS['gboard.002.blt'], files, tmp_path)


def _presets(*binaries):
    quick = 'gboard.002.blt'
    found = [each for each in _PRESETS.values() if each.binary in binaries and each.name != quick]
    return pytest.mark.parametrize('preset', found, ids=lambda preset: preset.name)


@pytest.mark.exhaustive
@pytest.mark.tff
@_presets('train', 'train_gan')
def test_a_preset_trains_on_small_files(preset, files, tmp_path):
    changes = _small(preset, files) | _OWN.get(preset.name, {})
    result = train(presets.config(preset.name, **changes), tmp_path / 'run', progress=False)
    assert math.isfinite(result.last['loss'])
    assert (result.report is not None) and result.metrics['round'][-1] == 2


@pytest.mark.exhaustive
@pytest.mark.tff
@_presets('debug_text', 'debug_images')
def test_the_study_of_the_bug_runs_on_a_small_file(preset, files, tmp_path):
    changes = _small(preset, files) | _OWN[preset.name]
    if 'emnist' in preset.name:
        writers = {f'f{i:04}_00': 6 for i in range(40)}
        changes['data_path'] = emnist_files.write_sqlite(tmp_path / 'many.sqlite', writers)
    changes['output_dir'] = tmp_path / 'run'
    flags = [f'--{name}={value}' for name, value in changes.items() if value is not None]
    forked_binaries.run(preset.binary, f'--flagfile={preset.path}', *flags, check=True)
