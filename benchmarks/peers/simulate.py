"""A process that runs rounds of a job for one contender; see `rounds.py`.

Its arguments are the contender, and the job as JSON.
"""

import collections
import concurrent.futures
import itertools
import sys

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import measuring
from benchmarks.peers import rounds
from dpfl import aggregators, learning, mechanisms
from dpfl.runtime import contexts
from dpfl.runtime import shards as runtime_shards
from dpfl.simulation import data_digest
from dpfl.tasks.text.models import architectures
from dpfl.tasks.text.models.recurrent import StackedCifg

_RATE, _CLIP_NORM, _MAX_ROUNDS = rounds.LEARNING_RATE, rounds.CLIP_NORM, 100_000
_optimizers = tff.learning.optimizers


class Work:
    """A projected CIFG, and the data of a cohort."""

    def __init__(self, job: rounds.Job):
        self.sizes = StackedCifg(*job.sizes)
        self.vocabulary, self.length = job.vocabulary, job.length
        self.clients, self.batches, self.batch_size = job.clients, job.batches, job.batch_size
        self.model = architectures.build(self.sizes, job.vocabulary, job.length, seed=0)
        self.data = [
            [collections.OrderedDict(x=rows[:, :-1], y=rows[:, 1:]) for rows in client]
            for client in job.tokens()
        ]

    def datasets(self):
        """The data in the form that stock TFF takes."""
        for client in self.data:
            rows = collections.OrderedDict(
                (name, np.concatenate([batch[name] for batch in client])) for name in ('x', 'y')
            )
            yield tf.data.Dataset.from_tensor_slices(rows).batch(self.batch_size)

    def keras_lstm(self):
        """A plain LSTM of the same sizes, as in the tutorials of TFF."""
        layers, sizes = tf.keras.layers, self.sizes
        spec = tf.TensorSpec([None, self.length], tf.int32)
        model = tf.keras.Sequential(
            [
                layers.Embedding(self.vocabulary, sizes.embedding_size, input_length=self.length),
                layers.LSTM(sizes.hidden_size, return_sequences=True),
                layers.Dense(sizes.projection_size),
                layers.Dense(self.vocabulary),
            ]
        )
        return tff.learning.models.from_keras_model(
            model,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=collections.OrderedDict(x=spec, y=spec),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    def plan(self):
        """A plan with independent noise, so that only the work of the clients is compared."""
        noise = {'clip_norm': _CLIP_NORM, 'noise_multiplier': rounds.NOISE_MULTIPLIER}
        return measuring.plan(mechanisms.Identity(_MAX_ROUNDS), self.clients, **noise)


def _server():
    return _optimizers.build_sgdm(1.0, momentum=rounds.MOMENTUM)


def dpfl(job, ray=None):
    """The sharded engine in dpfl's runtime; shards are built anew in each round."""
    process = learning.build_dp_fedavg(
        job.model,
        job.plan(),
        client_optimizer_fn=_optimizers.build_sgdm(_RATE),
        server_optimizer_fn=_server(),
        train_metrics=False,
    )
    idle = [shard.take(0) for shard in learning.shard(job.data)]
    with contexts.runtime(ray) as runtime:
        cohorts = runtime.sharded_cohorts(
            itertools.repeat(range(job.clients)),
            job.data.__getitem__,
            runtime_shards.default_num_shards(),
            lambda digests: None,
            data_digest.of_client,
        )
        state = process.initialize()
        for request in rounds.requests():
            shards = idle if request == 'idle' else next(cohorts)
            with rounds.measured():
                state = process.next(state, shards).state
        cohorts.close()


def dpfl_ray(job):
    """The same, with a process of Ray for each core of this machine."""
    dpfl(job, 'local')


def stock(job, loop='DATASET_REDUCE'):
    """`tff.learning` in TFF's own context, with dpfl's aggregator and an LSTM of Keras."""
    tff.backends.native.set_sync_local_cpp_execution_context()
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        job.keras_lstm,
        _optimizers.build_sgdm(_RATE),
        _server(),
        model_aggregator=aggregators.build_aggregator(job.plan()),
        loop_implementation=tff.learning.LoopImplementation[loop],
    )
    datasets = list(job.datasets())
    state = process.initialize()
    for request in rounds.requests():
        data = [one.take(0) for one in datasets] if request == 'idle' else datasets
        with rounds.measured():
            state = process.next(state, data).state


def stock_iterator(job):
    """The same with TFF's faster loop over the batches."""
    stock(job, 'DATASET_ITERATOR')


def bare(job):
    """A loop in TensorFlow without TFF: clients side by side in threads, clipped and summed."""
    tf.config.threading.set_intra_op_parallelism_threads(1)

    @tf.function
    def client_update(weights, batches):
        trained = weights
        for x, y in batches:
            with tf.GradientTape() as tape:
                tape.watch(trained)
                output = job.model.predict_on_batch((trained, ()), x, training=True)
                loss = job.model.loss(output, y)
            gradients = map(tf.convert_to_tensor, tape.gradient(loss, trained))
            trained = tuple(w - _RATE * g for w, g in zip(trained, gradients, strict=True))
        update = [old - new for old, new in zip(weights, trained, strict=True)]
        return tf.clip_by_global_norm(update, _CLIP_NORM)[0]

    def shard_sum(weights, clients):
        total = None
        for client in clients:
            update = client_update(weights, client)
            total = update if total is None else list(map(tf.add, total, update))
        return total

    weights = tuple(map(tf.constant, job.model.initial_weights[0]))
    velocity = [tf.zeros_like(w) for w in weights]
    cores = runtime_shards.default_num_shards()
    clients = [[(tf.constant(b['x']), tf.constant(b['y'])) for b in one] for one in job.data]
    with concurrent.futures.ThreadPoolExecutor(cores) as executor:
        for _ in rounds.requests():
            with rounds.measured():
                parts = [clients[core::cores] for core in range(cores)]
                totals = executor.map(shard_sum, itertools.repeat(weights), filter(None, parts))
                mean = [sum(leaves) / job.clients for leaves in zip(*totals, strict=True)]
                velocity = [rounds.MOMENTUM * v + m for v, m in zip(velocity, mean, strict=True)]
                weights = tuple(w - v for w, v in zip(weights, velocity, strict=True))
                weights[0].numpy()


def floor(job):
    """The matrix products of a CIFG's round alone, forwards and backwards, on all cores."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    embedding, hidden, projection = (
        job.sizes.embedding_size,
        job.sizes.hidden_size,
        job.sizes.projection_size,
    )
    rows = job.batch_size * job.length
    once = [(rows, embedding, 3 * hidden), (rows, projection, job.vocabulary)]
    recurrent = [(projection, 3 * hidden), (hidden, projection)]

    def operands(m, k, n):
        return [tf.random.normal(shape) for shape in ((m, k), (k, n), (m, n))]

    matrices = [operands(*shape) for shape in once]
    loops = [
        (operands(job.batch_size, k, n), tf.random.normal([rows, k]), tf.random.normal([rows, n]))
        for k, n in recurrent
    ]

    @tf.function
    def step():
        results = []
        for a, b, c in matrices:
            results += [a @ b, tf.matmul(c, b, transpose_b=True), tf.matmul(a, c, transpose_a=True)]
        for (a, b, c), all_a, all_c in loops:
            for position in range(job.length):
                results += [(a + position) @ b, tf.matmul(c + position, b, transpose_b=True)]
            results.append(tf.matmul(all_a, all_c, transpose_a=True))
        return tf.add_n([result[0, 0] for result in results])

    cores = runtime_shards.default_num_shards()
    steps = job.clients * job.batches
    with concurrent.futures.ThreadPoolExecutor(cores) as executor:
        for _ in rounds.requests():
            with rounds.measured():
                list(executor.map(lambda _: step().numpy(), range(steps)))


_CONTENDERS = {f.__name__: f for f in (dpfl, dpfl_ray, stock, stock_iterator, bare, floor)}


if __name__ == '__main__':
    _CONTENDERS[sys.argv[1]](Work(rounds.given()))
