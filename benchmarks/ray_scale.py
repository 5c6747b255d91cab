"""A round of many clients on Ray, by its parts, and the memory of the process that runs it.

  python benchmarks/ray_scale.py                          # 6,500 clients, 800k parameters
  python benchmarks/ray_scale.py --clients=20000 --parameters=80000
  python benchmarks/ray_scale.py --clients=200 --nodes=none,1,2,4

The model is a vector, of which a client trains some coordinates in one step: almost all of the work
is what every model needs, namely copying weights, clipping and adding updates. The processes of Ray
read the clients. `driver` is the largest resident memory of the process that runs the rounds,
`before` its memory before the first one. `CPU s` is the processor time of all processes in a round,
`driver CPU s` that of the process that runs them.
Nodes have one core each, and share those of this machine. Figures are medians of the rounds after
the first one.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
os.environ |= {'TF_CPP_MIN_LOG_LEVEL': '3', 'TF_NUM_INTRAOP_THREADS': '1'}

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_federated as tff  # noqa: E402

from benchmarks import measuring  # noqa: E402
from benchmarks.peers import family  # noqa: E402
from dpfl import learning, mechanisms  # noqa: E402
from dpfl.runtime import contexts  # noqa: E402
from dpfl.simulation import data_digest  # noqa: E402
from tests.runtime import ray_nodes  # noqa: E402

_ROWS = 8


def model(parameters: int) -> tff.learning.models.FunctionalModel:
    """Predicts the coordinate of a vector."""

    @tf.function
    def predict(weights, x, training):
        del training
        return tf.gather(weights[0][0], x)

    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean((output - label) ** 2)

    return tff.learning.models.FunctionalModel(
        initial_weights=((np.zeros(parameters, np.float32),), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec={
            'x': tf.TensorSpec([None], tf.int32),
            'y': tf.TensorSpec([None], tf.float32),
        },
    )


class Reader:
    """The data of a client: one batch."""

    def __init__(self, parameters: int):
        self._parameters = parameters

    def __call__(self, client: int) -> list[collections.OrderedDict]:
        x = np.random.default_rng(client).integers(0, self._parameters, _ROWS, np.int32)
        return [collections.OrderedDict(x=x, y=np.ones(_ROWS, np.float32))]


def measure(args: argparse.Namespace, address: str | None) -> dict[str, float]:
    """Figures of rounds on Ray at an address, or in this process."""
    sgd = tff.learning.optimizers.build_sgdm
    process = learning.build_dp_fedavg(
        model(args.parameters),
        measuring.plan(mechanisms.Identity(args.rounds), args.clients),
        client_optimizer_fn=sgd(0.1),
        server_optimizer_fn=sgd(1.0),
        train_metrics=False,
    )
    uses, own = [], []
    with contexts.runtime(address) as runtime:
        cohorts = runtime.sharded_cohorts(
            [list(range(args.clients))] * args.rounds,
            Reader(args.parameters),
            args.shards,
            lambda digests: None,
            data_digest.of_client,
        )
        with contextlib.closing(cohorts):
            state = process.initialize()
            before = family.own_bytes('VmRSS')
            for _ in range(args.rounds):
                started = time.process_time()
                with family.Use() as use:
                    state = process.next(state, next(cohorts)).state
                uses.append(use)
                own.append(time.process_time() - started)
    later = uses[1:] or uses
    return {
        'first s': uses[0].seconds,
        's/round': statistics.median(use.seconds for use in later),
        'CPU s': statistics.median(use.cpu_seconds for use in later),
        'driver CPU s': statistics.median(own[1:] or own),
        'before GB': before / 1e9,
        'driver GB': family.own_bytes('VmHWM') / 1e9,
    }


def main() -> None:
    """Prints a line for this process, for --ray=local, and for each number of nodes."""
    parser = measuring.parser(__doc__)
    parser.add_argument('--clients', type=int, default=6500, help='in a round')
    parser.add_argument('--parameters', type=int, default=800_000, help='of the model')
    parser.add_argument('--shards', type=int, default=64, help='of a cohort')
    parser.add_argument('--rounds', type=int, default=3, help='the first one compiles')
    parser.add_argument('--nodes', default='local', help='none, local or numbers of nodes')
    parser.add_argument('--figures', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.figures:  # In a process of its own, for its memory.
        with contextlib.ExitStack() as stack:
            address = None if args.nodes == 'none' else args.nodes
            if args.nodes.isdigit():
                nodes = ray_nodes.cluster(int(args.nodes), store_bytes=1 << 30)
                address = stack.enter_context(nodes).cluster.address
            print(json.dumps(measure(args, address)))
        return
    print(f'{args.clients} clients, {args.parameters} parameters, {args.shards} shards')
    for nodes in args.nodes.split(','):
        command = [sys.executable, __file__, '--figures', f'--nodes={nodes}']
        command += [
            f'--{name}={getattr(args, name)}'
            for name in ('clients', 'parameters', 'shards', 'rounds')
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        shown = ', '.join(f'{name} {value:.2f}' for name, value in figures.items())
        print(f'nodes {nodes}: {shown}; load {os.getloadavg()[0]:.1f}', flush=True)


if __name__ == '__main__':
    main()
