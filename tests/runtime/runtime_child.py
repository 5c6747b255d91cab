"""A process with a runtime that ends in the way its argument names, for tests.

Writes lines of a word: `started` when a computation was executed, `running` when a round is in
progress that takes far longer than any test, `leaving` at the end of the block.
"""

import signal
import sys
import threading
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.runtime import contexts


@tff.tensorflow.computation(np.int64)
def count_to(limit):
    return tf.while_loop(lambda i: i < limit, lambda i: [i + 1], [tf.constant(0, tf.int64)])[0]


@tff.federated_computation(
    tff.FederatedType(np.int64, tff.SERVER), tff.FederatedType(np.int64, tff.CLIENTS)
)
def sum_of_counts(state, limits):
    return state, tff.federated_sum(tff.federated_map(count_to, limits))


def main(how):
    with contexts.local_runtime():
        assert sum_of_counts(0, [3, 4]) == (0, 7)
        say('started')
        try:
            if how == 'interrupted elsewhere':
                # Another thread takes the signals of the process.
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            if how.startswith('interrupted'):
                # The computation is compiled: half a second later the round is in progress.
                threading.Timer(0.5, say, ['running']).start()
                sum_of_counts(0, [10**15, 10**15])
            if how == 'exception':
                raise ValueError('an error of the training loop')
        finally:
            say('leaving')
            if how.endswith('slow cleanup'):
                for _ in range(30_000):  # A long call may miss a signal that comes before it waits.
                    time.sleep(0.01)


def say(word):
    print(word, flush=True)


if __name__ == '__main__':
    main(sys.argv[1])
