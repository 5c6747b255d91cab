"""All cells: published sizes, training and single steps agree, gradients, initial weights."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks.text.models import architectures, metrics, saved_models
from dpfl.tasks.text.models.recurrent import DenseLstm, StackedCifg, TiedLstm
from tests.tasks.text.models import reference

_CELLS = [
    StackedCifg(3, 4, 2),
    StackedCifg(3, 4, 2, num_layers=3),
    DenseLstm(3, 4, 2),
    TiedLstm(3, 4),
]
_NUM_TOKENS = 7
_DIRECTIONS = 3  # Along which a gradient is compared, for each weight.
_TOKENS = np.array([[1, 5, 3, 6], [1, 4, 2, 0], [1, 6, 6, 5]], np.int32)
_TARGETS = np.array([[5, 3, 6, 2], [4, 2, 0, 0], [6, 6, 5, 4]], np.int32)


@pytest.mark.parametrize(
    'name, num_tokens, parameters',
    [
        ('lstm_256', 10_000, 1_346_144),  # [McMahan18]: 1.35 million.
        # The benchmark's LSTM has one bias; embedding and dense layers of 96.
        ('lstm_670', 10_004, 4_050_748),
        # [Xu23]: 2.4 million. Layers of 670 and 96, two embeddings and a bias.
        ('cifg_670', 10_000, 3 * 193 * 670 + 670 * 96 + 2 * 96 * 10_000 + 10_000),
        # [Augenstein20]: three layers of 256 and 128, and bytes.
        ('char_cifg_256', 258, 756_738),
    ],
)
def test_sizes_are_published(name, num_tokens, parameters):
    assert saved_models.ALL[name].num_parameters(num_tokens) == parameters


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _oracle_layer(cell, weights, tokens):
    """Logits of an LSTM with one layer: a sentence, a position and a gate at a time, in float64."""
    weights = [weight.astype(np.float64) for weight in weights]
    if isinstance(cell, TiedLstm):
        embedding, *gates, projection, projection_bias = weights
        embedding = np.array([row / np.sqrt(sum(row**2)) for row in embedding])
        output_kernel, output_bias = embedding.T, 0
    else:
        embedding, kernel, recurrent_kernel, bias, projection, projection_bias, *output = weights
        output_kernel, output_bias = output
    result = np.zeros([*tokens.shape, _NUM_TOKENS])
    for row, sentence in enumerate(tokens):
        state, hidden = np.zeros(4), np.zeros(4)
        for position, token in enumerate(sentence):
            if isinstance(cell, TiedLstm):
                inputs = np.concatenate([embedding[token], hidden])
                of_gates = [inputs @ k + b for k, b in zip(gates[::2], gates[1::2], strict=True)]
            else:
                values = embedding[token] @ kernel + hidden @ recurrent_kernel + bias
                of_gates = values.reshape(4, 4)
            allow, candidate, forget, expose = of_gates
            state = _sigmoid(forget) * state + _sigmoid(allow) * np.tanh(candidate)
            hidden = _sigmoid(expose) * np.tanh(state)
            outputs = hidden @ projection + projection_bias
            result[row, position] = outputs @ output_kernel + output_bias
    return result


def _oracle_stacked(cell, weights, tokens):
    """Logits of the stacked CIFG: each layer is run over the sentence before the next one."""
    weights = [weight.astype(np.float64) for weight in weights]
    embedding, *layers, output_embedding, output_bias = weights
    outputs = embedding[tokens]
    hidden_size = cell.hidden_size
    for number in range(cell.num_layers):
        kernel, recurrent_kernel, bias, projection = layers[4 * number : 4 * number + 4]
        below, outputs = outputs, np.zeros([*tokens.shape, cell.projection_size])
        for row in range(len(tokens)):
            state, recurrent = np.zeros(hidden_size), np.zeros(cell.projection_size)
            for position, inputs in enumerate(below[row]):
                gates = inputs @ kernel + recurrent @ recurrent_kernel + bias
                forget, expose = _sigmoid(gates[:hidden_size]), gates[hidden_size:-hidden_size]
                state = forget * state + (1 - forget) * np.tanh(gates[-hidden_size:])
                recurrent = (_sigmoid(expose) * np.tanh(state)) @ projection
                outputs[row, position] = recurrent
    return outputs @ output_embedding.T + output_bias


def _oracle(cell, weights, tokens):
    is_stacked = isinstance(cell, StackedCifg)
    return (_oracle_stacked if is_stacked else _oracle_layer)(cell, weights, tokens)


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_logits_equal_a_loop_over_positions_whole_and_in_single_steps(cell):
    weights = reference.random_weights(cell, _NUM_TOKENS)
    expected = _oracle(cell, weights, _TOKENS)
    np.testing.assert_allclose(cell.logits(weights, tf.constant(_TOKENS)), expected, atol=1e-5)
    state = cell.start(weights, len(_TOKENS))
    for position in range(_TOKENS.shape[1]):
        state, logits = cell.step(weights, state, tf.constant(_TOKENS[:, position]))
        np.testing.assert_allclose(logits, expected[:, position], atol=1e-5)


def _oracle_loss(cell, weights):
    return reference.mean_loss(_oracle(cell, weights, _TOKENS), _TARGETS)


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_gradients_equal_finite_differences(cell):
    # This found that TensorFlow's BlockLSTMV2 has a wrong gradient. Our own recurrence takes
    # float64, and so is checked closely; the fused operation has no such kernel.
    is_fused = isinstance(cell, (TiedLstm, DenseLstm))
    dtype, tolerance = (tf.float32, 4e-6) if is_fused else (tf.float64, 1e-8)
    weights = [weight.astype(np.float64) for weight in reference.random_weights(cell, _NUM_TOKENS)]
    tensors = [tf.constant(weight, dtype) for weight in weights]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = metrics.mean_loss(cell.logits(tensors, tf.constant(_TOKENS)), _TARGETS)
    assert loss.numpy() == pytest.approx(_oracle_loss(cell, weights), rel=1e-6)
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, tensors)]
    # Along random directions, each of which sees every entry.
    rng, step = np.random.default_rng(1), 1e-5
    for number, gradient in enumerate(gradients):
        for _ in range(_DIRECTIONS):
            direction = rng.normal(size=gradient.shape)
            sides = []
            for sign in (1, -1):
                moved = list(weights)
                moved[number] = weights[number] + sign * step * direction
                sides.append(_oracle_loss(cell, moved))
            expected = (sides[0] - sides[1]) / (2 * step)
            assert (gradient * direction).sum() == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_initial_weights_are_a_pure_function_of_the_seed(cell):
    first, again, other = (cell.initial_weights(50, seed) for seed in (1, 1, 2))
    assert architectures.check_weights(cell, first) == 50
    for weight, kind, same, different in zip(
        first, cell.weight_shapes(50), again, other, strict=True
    ):
        assert type(weight) is np.ndarray and weight.dtype == np.float32
        np.testing.assert_array_equal(weight, same)
        assert kind.endswith('bias') or (weight != different).any()


_MICRO = saved_models.ALL['micro']
# One sentence, over and over: it can be known by heart.
_SENTENCES = np.tile(np.array([[1, 5, 7, 4, 8, 2, 0]], np.int32), (20, 1))


@pytest.mark.standard
def test_it_learns_and_reports_and_leaves_out_incomplete_batches():
    reports = []
    weights, losses = architectures.pretrain(
        _MICRO,
        _MICRO.initial_weights(9, seed=0),
        lambda: [_SENTENCES],
        epochs=30,
        batch_size=8,
        learning_rate=0.05,
        seed=0,
        report=reports.append,
    )
    assert reports == losses and len(losses) == 60 and losses[0] > 1.5 and losses[-1] < 0.1
    assert all(weight.dtype == np.float32 for weight in weights)
