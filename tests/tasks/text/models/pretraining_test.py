"""Central training: a first step by hand, learning, and what is refused."""

import numpy as np
import tensorflow as tf

from dpfl.tasks.text.models import metrics, pretraining, saved_models

_CELL = saved_models.ALL['micro']
_WEIGHTS = _CELL.initial_weights(9, seed=0)
# One sentence, over and over: it can be known by heart.
_TOKENS = np.tile(np.array([[1, 5, 7, 4, 8, 2, 0]], np.int32), (20, 1))


def _train(**changes):
    arguments = dict(epochs=1, batch_size=20, learning_rate=0.01, seed=0)
    return pretraining.train(_CELL, _WEIGHTS, lambda: [_TOKENS], **{**arguments, **changes})


def test_the_first_step_of_adam_moves_by_the_learning_rate():
    tensors = [tf.constant(weight) for weight in _WEIGHTS]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = metrics.mean_loss(_CELL.logits(tensors, _TOKENS[:, :-1]), _TOKENS[:, 1:])
    gradients = [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, tensors)]
    for before, after, gradient in zip(_WEIGHTS, _train(), gradients, strict=True):
        clear = abs(gradient) > 1e-3
        np.testing.assert_allclose(
            (after - before)[clear], -0.01 * np.sign(gradient[clear]), rtol=0.02
        )


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
