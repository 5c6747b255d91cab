"""Training on the synthetic text passes the ceilings in the order that the docstrings claim."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.runtime import contexts
from dpfl.tasks.text.models import catalog
from dpfl.tasks.text.synthetic_text import NUM_SPECIAL_TOKENS, SyntheticText

_TASK = SyntheticText(vocabulary_size=100, seed=1, sentence_length=10, num_themes=6)


def _model():
    return catalog.build('micro', _TASK.num_tokens, 10, seed=0)


def _accuracy(model, weights, tokens) -> float:
    """The metric `accuracy`, computed in NumPy."""
    logits = model.predict_on_batch((weights, ()), tokens[:, :-1], training=False).numpy()
    is_word = tokens[:, 1:] >= NUM_SPECIAL_TOKENS
    return float((logits.argmax(axis=-1) == tokens[:, 1:])[is_word].mean())


def test_central_training_passes_the_bigram_ceiling_and_nears_the_best():
    model = _model()
    variables = [tf.Variable(weight) for weight in model.initial_weights[0]]
    optimizer = tf.keras.optimizers.legacy.Adam(0.02)

    # A fixed signature: batches of many sizes must not be traced one by one.
    @tf.function(input_signature=[tf.TensorSpec([None, 11], tf.int32)])
    def step(tokens):
        with tf.GradientTape() as tape:
            logits = model.predict_on_batch((tuple(variables), ()), tokens[:, :-1])
            loss = model.loss(logits, tokens[:, 1:])
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    heldout = _TASK.heldout_tokens(300)
    assert _accuracy(model, tuple(variables), heldout) < _TASK.unigram_accuracy
    for cohort in range(300):
        step(np.concatenate([_TASK.tokens(4 * cohort + client) for client in range(4)]))
    accuracy = _accuracy(model, tuple(variables), heldout)
    # The model does not know the client: `without_client` is what it can reach.
    assert accuracy > _TASK.bigram_accuracy + 0.04
    assert accuracy == pytest.approx(_TASK.ceilings.without_client, abs=0.03)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_federated_averaging_in_tff():
    model = _model()
    iterator = tff.learning.LoopImplementation.DATASET_ITERATOR
    optimizers = tff.learning.optimizers
    heldout = _TASK.heldout_dataset(num_clients=20, batch_size=128)
    with contexts.local_runtime():
        process = tff.learning.algorithms.build_unweighted_fed_avg(
            model,
            client_optimizer_fn=optimizers.build_sgdm(2.0),
            server_optimizer_fn=optimizers.build_sgdm(1.0, momentum=0.8),
            loop_implementation=iterator,
        )
        state = process.initialize()
        for round_number in range(15):
            clients = range(50 * round_number, 50 * (round_number + 1))
            data = [_TASK.client_dataset(client, 16, max_batches=2) for client in clients]
            output = process.next(state, data)
            state = output.state
        weights = process.get_model_weights(state)

        evaluation = tff.learning.algorithms.build_fed_eval(model, loop_implementation=iterator)
        evaluation_state = evaluation.set_model_weights(evaluation.initialize(), weights)
        evaluated = evaluation.next(evaluation_state, [heldout]).metrics

    metrics = evaluated['client_work']['eval']['current_round_metrics']
    assert metrics['accuracy'] > _TASK.unigram_accuracy + 0.05
    tokens = _TASK.heldout_tokens(20)
    assert metrics['accuracy'] == pytest.approx(_accuracy(model, weights.trainable, tokens))
    assert metrics['accuracy_with_oov'] < metrics['accuracy']
    assert metrics['num_examples'] == len(tokens)
    trained = output.metrics['client_work']['train']
    assert trained['num_examples'] == sum(min(len(_TASK.tokens(client)), 32) for client in clients)
