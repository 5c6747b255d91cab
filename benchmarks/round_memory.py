"""Copies of the model that a round of an aggregator holds at its peak, beyond those of the caller.

  python -m benchmarks.round_memory --mechanism=blt --parameters=10000000

One process of `build_aggregator` with the noise in its state, in `local_runtime`. The model has one
tensor of float32, and the clients send the same update. The figure is the growth of the resident
memory from before the first state to the peak of rounds 6 to 8, divided by the size of the model.
TensorFlow takes memory from the system (TF_ONEDNN_USE_SYSTEM_ALLOCATOR): its own pools keep what
they once had. Linux only.
"""

import os
import pathlib

os.environ |= {'TF_ENABLE_ONEDNN_OPTS': '1', 'TF_ONEDNN_USE_SYSTEM_ALLOCATOR': '1'}

import numpy as np
import tensorflow_federated as tff

from benchmarks import measuring
from benchmarks.peers import family
from dpfl import aggregators, mechanisms
from dpfl.runtime import contexts

_ROUNDS = 15
_MECHANISMS = {
    'gaussian': lambda: mechanisms.Identity(_ROUNDS),
    'blt1': lambda: mechanisms.Blt(_ROUNDS, [0.9], [0.1]),
    'blt': lambda: mechanisms.Blt(_ROUNDS, [0.999, 0.99, 0.9, 0.5], [0.1] * 4),
    'tree': lambda: mechanisms.BinaryTree(_ROUNDS),
    'honaker': lambda: mechanisms.HonakerTree(_ROUNDS),
}


def copies(name: str, parameters: int, clients: int) -> float:
    """Peak of a round in copies of the model, the caller's state and update included."""
    plan = measuring.plan(_MECHANISMS[name](), clients)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # One client at a time.
    with contexts.local_runtime():
        process = aggregators.build_aggregator(plan).create(tff.to_type((np.float32, [parameters])))
        before = family.own_bytes('VmRSS')
        values = [np.ones(parameters, np.float32)] * clients
        state = process.initialize()
        for number in range(8):
            if number == 5:
                pathlib.Path('/proc/self/clear_refs').write_text('5')  # The peak begins anew.
            state = process.next(state, values).state
    return (family.own_bytes('VmHWM') - before) / (4 * parameters)


def main() -> None:
    parser = measuring.parser(__doc__)
    parser.add_argument('--mechanism', choices=list(_MECHANISMS), default='blt')
    parser.add_argument('--parameters', type=int, default=10_000_000)
    parser.add_argument('--clients', type=int, default=2)
    flags = parser.parse_args()
    print(f'{copies(flags.mechanism, flags.parameters, flags.clients):.1f}')


if __name__ == '__main__':
    main()
