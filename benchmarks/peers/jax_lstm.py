"""The language models of benchmarks/simulation.py in JAX; see `torch_lstm.py`."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peers import rounds


def initial(cell: str, job: rounds.Job) -> dict[str, jax.Array]:
    embedding, units, projection = job.sizes
    state = projection if cell == 'projected_lstm' else units
    shapes = {
        'embedding': (job.vocabulary, embedding),
        'input': (embedding, 4 * units),
        'recurrent': (state, 4 * units),
        'bias': (4 * units,),
        'projection': (units, projection),
        'output': (projection, job.vocabulary),
        'output_bias': (job.vocabulary,),
    }
    random = np.random.default_rng(0)
    return {
        name: jnp.asarray(random.normal(0, 0.1, shape), jnp.float32)
        for name, shape in shapes.items()
    }


def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Mean cross entropy. The matrix products of all inputs are computed as one."""
    x, y = batch['x'].T, batch['y'].T
    inputs = params['embedding'][x] @ params['input'] + params['bias']
    units, state = params['projection'].shape[0], params['recurrent'].shape[0]
    projected = state != units

    def step(carry, gates):
        output, cell = carry
        gates = gates + output @ params['recurrent']
        forget, take, give, candidate = jnp.split(gates, 4, axis=1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(take) * jnp.tanh(candidate)
        output = jax.nn.sigmoid(give) * jnp.tanh(cell)
        if projected:
            output = output @ params['projection']
        return (output, cell), output

    start = jnp.zeros((x.shape[1], state)), jnp.zeros((x.shape[1], units))
    _, outputs = jax.lax.scan(step, start, inputs, unroll=len(inputs))
    if not projected:
        outputs = outputs @ params['projection']
    logits = jax.nn.log_softmax(outputs @ params['output'] + params['output_bias'])
    return -jnp.take_along_axis(logits, y[..., None], -1).mean()
