"""Rounds of benchmarks/simulation.py by FedJAX, in its own environment.

FedJAX's federated averaging with differential privacy: each update is clipped where it is computed,
and noise is added to the mean.

FedJAX trains clients one after the other ('jit'), or as many as there are devices at a time
('pmap'); every processor core becomes a device.
"""

import os
import sys

from benchmarks.peers import rounds

os.environ['XLA_FLAGS'] = f'--xla_force_host_platform_device_count={rounds.cores()}'
os.environ['JAX_PLATFORMS'] = 'cpu'

import fedjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from benchmarks.peers import jax_lstm  # noqa: E402


def main(backend: str) -> None:
    cell, job = rounds.given()
    fedjax.set_for_each_client_backend(backend)
    params = jax_lstm.initial(cell, job)
    client_optimizer = fedjax.optimizers.sgd(rounds.LEARNING_RATE)
    server_optimizer = fedjax.optimizers.sgd(1.0, momentum=rounds.MOMENTUM)
    train = _for_each_client(jax.grad(jax_lstm.loss), client_optimizer)
    noise_stddev = rounds.NOISE_MULTIPLIER * rounds.CLIP_NORM / job.clients

    @jax.jit
    def server_update(params, state, mean, key):
        leaves, structure = jax.tree_util.tree_flatten(mean)
        keys = jax.random.split(key, len(leaves))
        noisy = [
            leaf + noise_stddev * jax.random.normal(one, leaf.shape)
            for leaf, one in zip(leaves, keys)  # noqa: B905
        ]
        return server_optimizer.apply(structure.unflatten(noisy), state, params)

    clients = _clients(job)
    state = server_optimizer.init(params)
    for number, _ in enumerate(rounds.requests()):
        with rounds.measured():
            updates = ((update, 1.0) for _, update in train(params, clients))
            mean = fedjax.tree_util.tree_mean(updates)
            state, params = server_update(params, state, mean, jax.random.PRNGKey(number))
            jax.block_until_ready(params)


def _clients(job):
    return [
        (number, [{'x': rows[:, :-1], 'y': rows[:, 1:]} for rows in client], ())
        for number, client in enumerate(job.tokens())
    ]


def _for_each_client(gradient, optimizer):
    def start(params, _):
        return params, optimizer.init(params)

    def step(client, batch):
        params, state = client
        state, params = optimizer.apply(gradient(params, batch), state, params)
        return params, state

    def end(params, client):
        update = jax.tree_util.tree_map(jnp.subtract, params, client[0])
        return fedjax.tree_util.tree_clip_by_global_norm(update, rounds.CLIP_NORM)

    return fedjax.for_each_client(start, step, end)


if __name__ == '__main__':
    main(sys.argv[1])
