"""Settings that a run refuses: alone, together with others, and before anything is written."""

import pytest

from dpfl import errors
from dpfl.simulation.training import GanConfig, TrainConfig, dry_run, train
from dpfl.tasks.before_training import WordRelease
from tests import text_files
from tests.simulation.training import small_config

_BLT = small_config.BLT
_AUDITED = _BLT.with_values({'audit': True, 'audit_canaries': 400})
_NO_OPTIMIZER = TrainConfig()
# For tasks without text.
_NO_WORDS = {'vocabulary_size': None, 'sentence_length': 20}


@pytest.mark.parametrize(
    'base, changes, message',
    [
        (_BLT, {'rond': 5}, 'rond: is not a setting of TrainConfig'),
        (
            _BLT,
            {'target_epsilon': 2.0},
            'target_epsilon=2.0: cannot be combined with noise_multiplier',
        ),
        (_BLT, {'timer_hours': 5.0}, 'timer_hours=5.0: needs sampling=timer'),
        (_AUDITED, {'noise': 'hardened'}, 'audit=True: cannot be combined with noise=hardened'),
        (_AUDITED, {'clipping': 'per_layer'}, 'audit=True: .* with clipping=per_layer'),
        (_AUDITED, {'estimator': 'clipped'}, 'audit=True: .* with estimator=clipped'),
        (_AUDITED, {'example_cap': 5.0}, 'audit=True: cannot be combined with .*example_cap'),
        (_AUDITED, {'stop_at_accuracy': 0.5}, 'audit=True: .* with .*stop_at_accuracy'),
        (
            GanConfig(),
            {'audit': True, 'clipping': 'per_layer'},
            'audit=True: cannot be combined with clipping',
        ),
        (GanConfig(), {'test_clients': 2}, 'test_clients=2: must be 0 for a GAN'),
        (_BLT, {'test_clients': -1}, 'test_clients=-1: must be an integer >= 0'),
        *(
            (
                _BLT,
                {'test_clients': 5, 'task': task, 'model': None, **_NO_WORDS},
                'test_clients=5: must be 0 for',
            )
            for task in ('user_text', 'emnist', 'synthetic_glyphs')
        ),
        (_BLT, {'task': 'emnist', **_NO_WORDS}, 'model=micro: must be one of small, cnn, tiny for'),
        (_NO_OPTIMIZER, {'server_optimizer': 'adam', 'server_nesterov': True}, 'server_nesterov='),
        (_NO_OPTIMIZER, {'server_nesterov': True, 'server_momentum': 0.0}, 'server_nesterov='),
        # No float32, so that no client or no step would move the model, or only to infinity.
        (_NO_OPTIMIZER, {'server_learning_rate': 1e39}, 'server_learning_rate=1e.39: must be'),
        (_BLT, {'client_learning_rate': 1e-60}, 'client_learning_rate=1e-60: must be'),
    ],
)
def test_settings_are_refused_by_their_configuration(base, changes, message):
    with pytest.raises(errors.ArgumentError, match=f'^{message}') as caught:
        base.with_values(changes)
    assert '\n' not in str(caught.value)


# --- Before a run has a directory.


@pytest.fixture(scope='module', name='words')
def _words(tmp_path_factory):
    """Changes for a run that finds its words privately."""
    path = tmp_path_factory.mktemp('data') / 'data.jsonl'
    text_files.write_clients(path, clients=90, sentences=4)
    return {**small_config.PRIVATE_WORDS, 'data_path': str(path)}


_OTHER_TASK = 'vocabulary=private: needs task=stackoverflow or'
_KNOWN = 'needs a vocabulary that is known before'


@pytest.mark.parametrize(
    'finds_words, changes, message',
    [
        (False, {'delta': 2.0}, 'delta=2.0'),
        (False, {'rounds': None}, 'rounds: must be given'),
        (
            False,
            {'task': 'custom', 'model': None, **_NO_WORDS},
            'task=custom: needs a task of your own',
        ),
        (False, {'ray_timeout': 0}, 'ray_timeout=0'),
        (True, {'vocabulary_epsilon': None}, 'vocabulary=private: needs vocabulary_epsilon'),
        (True, {'vocabulary': 'data'}, 'vocabulary_epsilon=30.0: needs vocabulary=private'),
        (True, {'task': 'synthetic_text'}, _OTHER_TASK),
        (True, {'warm_start': 'x'}, f'warm_start=x: {_KNOWN}'),
        (True, {'noise': 'hardened'}, 'noise=hardened: must be default with a vocabulary'),
        # A private vocabulary was drawn, shown and forgotten, and the next call drew again.
        (True, {'clients_per_round': 5000}, 'clients_per_round'),
        (True, {'population': 100_000}, 'population'),
        (True, {'min_separation': 0}, 'min_separation'),
        (True, {'secagg': True, 'secagg_bits': 2}, 'secagg_bits'),
        # A norm of a round that the run does not have was ignored.
        (True, {'clip_schedule': ((4, 0.1),)}, 'clip_schedule=4:0.1: must have no round after 3'),
    ],
)
def test_a_run_is_refused_before_anything_is_drawn_or_written(
    finds_words, changes, message, words, tmp_path, monkeypatch
):
    monkeypatch.setattr(WordRelease, 'find', lambda *_: pytest.fail('drawn'))
    with pytest.raises(errors.ArgumentError, match=f'^{message}'):
        base = small_config.GAUSSIAN.with_values(words) if finds_words else _BLT
        train(base.with_values(changes), tmp_path / 'run')
    assert not (tmp_path / 'run').exists()


def test_an_epsilon_that_finds_no_word_is_refused(words, tmp_path):
    base = small_config.GAUSSIAN.with_values({**words, 'vocabulary_epsilon': 0.1})
    with pytest.raises(errors.ArgumentError, match='vocabulary_epsilon=0.1: found no word'):
        train(base, tmp_path / 'run')


def test_releases_before_training_are_not_made_by_a_dry_run(words):
    with pytest.raises(errors.ArgumentError, match='vocabulary=private: cannot be used'):
        dry_run(small_config.GAUSSIAN.with_values(words))


@pytest.mark.standard
@pytest.mark.parametrize(
    'changes, message',
    [
        ({'noise_multiplier': None}, 'noise_multiplier: must be given'),
        ({'population': 3}, 'population=3: must be an integer >= 4'),
    ],
)
def test_a_dry_run_refuses_what_a_run_refuses(changes, message, tmp_path):
    refused = _BLT.with_values(changes)
    with pytest.raises(errors.ArgumentError, match=f'^{message}'):
        dry_run(refused)
    with pytest.raises(errors.ArgumentError, match=f'^{message}'):
        train(refused, tmp_path / 'run')
