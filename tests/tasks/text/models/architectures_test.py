"""All cells: published sizes, training and single steps agree, gradients, initial weights."""

import numpy as np
import pytest
import tensorflow as tf

from dpfl.tasks.text.models import architectures, metrics, saved_models
from dpfl.tasks.text.models.recurrent import DenseLstm, StackedCifg, TiedLstm

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


def _weights(cell):
    rng = np.random.default_rng(0)
    shapes = cell.weight_shapes(_NUM_TOKENS).values()
    return tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


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


def _unit(embedding):
    return np.array([row / np.sqrt(sum(row**2)) for row in embedding])


def _oracle_lstm(weights, tokens):
    """Logits of the LSTM, one sentence, one position, one gate at a time, in float64."""
    weights = [weight.astype(np.float64) for weight in weights]
    embedding, *gates, projection, projection_bias = weights
    unit = _unit(embedding)
    result = np.zeros([*tokens.shape, _NUM_TOKENS])
    for row, sentence in enumerate(tokens):
        state, hidden = np.zeros(4), np.zeros(4)
        for position, token in enumerate(sentence):
            inputs = np.concatenate([unit[token], hidden])
            allow, candidate, forget, expose = (
                inputs @ kernel + bias for kernel, bias in zip(gates[::2], gates[1::2], strict=True)
            )
            state = _sigmoid(forget) * state + _sigmoid(allow) * np.tanh(candidate)
            hidden = _sigmoid(expose) * np.tanh(state)
            result[row, position] = unit @ (hidden @ projection + projection_bias)
    return result


def _oracle_dense(weights, tokens):
    """Logits of the LSTM with dense layers, one sentence and one position at a time."""
    weights = [weight.astype(np.float64) for weight in weights]
    embedding, kernel, recurrent_kernel, bias, *dense = weights
    projection, projection_bias, output_kernel, output_bias = dense
    result = np.zeros([*tokens.shape, _NUM_TOKENS])
    for row, sentence in enumerate(tokens):
        cell, hidden = np.zeros(4), np.zeros(4)
        for position, token in enumerate(sentence):
            gates = embedding[token] @ kernel + hidden @ recurrent_kernel + bias
            allow, candidate, forget, expose = gates.reshape(4, 4)
            cell = _sigmoid(forget) * cell + _sigmoid(allow) * np.tanh(candidate)
            hidden = _sigmoid(expose) * np.tanh(cell)
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
    if isinstance(cell, TiedLstm):
        return _oracle_lstm(weights, tokens)
    if isinstance(cell, DenseLstm):
        return _oracle_dense(weights, tokens)
    return _oracle_stacked(cell, weights, tokens)


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_logits_equal_a_loop_over_positions(cell):
    weights = _weights(cell)
    actual = cell.logits(weights, tf.constant(_TOKENS))
    np.testing.assert_allclose(actual, _oracle(cell, weights, _TOKENS), atol=1e-5)


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_single_steps_equal_whole_sequences(cell):
    weights = _weights(cell)
    state = cell.start(weights, len(_TOKENS))
    stepped = []
    for position in range(_TOKENS.shape[1]):
        state, logits = cell.step(weights, state, tf.constant(_TOKENS[:, position]))
        stepped.append(logits)
    whole = cell.logits(weights, tf.constant(_TOKENS))
    np.testing.assert_allclose(np.stack(stepped, axis=1), whole, atol=2e-6)


def _oracle_loss(cell, weights):
    logits = _oracle(cell, weights, _TOKENS)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    losses = -np.take_along_axis(log_probabilities, _TARGETS[..., None], axis=-1)[..., 0]
    return losses[_TARGETS != 0].mean()


@pytest.mark.parametrize('cell', _CELLS, ids=str)
def test_gradients_equal_finite_differences(cell):
    # This found that TensorFlow's BlockLSTMV2 has a wrong gradient. Our own recurrence takes
    # float64, and so is checked closely; the fused operation has no such kernel.
    is_fused = isinstance(cell, (TiedLstm, DenseLstm))
    dtype, tolerance = (tf.float32, 4e-6) if is_fused else (tf.float64, 1e-8)
    weights = [weight.astype(np.float64) for weight in _weights(cell)]
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


def _evaluate(cell, tokens, targets):
    """Loss and metrics of the built model."""
    model = architectures.build(cell, _NUM_TOKENS, tokens.shape[1], seed=3)
    labels = tf.constant(targets, tf.int32)
    output = model.predict_on_batch(model.initial_weights, tf.constant(tokens, tf.int32))
    batch = type('Output', (), dict(loss=model.loss(output, labels), predictions=output))
    state = metrics.update.python_function(metrics.initialize(), labels, batch)
    return {name: float(value) for name, value in metrics.finalize(state).items()}


@pytest.mark.parametrize('cell', [_CELLS[1], _CELLS[-1]], ids=str)
@pytest.mark.standard
def test_padding_changes_nothing(cell):
    plain = _evaluate(cell, _TOKENS, _TARGETS)
    zeros = np.zeros((3, 2), int)
    longer = np.hstack([_TOKENS, zeros]), np.hstack([_TARGETS, zeros])
    more_rows = np.vstack([_TOKENS, _TOKENS * 0]), np.vstack([_TARGETS, _TARGETS * 0])
    for tokens, targets in (longer, more_rows):
        assert _evaluate(cell, tokens, targets) == pytest.approx(plain, rel=1e-6)


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
_INITIAL = _MICRO.initial_weights(9, seed=0)
# One sentence, over and over: it can be known by heart.
_SENTENCES = np.tile(np.array([[1, 5, 7, 4, 8, 2, 0]], np.int32), (20, 1))


def _train(**changes):
    arguments = dict(epochs=1, batch_size=20, learning_rate=0.01, seed=0)
    return architectures.pretrain(
        _MICRO, _INITIAL, lambda: [_SENTENCES], **{**arguments, **changes}
    )


@pytest.mark.standard
def test_the_first_step_of_adam_moves_by_the_learning_rate():
    tensors = [tf.constant(weight) for weight in _INITIAL]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = metrics.mean_loss(_MICRO.logits(tensors, _SENTENCES[:, :-1]), _SENTENCES[:, 1:])
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, tensors)]
    for before, after, gradient in zip(_INITIAL, _train(), gradients, strict=True):
        clear = abs(gradient) > 1e-3
        np.testing.assert_allclose(
            (after - before)[clear], -0.01 * np.sign(gradient[clear]), rtol=0.02
        )


@pytest.mark.standard
def test_it_learns_and_reports_and_leaves_out_incomplete_batches():
    reports = []
    weights = _train(
        epochs=30,
        batch_size=8,
        learning_rate=0.05,
        report=lambda step, loss, now: reports.append((step, loss)),
    )
    steps, losses = zip(*reports, strict=True)
    assert steps == tuple(range(1, 61)) and losses[0] > 1.5 and losses[-1] < 0.1
    assert all(weight.dtype == np.float32 for weight in weights)
