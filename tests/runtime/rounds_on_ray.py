"""Rounds on Ray: the bits of a local run, whatever is lost. `ray_test` runs these tests."""

import collections
import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors, learning
from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError
from dpfl.runtime import contexts
from dpfl.simulation import data_digest, program, run_directory
from tests.runtime import ray_nodes, sharded_rounds
from tests.runtime.sharded_rounds import bits
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff


@tff.tensorflow.computation(np.int64, np.int64)
def _count(start, limit):
    with tf.control_dependencies([tf.debugging.assert_positive(limit, message='not positive')]):
        return tf.while_loop(lambda i: i < limit, lambda i: [i + 1], [start])[0]


@tff.federated_computation(
    tff.FederatedType(np.int64, tff.SERVER), tff.FederatedType(np.int64, tff.CLIENTS)
)
def _counting_round(state, limits):
    counts = tff.federated_map(_count, (tff.federated_broadcast(state), limits))
    return tff.federated_sum(counts), state


@pytest.fixture(name='losses', scope='module')
def _losses():
    """Ray on this machine; what it has lost."""
    ray_nodes.mark()
    with contexts.ray_runtime('local', timeout=600) as runtime:
        yield runtime.losses


def test_results_have_the_bits_of_a_local_run(losses):
    del losses
    process = toy_experiment.experiment().process
    shards = learning.shard(map(toy_experiment.data, range(9)), 5)

    def rounds():
        first = process.next(process.initialize(), shards)
        return first, process.next(first.state, shards), process.next(first.state, [])

    found = rounds()
    with contexts.local_runtime():
        expected = rounds()
    assert type(found[0].state) is type(expected[0].state)
    assert bits(found) == bits(expected)


@tff.tensorflow.computation(np.float32)
def _numbers(scale):
    """Numbers whose sum depends on the order, some of them subnormal."""
    numbers = tf.sin(scale * tf.range(1.0, 1000.0)) * tf.exp(scale)
    return numbers, tf.cast(numbers, tf.float64) / 3, numbers * 1e-38, tf.cast(scale, tf.int64)


@tff.federated_computation(
    tff.FederatedType(np.int64, tff.SERVER), tff.FederatedType(np.float32, tff.CLIENTS)
)
def _adding_round(state, scales):
    return state, tff.federated_sum(tff.federated_map(_numbers, scales))


def test_sums_of_large_updates_have_the_samebits(losses, monkeypatch):
    from dpfl.runtime import ray_rounds  # Imports Ray.

    del losses
    scales = [float(scale) for scale in np.random.default_rng(0).normal(size=21)]
    with contexts.local_runtime():
        expected = _adding_round(0, scales)
        assert bits(_adding_round(0, scales[::-1])) != bits(expected)
    assert bits(_adding_round(0, scales)) == bits(expected)
    monkeypatch.setattr(ray_rounds, '_MOST_BYTES', 1 << 16)
    monkeypatch.setattr(ray_rounds, '_PART_BYTES', 1 << 10)
    submitted, submit = collections.Counter(), ray_rounds.Rounds.submit

    def counted(rounds, name, *arguments, **named):
        submitted[name] += 1
        return submit(rounds, name, *arguments, **named)

    monkeypatch.setattr(ray_rounds.Rounds, 'submit', counted)
    assert bits(_adding_round(0, scales)) == bits(expected)
    assert submitted['update'] == 21 and submitted['total'] >= 2


def test_a_task_that_fails_three_times_is_the_error_of_a_local_run(losses):
    before = dict(losses)
    with pytest.raises(contexts.ComputationError, match='not positive') as caught:
        _counting_round(0, [3, 0])
    assert '\n' not in str(caught.value)
    assert dict(losses) == before
    assert _counting_round(0, [3, 4]) == (7, 0)


def test_a_killed_process_costs_time_only(losses):
    assert _counting_round(0, [3, 4]) == (7, 0)
    before = losses['a process ended']
    ray_nodes.kill(*ray_nodes.processes('ray::IDLE'))
    long = 10**6
    timer = threading.Timer(0.5, lambda: ray_nodes.kill(*ray_nodes.processes('ray::dpfl')))
    timer.start()
    assert _counting_round(0, [long, long + 1]) == (2 * long + 1, 0)
    timer.join()
    assert losses['a process ended'] > before


def test_another_address_is_refused_while_connected(losses):
    del losses
    with pytest.raises(ArgumentError, match='ray=local: must be auto: this process is connected'):
        with contexts.ray_runtime('local'):
            pass
    with contexts.ray_runtime(timeout=600):
        assert _counting_round(0, [3, 4]) == (7, 0)


def test_a_round_without_answer_ends(losses):
    del losses
    with contexts.ray_runtime('auto', timeout=1):
        started = time.monotonic()
        with pytest.raises(contexts.RayError, match='no shard has arrived for 1 seconds'):
            _counting_round(0, [10**15])
        assert time.monotonic() - started < 30


def _rounds(runtime, client_data):
    """Three rounds of five clients."""
    turns = [[(t, client) for client in range(t, t + 5)] for t in range(3)]
    return sharded_rounds.train(runtime, client_data, turns, shards=2)


def test_data_are_the_same_wherever_they_are_read(losses):
    here, lock = os.getpid(), threading.Lock()

    def anywhere(turn):
        return toy_experiment.rows(turn[1])

    def of_this_process(turn):
        with lock:
            return toy_experiment.rows(turn[1])

    def of_this_node(turn):
        if os.getpid() != here:
            raise FileNotFoundError
        return toy_experiment.rows(turn[1])

    def elsewhere(turn):
        assert os.getpid() != here
        return toy_experiment.rows(turn[1])

    before = dict(losses)
    with contexts.runtime(None) as runtime:
        expected = _rounds(runtime, anywhere)
    with contexts.ray_runtime('auto', timeout=600) as runtime:
        for client_data in (anywhere, of_this_process, of_this_node, elsewhere):
            assert _rounds(runtime, client_data) == expected
    assert dict(losses) == before


def test_the_report_counts_what_is_lost_while_data_are_read(losses, tmp_path):
    del losses

    def client_data(client):
        failed = tmp_path / 'failed'
        if not failed.exists():
            failed.touch()
            raise OSError('a disk does not answer')
        return toy_experiment.rows(client)

    experiment = toy_experiment.experiment(client_data=client_data, ray='auto', ray_timeout=600)
    program.run_training(experiment, run_directory.RunDirectory(tmp_path / 'run'))
    assert archive.Records.read(tmp_path / 'run').record.about.ray_losses >= 1


def test_ctrl_c_ends_the_wait_for_data(losses, request):
    del losses
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))

    def never(turn):
        time.sleep(1000)
        return toy_experiment.rows(turn[1])

    timer = threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt), contexts.ray_runtime('auto', timeout=600) as runtime:
        arguments = [[(0, 0)]], never, 1, lambda digests: None, data_digest.of_client
        with contextlib.closing(runtime.sharded_cohorts(*arguments)) as cohorts:
            timer.start()
            started = time.monotonic()
            next(cohorts)
    assert time.monotonic() - started < 30
    assert _counting_round(0, [3, 4]) == (7, 0)


def test_data_that_change_between_digest_and_training_are_refused(losses, tmp_path):
    del losses

    def client_data(turn):
        number = len(list(tmp_path.iterdir()))
        (tmp_path / str(number)).touch()
        return toy_experiment.rows(number)

    with contexts.ray_runtime('auto', timeout=600) as runtime:
        with pytest.raises(errors.RunError, match='the data of a client changed while its round'):
            _rounds(runtime, client_data)
