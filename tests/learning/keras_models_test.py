"""Keras 3 models as functional models: weights, randomness, metrics, and what is refused."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors, learning, mechanisms
from tests.aggregators import rounds
from tests.learning import models

pytestmark = [pytest.mark.tff, pytest.mark.usefixtures('local_runtime')]

_SPEC = models.least_squares().input_spec


def _dense(**options):
    model = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1, **options)])
    model.set_weights([models.INITIAL, np.zeros(1, np.float32)])
    return model


def _from_keras(model, **options):
    return learning.from_keras(model, **{'loss': 'mse', 'input_spec': _SPEC, **options})


def _process(model, noise_multiplier):
    return learning.build_dp_fedavg(
        model,
        rounds.plan(mechanisms.Identity(2), 3, clip_norm=0.4, noise_multiplier=noise_multiplier),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        noise_seed=3,
    )


@pytest.mark.standard
def test_training_is_that_of_the_same_model_by_hand():
    model = _from_keras(_dense(), metrics=[keras.metrics.MeanSquaredError('mse')])
    process, clients = _process(model, 0.0), [models.client(k, [4, 3][: 2 - k]) for k in (0, 1)]
    shards = [models.dataset(batches, batches[0]) for batches in clients]
    state, metrics = process.next(process.initialize(), shards)
    clipped = (rounds.clipped(models.trained(batches, 0.1), 0.4) for batches in clients)
    total = [sum(leaves) for leaves in zip(*clipped, strict=True)]
    trained = process.get_model_weights(state).trainable
    expected = [old + whole / 3 for old, whole in zip(models.START, total, strict=True)]
    models.assert_close(trained, expected, atol=1e-5)
    train = metrics['client_work']['train']
    assert train['num_examples'] == 11
    # Keras sums over the examples of all clients, as the mean loss over examples does.
    assert train['mse'] == pytest.approx(train['loss'], rel=1e-5) and train['loss'] > 0


@pytest.mark.standard
def test_dropout_trains_the_same_again_and_frozen_weights_have_no_part_in_updates_and_noise():
    frozen_layer = keras.layers.Dense(3, trainable=False)
    layers = [frozen_layer, keras.layers.Dropout(0.5, seed=1), keras.layers.Dense(1)]
    converted = _from_keras(keras.Sequential([keras.layers.Input([2]), *layers]))
    trainable, frozen = converted.initial_weights
    assert [w.shape for w in trainable] == [(3, 1), (1,)]
    assert [w.shape for w in frozen] == [(2, 3), (3,)]
    process, batches = _process(converted, 1.0), models.client(0, [4])
    start, data = process.initialize(), [models.dataset(batches, batches[0])] * 3
    after, again = (process.get_model_weights(process.next(start, data).state) for _ in range(2))
    np.testing.assert_equal(after.trainable, again.trainable)
    np.testing.assert_equal(after.non_trainable, frozen)
    for weight, before in zip(after.trainable, trainable, strict=True):
        assert (np.asarray(weight) != before).all()


def _with_dropout(seed):
    return keras.Sequential(
        [
            keras.layers.Input([2]),
            keras.layers.Dense(64, kernel_initializer='ones'),
            keras.layers.Dropout(0.5, seed=seed),
            keras.layers.Dropout(0.5, seed=seed + 1),
        ]
    )


def test_dropout_is_a_function_of_seed_weights_and_batch():
    converted = _from_keras(_with_dropout(1))
    assert converted.initial_weights[1] == ()  # The state of a seed is no weight.
    x = models.client(1, [6])[0]['x']

    def kept(model=converted, x=x, shift=0.0, training=True):
        weights = [w + np.float32(shift) for w in model.initial_weights[0]]
        return (model.predict_on_batch((weights, ()), x, training=training) != 0).numpy()

    first = kept()
    assert 0.15 < first.mean() < 0.35 and kept(training=False).all()
    np.testing.assert_array_equal(first, kept())
    for other in (kept(_from_keras(_with_dropout(5))), kept(shift=1e-3), kept(x=x[::-1])):
        # Masks of a quarter: independent ones differ in three eighths of the entries.
        assert 0.25 < (first != other).mean() < 0.5


@pytest.mark.standard
def test_the_algorithms_of_tff_take_it():
    model = _from_keras(_dense(), metrics=[keras.metrics.MeanSquaredError('mse')])
    process = tff.learning.algorithms.build_weighted_fed_avg(
        model, tff.learning.optimizers.build_sgdm(0.1), tff.learning.optimizers.build_sgdm(1.0)
    )
    batches = models.client(0, [4, 3])
    data = models.dataset(batches, batches[0])
    state, metrics = process.next(process.initialize(), [data, data])
    assert metrics['client_work']['train']['num_examples'] == 14
    trained = process.get_model_weights(state)
    moved = models.trained(batches, 0.1)
    for actual, start, change in zip(trained.trainable, models.START, moved, strict=True):
        np.testing.assert_allclose(actual, start + change, rtol=1e-5)
    evaluation = tff.learning.algorithms.build_fed_eval(model)
    started = evaluation.set_model_weights(evaluation.initialize(), trained)
    _, metrics = evaluation.next(started, [data])
    measured = metrics['client_work']['eval']['current_round_metrics']
    assert measured['mse'] == pytest.approx(measured['loss'], rel=1e-5)


def test_evaluation_leaves_dropout_out():
    model = keras.Sequential([*_with_dropout(1).layers, keras.layers.Dense(1)])
    model.build((None, 2))
    batches = models.client(0, [4, 3])
    data = tf.data.Dataset.from_generator(lambda: batches, output_signature=dict(_SPEC))
    converted = _from_keras(model, metrics=[keras.metrics.MeanAbsoluteError('mae')])
    weights = tff.learning.models.ModelWeights(*converted.initial_weights)
    measured = learning.build_evaluation(converted, data)(weights)
    x, y = (np.concatenate([batch[name] for batch in batches]) for name in 'xy')
    assert measured['mae'] == pytest.approx(np.abs(model(x) - y).mean(), rel=1e-5)
    assert measured['loss'] == pytest.approx(np.mean((model(x) - y) ** 2), rel=1e-5)


class Captures(keras.layers.Layer):
    """Makes a tensor while it is built, and uses it when it is called."""

    def build(self, shape):
        self.scale = tf.constant([2.0, 3.0])

    def call(self, x):
        return x * self.scale


class Counts(keras.layers.Layer):
    """Counts its calls in a weight."""

    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer='zeros', trainable=False, name='calls')

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


def _sequence(*layers):
    return keras.Sequential([keras.layers.Input([2]), *layers, keras.layers.Dense(1)])


def _stateful():
    recurrent = keras.layers.SimpleRNN(3, stateful=True)
    return keras.Sequential(
        [keras.layers.Input(batch_shape=[4, 5, 2]), recurrent, keras.layers.Dense(1)]
    )


def _with_own_loss():
    class _WithOwnLoss(keras.Sequential):
        def compute_loss(self, *args, **options):
            return 2.0

    return _WithOwnLoss([keras.layers.Input([2]), keras.layers.Dense(1)])


def _masked():
    words = keras.Input([3], dtype='int32')
    embedded = keras.layers.Embedding(5, 4, mask_zero=True)(words)
    return keras.Model(words, keras.layers.Dense(1)(embedded))


def _two_outputs():
    x = keras.Input([2])
    return keras.Model(x, {name: keras.layers.Dense(1)(x) for name in 'ab'})


def _metrics(*names, started=False):
    metrics = [keras.metrics.MeanSquaredError(name) for name in names]
    if started:
        metrics[0].update_state([1.0], [0.0])
    return {'metrics': metrics}


_OF_SEQUENCES = {'input_spec': (tf.TensorSpec([4, 5, 2]), tf.TensorSpec([4, 1]))}
_OF_WORDS = {'input_spec': (tf.TensorSpec([None, 3], tf.int32), tf.TensorSpec([None, 3, 1]))}


@pytest.mark.parametrize(
    'build, options, message',
    [
        # What training cannot keep.
        (
            lambda: _sequence(keras.layers.BatchNormalization()),
            {},
            '.*moving_mean.*gradients only',
        ),
        (lambda: _sequence(Counts()), {}, '.*calls.*gradients only'),
        (lambda: _sequence(Captures()), {}, r'.*\(2,\).*made while it was built'),
        (_stateful, _OF_SEQUENCES, '.*gradients only'),
        (lambda: _dense(kernel_regularizer='l2'), {}, '.*losses of its own'),
        (
            lambda: _dense(kernel_constraint='non_neg'),
            {},
            'model=.*kernel: must have no constraint',
        ),
        (_masked, _OF_WORDS, '.*mask on its outputs'),
        (_with_own_loss, {}, 'model=_WithOwnLoss.compute_loss: '),
        (lambda: keras.Sequential([keras.layers.Dense(1)]), {}, '.*has been built'),
        (lambda: tf.keras.Sequential([tf.keras.layers.Dense(1)]), {}, '.*Keras 3'),
        # What it would not use.
        (
            _dense,
            {'input_spec': {**_SPEC, 'sample_weight': _SPEC['y']}},
            'input_spec: .*x and y alone',
        ),
        (_dense, {'input_spec': (_SPEC['x'], _SPEC['y'], _SPEC['y'])}, 'input_spec: .*a pair'),
        (_dense, {'input_spec': {'x': _SPEC['x']}}, 'input_spec: '),
        (_dense, {'input_spec': None}, 'input_spec: .*a pair'),
        (_dense, {'input_spec': _SPEC['x']}, 'input_spec: .*a pair'),
        (
            _dense,
            {'input_spec': (tf.TensorSpec([None, 3]), _SPEC['y'])},
            'input_spec: must fit the model and its batches .*expected axis',
        ),
        (_dense, {'loss': None}, 'loss=None: must be a loss'),
        (_dense, {'loss': {'output': 'mse'}}, 'loss={.*: must be a loss'),
        (_two_outputs, {}, 'loss: must fit the model and its batches'),
        (_dense, {'metrics': ['accuracy']}, 'metrics=.*accuracy.*: must be a list of instances'),
        (_dense, {'metrics': keras.metrics.AUC()}, 'metrics=.*: must be a list of instances'),
        (_dense, _metrics('a', 'a'), '.*different names'),
        (_dense, _metrics('loss'), '.*different names'),
        (_dense, _metrics('num_examples'), '.*different names'),
        (_dense, _metrics('mse', started=True), '.*must start at 0'),
        (_dense, {'metrics': [keras.metrics.F1Score()]}, 'metrics=f1_score: .*its variables'),
        (_dense, {'metrics': [keras.metrics.R2Score()]}, 'metrics=r2_score: .*its variables'),
    ],
)
def test_what_is_refused(build, options, message):
    with pytest.raises(errors.ArgumentError, match=f'^{message}') as caught:
        _from_keras(build(), **options)
    assert '\n' not in str(caught.value)


def test_a_frozen_batch_normalization_is_taken():
    converted = _from_keras(_sequence(keras.layers.BatchNormalization(trainable=False)))
    assert [w.shape for w in converted.initial_weights[1]] == [(2,)] * 4


def test_inputs_and_structures_of_many_kinds():
    """Two inputs by name, integers among them, and batches as pairs."""
    numbers, words = keras.Input([2], name='numbers'), keras.Input([3], dtype='int32', name='words')
    flat = keras.layers.Flatten()(keras.layers.Embedding(5, 4)(words))
    joined = keras.layers.Concatenate()([numbers, keras.layers.Dropout(0.2, seed=1)(flat)])
    model = keras.Model({'numbers': numbers, 'words': words}, keras.layers.Dense(1)(joined))
    x = collections.OrderedDict(
        numbers=tf.TensorSpec([None, 2]), words=tf.TensorSpec([None, 3], tf.int32)
    )
    converted = _from_keras(model, input_spec=(x, tf.TensorSpec([None, 1])))
    batch = dict(
        numbers=np.ones([2, 2], np.float32), words=np.array([[0, 1, 2], [3, 4, 0]], np.int32)
    )
    actual = converted.predict_on_batch(converted.initial_weights, batch, training=False)
    np.testing.assert_allclose(actual, model(batch), rtol=1e-6)
