"""Run by `runtime_test.py`: a process with a worker, which ends in the way its argument names.

Writes lines of a word and a number: `worker <pid>` when the worker runs, `running 0` when a round
is in progress that takes far longer than any test, `leaving 0` at the end of the block.
"""

import os
import sys
import threading
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.simulation import runtime


@tff.tensorflow.computation(np.int64)
def count_to(limit):
    return tf.while_loop(lambda i: i < limit, lambda i: [i + 1], [tf.constant(0, tf.int64)])[0]


@tff.federated_computation(tff.FederatedType(np.int64, tff.CLIENTS))
def sum_of_counts(limits):
    return tff.federated_sum(tff.federated_map(count_to, limits))


def main(how):
    with runtime.local_runtime() as worker:
        say('worker', worker.pid)
        assert sum_of_counts([3, 4]) == 7
        try:
            if how == 'interrupted':
                # The computation is compiled: half a second later the round is in progress.
                threading.Timer(0.5, say, ['running', 0]).start()
                sum_of_counts([10**15, 10**15])
            if how == 'exception':
                raise ValueError('an error of the training loop')
        finally:
            say('leaving', 0)
            if os.environ.get('SLOW_CLEANUP'):
                time.sleep(60)


def say(word, number):
    print(word, number, flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
