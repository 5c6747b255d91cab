"""The projected CIFG-LSTM: published sizes, a NumPy oracle, gradients, padding, initial weights."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks import language_models, metrics
from dpfl.tasks.language_models import LanguageModelSizes

_SIZES = LanguageModelSizes(embedding_size=3, hidden_size=4, projection_size=2)
_NUM_TOKENS = 7
_TOKENS = np.array([[1, 5, 3, 6], [1, 4, 2, 0], [1, 6, 6, 5]])
_TARGETS = np.array([[5, 3, 6, 2], [4, 2, 0, 0], [6, 6, 5, 4]])


def _weights(dtype=np.float64):
    rng = np.random.default_rng(0)
    shapes = _SIZES.weight_shapes(_NUM_TOKENS).values()
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _oracle_logits(weights, tokens):
    """One sentence, one position, one gate at a time."""
    embedding, kernel, recurrent_kernel, bias, projection, output_embedding, output_bias = weights
    hidden = _SIZES.hidden_size
    result = np.zeros([*tokens.shape, _NUM_TOKENS])
    for row, sentence in enumerate(tokens):
        cell, recurrent = np.zeros(hidden), np.zeros(_SIZES.projection_size)
        for position, token in enumerate(sentence):
            gates = []
            for gate in range(3):
                part = slice(gate * hidden, (gate + 1) * hidden)
                gates.append(
                    embedding[token] @ kernel[:, part]
                    + recurrent @ recurrent_kernel[:, part]
                    + bias[part]
                )
            forget, output, candidate = gates
            forget = _sigmoid(forget)
            cell = forget * cell + (1 - forget) * np.tanh(candidate)
            recurrent = (_sigmoid(output) * np.tanh(cell)) @ projection
            result[row, position] = output_embedding @ recurrent + output_bias
    return result


def _oracle_loss(weights, tokens, targets):
    logits = _oracle_logits(weights, tokens)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_probabilities, targets[..., None], axis=-1)[..., 0]
    return losses[targets != 0].mean()


@pytest.mark.parametrize(
    'num_tokens, published', [(10_000, 2.4e6), (20_000, 4.4e6), (30_000, 6.4e6)]
)
def test_model_of_document_000_has_its_number_of_parameters(num_tokens, published):
    model = language_models.build_language_model('cifg_670', num_tokens, 20, seed=0)
    count = sum(weight.size for weight in model.initial_weights[0])
    v = num_tokens
    assert count == 3 * (96 + 96 + 1) * 670 + 670 * 96 + 2 * 96 * v + v
    assert count == language_models.PRESETS['cifg_670'].num_parameters(num_tokens)
    # The document rounds its vocabulary sizes: 1 %, 2 % and 2.5 % off at exactly 10k, 20k, 30k.
    assert count == pytest.approx(published, rel=0.026)


def test_logits_equal_a_loop_over_gates():
    weights = _weights()
    actual = language_models.logits(weights, tf.constant(_TOKENS))
    np.testing.assert_allclose(actual, _oracle_logits(weights, _TOKENS), rtol=1e-12, atol=1e-12)


def test_gradient_equals_finite_differences():
    weights = _weights()
    variables = [tf.constant(weight) for weight in weights]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        loss = metrics.mean_loss(language_models.logits(variables, tf.constant(_TOKENS)), _TARGETS)
    assert loss.numpy() == pytest.approx(_oracle_loss(weights, _TOKENS, _TARGETS), rel=1e-12)
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, variables)]
    step = 1e-5
    for number, weight in enumerate(weights):
        for index in np.ndindex(weight.shape):
            sides = []
            for sign in (1, -1):
                moved = [w.copy() for w in weights]
                moved[number][index] += sign * step
                sides.append(_oracle_loss(moved, _TOKENS, _TARGETS))
            expected = (sides[0] - sides[1]) / (2 * step)
            assert gradients[number][index] == pytest.approx(expected, abs=1e-8)


def _evaluate(tokens, targets):
    """Loss and metrics of the built model in float32."""
    model = language_models.build(_SIZES, _NUM_TOKENS, tokens.shape[1], seed=3)
    labels = tf.constant(targets, tf.int32)
    output = model.predict_on_batch(model.initial_weights, tf.constant(tokens, tf.int32))
    batch = type('Output', (), dict(loss=model.loss(output, labels), predictions=output))
    state = metrics.update.python_function(metrics.initialize(), labels, batch)
    return {name: float(value) for name, value in metrics.finalize(state).items()}


def test_padding_changes_nothing():
    plain = _evaluate(_TOKENS, _TARGETS)
    zeros = np.zeros((3, 2), int)
    longer = _evaluate(np.hstack([_TOKENS, zeros]), np.hstack([_TARGETS, zeros]))
    more_rows = _evaluate(np.vstack([_TOKENS, _TOKENS * 0]), np.vstack([_TARGETS, _TARGETS * 0]))
    assert longer == pytest.approx(plain, rel=1e-6)
    assert more_rows == pytest.approx(plain, rel=1e-6)


def test_later_tokens_do_not_reach_earlier_logits():
    weights = _weights()
    changed = _TOKENS.copy()
    changed[:, 2:] = 4
    before, after = (
        language_models.logits(weights, tf.constant(tokens)).numpy()
        for tokens in (_TOKENS, changed)
    )
    np.testing.assert_array_equal(before[:, :2], after[:, :2])
    assert (before[:, 2:] != after[:, 2:]).any()


@pytest.mark.parametrize('name', language_models.PRESETS)
def test_initial_weights_are_a_pure_function_of_the_seed(name):
    sizes = language_models.PRESETS[name]
    first, again, other = (language_models.initial_weights(sizes, 50, seed) for seed in (1, 1, 2))
    shapes = sizes.weight_shapes(50)
    for weight, name, same, different in zip(first, shapes, again, other, strict=True):
        assert type(weight) is np.ndarray
        assert weight.dtype == np.float32
        assert weight.shape == shapes[name]
        np.testing.assert_array_equal(weight, same)
        assert name.endswith('bias') or (weight != different).any()


def test_first_predictions_are_nearly_uniform():
    model = language_models.build_language_model('cifg_670', 1_000, 4, seed=0)
    tokens = np.random.default_rng(0).integers(0, 1_000, (8, 4)).astype(np.int32)
    loss = model.loss(model.predict_on_batch(model.initial_weights, tokens), tokens)
    assert float(loss) == pytest.approx(np.log(1_000), rel=0.05)


@pytest.mark.parametrize(
    'changes, message',
    [
        (dict(name='huge'), 'name=huge: must be one of '),
        (dict(num_tokens=1), 'num_tokens=1: must be an integer >= 2'),
        (dict(sequence_length=0), 'sequence_length=0: must be an integer >= 1'),
        (dict(seed=-1), 'seed=-1: must be an integer >= 0'),
    ],
)
def test_bad_arguments_are_named(changes, message):
    arguments = dict(name='tiny', num_tokens=10, sequence_length=5, seed=0)
    with pytest.raises(ValueError, match=f'^{message}'):
        language_models.build_language_model(**{**arguments, **changes})


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match='^hidden_size=0: must be an integer >= 1'):
        LanguageModelSizes(embedding_size=1, hidden_size=0, projection_size=1)
