"""Learning processes under a privacy plan. A client value of TFF is a shard of the cohort.

TFF spends more time on starting a client than training a small model takes. Here one TFF client
value is a shard, which simulates many clients (`client_work`). The number of shards does not depend
on the cohort size. The result is that of `tff.learning.algorithms` with
`aggregators.build_aggregator`, up to rounding: the same query clips, sums and adds noise.
"""

import collections
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from dpfl import _validate, accounting, aggregators, errors
from dpfl.aggregators import adaptive_clip, audited_query, clipping
from dpfl.learning import client_work

_CLIENT_UPDATES = ('fedavg', 'fedsgd')

_State = tff.learning.templates.LearningAlgorithmState


def build_dp_fedavg(
    model: tff.learning.models.FunctionalModel,
    plan: accounting.PrivacyPlan,
    *,
    client_optimizer_fn: tff.learning.optimizers.Optimizer | None = None,
    server_optimizer_fn: tff.learning.optimizers.Optimizer,
    client_update: str = 'fedavg',
    client_learning_rate: float = 1.0,
    client_epochs: int = 1,
    noise_seed: int | None = None,
    train_metrics: bool = True,
    clip: clipping.Clip = aggregators.clip_flat,
    clip_each_batch: bool = False,
    supplied_noise: bool = False,
    canaries: audited_query.Canaries | None = None,
    extend_server: Callable[
        [tff.learning.templates.FinalizerProcess], tff.learning.templates.FinalizerProcess
    ]
    | None = None,
) -> tff.learning.templates.LearningProcess:
    """Federated averaging with correlated noise ([McMahan24], algorithm 1).

    Every client of a round trains from the same model on its own data. Its model delta is clipped,
    and the noised mean over the *planned* cohort size goes to the server optimizer. With
    independent noise this is DP-FedAvg, with correlated noise DP-FTRL.

    Args:
      model: the model to train.
      plan: determines clipping, noise and denominator; a run has at most the plan's rounds. With an
        `example_cap` of its estimator a client has the weight `min(n_k / example_cap, 1)`
        ([McMahan18], algorithm 1), where n_k counts the different examples that it trained on in
        the round: the rows of its batches over `client_epochs`.
      client_optimizer_fn: of the local steps, fresh in every round; for 'fedavg' only.
      server_optimizer_fn: takes the noised mean of the records as a gradient.
      client_update: 'fedavg', or 'fedsgd' (DP-FedSGD): the record of a client is the mean of the
        gradients of its batches' losses at the broadcast model, each counted by its rows, times
        `client_learning_rate`, instead of a delta.
      client_learning_rate: for 'fedsgd' only, which has no `client_optimizer_fn`; inside of the
        clip.
      client_epochs: passes over its data that the batches of a client contain, whole ones. Only
        n_k depends on it.
      noise_seed: None for noise keys from the operating system; an integer for a simulation.
      train_metrics: whether to compute the model's metrics over the training data. They have no
        noise and are not covered by the plan.
      clip: `aggregators.clip_flat` or an `aggregators.PerLayer`.
      clip_each_batch: whether a client also clips how far its model has moved after every batch, in
        the same way ([McMahan18], algorithm 1); for 'fedavg' only. The guarantee relies on the
        clip at the end alone, and does not change.
      supplied_noise: whether a ring (`aggregators.build_noise_ring`) keeps past noise outside of
        the state. Every state must then pass through it before its round.
      canaries: clients with known updates, for an audit; as in `aggregators.build_query`.
      extend_server: maps the finalizer, which gives the noised mean to the server optimizer, to one
        that does more with it. It has no access to the clients' data: what it computes has the
        guarantee of the plan, too (post-processing).

    Returns:
      A process whose state holds the model, the optimizer and the noise. Its `next` takes the
      shards that `shards.shard` makes of a cohort. A client's data set is also a shard, of one
      client. It must not contain a batch without rows, which marks the start of a client: data that
      begins with such a batch and has another one would be clipped as several clients.

    Raises:
      ValueError: if `client_update` is neither; if `input_spec` of the model has a fixed number of
        rows; if 'fedavg' has no client optimizer, or 'fedsgd' has one; if `client_learning_rate`
        is not positive, or not 1 for 'fedavg'; if `clip_each_batch` is combined with 'fedsgd' or
        adaptive clipping.

    Example:
      >>> plan = accounting.PrivacyPlan(
      ...     mechanism=mechanisms.Identity(4), participation=Participation(4, min_separation=4),
      ...     clip_norm=1.0, noise_multiplier=1.0, clients_per_round=2)
      >>> network = keras.Sequential([keras.layers.Input([2]), keras.layers.Dense(1)])
      >>> spec = tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])
      >>> model = from_keras(network, loss='mse', input_spec=spec)
      >>> process = build_dp_fedavg(
      ...     model, plan, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
      ...     server_optimizer_fn=build_server_optimizer('sgd', 1.0))
      >>> batch = np.ones([3, 2], np.float32), np.ones([3, 1], np.float32)
      >>> state = process.next(process.initialize(), shard([[batch], [batch]])).state
      >>> len(process.get_model_weights(state).trainable)
      2
    """
    _validate.choice('client_update', client_update, _CLIENT_UPDATES)
    if not isinstance(model, tff.learning.models.FunctionalModel):
        raise errors.ArgumentError(
            'model',
            type(model).__name__,
            'must be a tff.learning.models.FunctionalModel; learning.from_keras makes one from a '
            'Keras model',
        )
    for spec in tf.nest.flatten(model.input_spec):
        if spec.shape.rank is not None and spec.shape[:1].as_list() != [None]:
            raise errors.ArgumentError(
                'input_spec',
                spec.shape,
                'must have None for the number of rows: a batch without rows separates two clients',
            )
    if (client_update == 'fedavg') != (client_optimizer_fn is not None):
        raise errors.ArgumentError(
            'client_optimizer_fn', client_optimizer_fn, 'must be given for fedavg, not for fedsgd'
        )
    _validate.number('client_learning_rate', client_learning_rate, above=0)
    _validate.integer('client_epochs', client_epochs, minimum=1)
    if client_update == 'fedavg' and client_learning_rate != 1:
        raise errors.ArgumentError(
            'client_learning_rate',
            client_learning_rate,
            'must be 1 for fedavg, whose rate is that of client_optimizer_fn',
        )
    if clip_each_batch and client_update != 'fedavg':
        raise errors.ArgumentError('clip_each_batch', True, 'must be False for fedsgd')
    if clip_each_batch and plan.adaptive_clip is not None:
        raise errors.ArgumentError(
            'clip_each_batch',
            True,
            'must be False with adaptive_clip: no update would be above the norm that adapts',
        )
    if client_update == 'fedavg':
        update = client_work.fedavg(model, client_optimizer_fn, clip if clip_each_batch else None)
    else:
        update = client_work.fedsgd(model, client_learning_rate)
    weights_type = _initial_weights(model).type_signature.result
    specs: Any = tff.types.type_to_tf_tensor_specs(weights_type.trainable)
    if not specs:
        raise errors.ArgumentError('model', errors.NOT_SHOWN, 'must have trainable weights')
    weighted = plan.estimator.example_cap is not None
    if weighted:
        specs = aggregators.WeightedRecord(specs, tf.TensorSpec([], tf.int64))
    query = aggregators.build_query(
        plan,
        noise_seed,
        record_specs=specs,
        clip=clip,
        supplied_noise=supplied_noise,
        canaries=canaries,
    )
    work = functools.partial(
        client_work.build_shard_work,
        model,
        update,
        query,
        train_metrics=train_metrics,
        weighted=weighted,
        client_epochs=client_epochs,
    )
    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
        server_optimizer_fn, weights_type
    )
    if extend_server is not None:
        finalizer = extend_server(finalizer)
    return _compose(model, work, query, finalizer, train_metrics)


def _initial_weights(model):
    @tff.tensorflow.computation
    def initial_weights():
        trainable, non_trainable = model.initial_weights
        return tff.learning.models.ModelWeights(tuple(trainable), tuple(non_trainable))

    return initial_weights


def _compose(
    model: tff.learning.models.FunctionalModel,
    build_shard_work: Callable[[], Callable],
    query: tfp.DPQuery,
    finalizer: tff.learning.templates.FinalizerProcess,
    train_metrics: bool,
) -> tff.learning.templates.LearningProcess:
    """The process. States and metrics are where `tff.learning` has them."""
    initial_weights = _initial_weights(model)
    weights_type = initial_weights.type_signature.result
    initial_query_state = tff.tensorflow.computation(query.initial_global_state)
    query_type = initial_query_state.type_signature.result

    @tff.federated_computation
    def initialize():
        return tff.federated_zip(
            _State(
                global_model_weights=tff.federated_eval(initial_weights, tff.SERVER),
                distributor=tff.federated_value((), tff.SERVER),
                client_work=tff.federated_value((), tff.SERVER),
                aggregator=tff.federated_eval(initial_query_state, tff.SERVER),
                finalizer=finalizer.initialize(),
            )
        )

    @tff.tensorflow.computation(query_type)
    def sample_params(query_state):
        return query.derive_sample_params(query_state)

    batch_type = tff.types.tensorflow_to_type(model.input_spec)
    shard_type = tff.SequenceType(batch_type)

    @tff.tensorflow.computation(weights_type, sample_params.type_signature.result, shard_type)
    def shard_work(weights, params, batches):
        return build_shard_work()(weights, params, batches)

    sample_type, metrics_type = shard_work.type_signature.result

    @tff.tensorflow.computation(sample_type, query_type)
    def noised_mean(sample, query_state):
        before = query.derive_metrics(query_state)
        mean, query_state, _ = query.get_noised_result(sample, query_state)
        after = query.derive_metrics(query_state)
        return mean, query_state, adaptive_clip.round_metrics(before, after)

    @tff.tensorflow.computation(metrics_type)
    def finalize_metrics(sums):
        if not train_metrics:
            return collections.OrderedDict()
        return collections.OrderedDict(train=model.finalize_metrics(sums))

    @tff.federated_computation(
        initialize.type_signature.result, tff.FederatedType(shard_type, tff.CLIENTS)
    )
    def next_round(state, shards):
        weights = tff.federated_broadcast(state.global_model_weights)
        params = tff.federated_broadcast(tff.federated_map(sample_params, state.aggregator))
        # At the shards: every client trains and passes through the client side of the query.
        samples, metrics = tff.federated_map(shard_work, (weights, params, shards))
        # At the server.
        mean, query_state, query_metrics = tff.federated_map(
            noised_mean, (tff.federated_sum(samples), state.aggregator)
        )
        finalized = finalizer.next(state.finalizer, state.global_model_weights, mean)
        new_state = _State(
            global_model_weights=finalized.result,
            distributor=state.distributor,
            client_work=state.client_work,
            aggregator=query_state,
            finalizer=finalized.state,
        )
        measurements = collections.OrderedDict(
            distributor=tff.federated_value((), tff.SERVER),
            client_work=tff.federated_map(finalize_metrics, tff.federated_sum(metrics)),
            aggregator=query_metrics,
            finalizer=finalized.measurements,
        )
        return tff.learning.templates.LearningProcessOutput(
            tff.federated_zip(new_state), tff.federated_zip(measurements)
        )

    return _learning_process(initialize, next_round, finalizer)


def _learning_process(initialize, next_round, finalizer):
    state_type = initialize.type_signature.result.member

    @tff.tensorflow.computation(state_type)
    def get_model_weights(state):
        return state.global_model_weights

    @tff.tensorflow.computation(state_type, state_type.global_model_weights)
    def set_model_weights(state, weights):
        return state._replace(global_model_weights=weights)

    @tff.tensorflow.computation(state_type)
    def get_hparams(state):
        return collections.OrderedDict(finalizer=finalizer.get_hparams(state.finalizer))

    @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
    def set_hparams(state, hparams):
        return state._replace(
            finalizer=finalizer.set_hparams(state.finalizer, hparams['finalizer'])
        )

    return tff.learning.templates.LearningProcess(
        initialize,
        next_round,
        get_model_weights,
        set_model_weights,
        get_hparams_fn=get_hparams,
        set_hparams_fn=set_hparams,
    )
