"""Arguments and settings of tasks that are refused: each error names the argument."""

import math

import numpy as np
import pytest

from dpfl.debugging.images import clients as images
from dpfl.debugging.images import traits
from dpfl.tasks import federated_task
from dpfl.tasks.before_training import WordCounts, WordRelease
from dpfl.tasks.config import DataConfig, ImageFaultConfig, TaskConfig, TextConfig
from dpfl.tasks.images import classifiers, gan_models, image_task
from dpfl.tasks.images.synthetic_glyphs import SyntheticGlyphs
from dpfl.tasks.text import text_task
from dpfl.tasks.text.models import architectures, recurrent, saved_models
from dpfl.tasks.text.synthetic_text import SyntheticText

_CELL = recurrent.StackedCifg(3, 4, 2, num_layers=2)
_WEIGHTS = _CELL.initial_weights(5, seed=0)
_WORDS = tuple(f'w{i}' for i in range(46))


def _task(**values):
    return TaskConfig().with_values(values)


def _language(vocabulary_size, language_size):
    text = TextConfig(
        sentence_length=8, vocabulary_size=vocabulary_size, language_size=language_size
    )
    return text_task.TextTask(TaskConfig(model='micro', text=text), 3, print).load()


def _model(**values):
    weights = saved_models.ALL['micro'].initial_weights(50, seed=1)
    arguments = dict(name='micro', weights=weights, vocabulary=_WORDS)
    return saved_models.LanguageModel(**{**arguments, **values})


def _trained(**values):
    arguments = dict(pixels=np.zeros([4, 28, 28], 'f'), labels=np.zeros(4, np.int32), steps=1)
    return classifiers.train_centrally('tiny', **{**arguments, **values})


def _verdicts(*sizes):
    return images.Verdicts(np.arange(len(sizes)), np.array(sizes, int), np.ones(sum(sizes), bool))


# Settings that nothing would read.
_UNREAD = [
    ('emnist', dict(packing='windows')),
    ('emnist', dict(client_min_tokens=5)),
    ('emnist', dict(vocabulary_size=5)),
    ('emnist', dict(vocabulary_file='words')),
    ('emnist', dict(vocabulary_text='text')),
    ('emnist', dict(vocabulary='data')),
    ('emnist', dict(sentence_length=5)),
    ('emnist', dict(client_max_tokens=5)),
    ('git_log', dict(text_column='body')),
    ('stackoverflow', dict(client_column='author')),
    ('stackoverflow', dict(text_column='body')),
    ('user_text', dict(language_size=60)),
    ('synthetic_text', dict(heldout_fraction=0.2)),
]
_GENERAL = [
    (lambda: federated_task.num_held_out(10, 0), 'heldout_fraction='),
    (lambda: federated_task.num_held_out(10, 1), 'heldout_fraction='),
    (lambda: federated_task.num_held_out(10, math.nan), 'heldout_fraction='),
    (lambda: federated_task.num_held_out(1, 0.1), 'num_clients=1: must be at least 2'),
    (lambda: ImageFaultConfig(inject=('inverted',) * 2), 'inject=.*must name each fault once'),
    (lambda: ImageFaultConfig(inject_share=0.1), 'inject_share=0.1: needs inject'),
    (lambda: _task(inject=('inverted',)), 'inject=inverted: needs task=synthetic_glyphs or emnist'),
]
_OF_TEXT = [
    (lambda: _language(61, 60), 'language_size=60: must be >= 61, vocabulary_size'),
    (lambda: _language(3, 5), 'language_size=5: must be an integer >= '),
    (lambda: SyntheticText(vocabulary_size=19), 'vocabulary_size=19: must be [^\n]+$'),
    (lambda: SyntheticText(seed=2**64), f'seed={2**64}: must be [^\n]+$'),
    (lambda: SyntheticText(sentence_length=1), 'sentence_length=1: must be [^\n]+$'),
    (lambda: SyntheticText(sentence_length=3), 'sentence_length=3: must be an integer >= 4'),
    (lambda: WordCounts.of([{}, {}], seed=0), '.*the data have no words'),
    (lambda: WordRelease.of_guarantee(1, 1e-6, words_per_client=5, rounds=0), 'rounds=0'),
    (lambda: WordRelease.of_guarantee(0, 1e-6, words_per_client=5), 'epsilon=0'),
    (
        lambda: architectures.check_weights(_CELL, _WEIGHTS[:-1]),
        'weights: must be 11 arrays, but are 10',
    ),
    (
        lambda: architectures.check_weights(
            _CELL, (*_WEIGHTS[:4], np.zeros((4, 3)), *_WEIGHTS[5:])
        ),
        r'weights: layer_0_projection must have shape \(4, 2\), but has \(4, 3\)',
    ),
    (lambda: _model(name='huge'), 'name=huge: must be one of'),
    (lambda: _model(vocabulary=None), 'vocabulary: must be given for word models'),
    (lambda: _model(vocabulary=_WORDS[1:]), 'vocabulary: must have 46 words, has 45'),
    (
        lambda: _model(name='char_tiny', vocabulary=None),
        'weights: input_embedding must have shape',
    ),
]
_OF_IMAGES = [
    (
        lambda: image_task.open_clients('emnist', DataConfig(), ImageFaultConfig(), 0),
        'data_path: must be given for task=emnist, or download',
    ),
    (lambda: _trained(seed=-1), 'seed=-1'),
    (lambda: _trained(labels=np.zeros(0, np.int32)), 'number of examples=0'),
    (lambda: classifiers.build_image_classifier('huge', 0), 'name=huge'),
    (lambda: classifiers.of_weights('small', _WEIGHTS), 'weights: must be those of small'),
    (lambda: gan_models.build_gan_model('large', 0), 'name=large: must be one of dcgan, '),
    (lambda: gan_models.build_gan_model('tiny', -1), 'seed=-1: must be an integer'),
    (lambda: SyntheticGlyphs(seed=-1), 'seed='),
    (lambda: SyntheticGlyphs().examples(-1), 'client='),
    (lambda: SyntheticGlyphs().examples(2**64), 'client='),
    (lambda: SyntheticGlyphs().examples(0.5), 'client='),
    (lambda: images.thresholds(_verdicts()), 'clients with examples=0'),
    (
        lambda: traits.frechet_distance(np.ones([1, 2]), np.ones([3, 2])),
        'number of images=1',
    ),
]


@pytest.mark.parametrize('make, message', [*_GENERAL, *_OF_TEXT, *_OF_IMAGES])
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=f'^{message}'):
        make()


@pytest.mark.parametrize('task, values', _UNREAD)
def test_a_setting_that_nothing_would_read_is_refused(task, values):
    with pytest.raises(ValueError, match=f'^{next(iter(values))}=.*: needs task='):
        _task(task=task, **values)
