"""Remote workers: the results of a local run, and one clear line when they are gone."""

import dataclasses
import os
import signal
import socket
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
import tree

from dpfl import learning
from dpfl.runtime import contexts
from dpfl.runtime.workers import addresses, remote, service
from dpfl.simulation import checkpoint_folder, outputs, program
from tests import runs
from tests.runtime.workers import processes
from tests.simulation import toy_experiment

pytestmark = [pytest.mark.tff, pytest.mark.standard]

with_and_without_token = pytest.mark.parametrize(
    'token',
    [None, pytest.param(processes.TOKEN, marks=processes.needs_namespaces)],
    ids=['plain', 'token'],
)


def _addresses(workers, token):
    """With and without a token."""
    return addresses.parse([one.target for one in workers], [token] if token else ())


@pytest.fixture(name='start')
def _start():
    """Starts a worker that listens like a remote one."""
    workers = []

    def start(token=None, port=0):
        started = service.Worker(
            processes.listener(port), token=token, require_isolation=token is not None
        )
        workers.append(started)
        started.await_ready(processes.START)
        return started

    yield start
    for started in workers:
        started.__exit__()


@tff.tensorflow.computation(np.int64, np.int64)
def _count(start, limit):
    return tf.while_loop(lambda i: i < limit, lambda i: [i + 1], [start])[0]


@tff.federated_computation(
    tff.FederatedType(np.int64, tff.SERVER), tff.FederatedType(np.int64, tff.CLIENTS)
)
def _counting_round(state, limits):
    counts = tff.federated_map(_count, (tff.federated_broadcast(state), limits))
    return tff.federated_sum(counts), state


def _endless(seconds, then):
    """A round that never ends; `then` is called when it has begun."""
    timer = threading.Timer(seconds, then)
    timer.start()
    try:
        _counting_round(0, [3, 10**15])
    finally:
        timer.cancel()


def _bits(values):
    return [np.asarray(value).tobytes() for value in tree.flatten(values)]


@pytest.mark.exhaustive
@with_and_without_token
def test_results_are_those_of_a_local_run_and_the_same_bits_for_any_workers(start, token):
    process = toy_experiment.experiment().process
    shards = learning.shard(map(toy_experiment.data, range(9)), 5)

    def two_rounds():
        first = process.next(process.initialize(), shards)
        return first, process.next(first.state, shards), process.next(first.state, [])

    with contexts.local_runtime():
        expected = two_rounds()
    with contexts.distributed_runtime(_addresses([start(token), start(token)], token)):
        found = two_rounds()
    with contexts.distributed_runtime([start().target]):
        alone = two_rounds()
    assert type(found[0].state) is type(expected[0].state)
    assert _bits(found) == _bits(alone)
    # Another build of TensorFlow rounds differently. Keys in the state must be equal.
    for one, other in zip(tree.flatten(found), tree.flatten(expected), strict=True):
        if np.asarray(one).dtype.kind == 'f':
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


@with_and_without_token
def test_a_worker_that_is_killed_in_a_round_is_named_at_once(start, token):
    workers = [start(token), start(token)]
    with contexts.distributed_runtime(_addresses(workers, token)):
        assert _counting_round(0, [3, 4]) == (7, 0)
        with pytest.raises(contexts.WorkerError) as caught:
            _endless(0.5, workers[1].kill)
        assert str(caught.value).startswith(f'worker {workers[1].target} does not answer: ')
        assert '\n' not in str(caught.value)
        with pytest.raises(contexts.WorkerError, match=workers[1].target):
            _counting_round(0, [3, 4])


@pytest.mark.exhaustive
@with_and_without_token
def test_a_worker_that_is_stopped_in_a_round_is_named(start, monkeypatch, token):
    assert (remote._PINGS + 1) * remote._PING_SECONDS <= 25  # Half a minute is promised.
    monkeypatch.setattr(remote, '_PING_SECONDS', 0.5)
    workers = [start(token), start(token)]
    with contexts.distributed_runtime(_addresses(workers, token)):
        assert _counting_round(0, [3, 4]) == (7, 0)
        with pytest.raises(contexts.WorkerError) as caught:
            _endless(0.5, lambda: os.kill(workers[1].pid, signal.SIGSTOP))
        assert str(caught.value) == f'worker {workers[1].target} has not answered for 2 seconds'


@with_and_without_token
def test_a_worker_that_was_restarted_between_rounds_is_named(start, token):
    first = start(token)
    with contexts.distributed_runtime(_addresses([first], token)):
        assert _counting_round(0, [3, 4]) == (7, 0)
        first.__exit__()
        again = start(token, port=int(first.target.partition(':')[2]))
        assert again.target == first.target
        with pytest.raises(contexts.WorkerError, match=f'worker {first.target}') as caught:
            _counting_round(0, [3, 4])
        assert '\n' not in str(caught.value)
    with contexts.distributed_runtime(_addresses([again], token)):
        assert _counting_round(0, [3, 4]) == (7, 0)


@pytest.mark.exhaustive
def test_something_else_at_the_address(monkeypatch):
    monkeypatch.setattr(remote, '_PING_SECONDS', 0.25)
    with socket.create_server(('127.0.0.1', 0)) as server:
        address = f'127.0.0.1:{server.getsockname()[1]}'
        with pytest.raises(contexts.WorkerError, match=f'worker {address} has not answered'):
            with contexts.distributed_runtime([address]):
                pass


def test_another_version_is_refused(start, monkeypatch):
    elsewhere = start()
    version = remote._installed_version()
    monkeypatch.setattr(remote, '_installed_version', lambda: '0.1')
    message = f'worker {elsewhere.target} has TFF {version}; this process has 0.1'
    with pytest.raises(contexts.WorkerError, match=message):
        with contexts.distributed_runtime([elsewhere.target]):
            pass


@pytest.mark.exhaustive
def test_a_run_that_lost_a_worker_goes_on_to_the_same_end(start, tmp_path, caplog):
    experiment = toy_experiment.experiment(rounds=6, checkpoint_every=100, num_shards=3)
    workers = [start(), start()]
    program.run_training(
        dataclasses.replace(experiment, workers=[one.target for one in workers]),
        outputs.RunDirectory(tmp_path / 'reference'),
    )
    last = int(experiment.sampler.cohort(4)[0])
    asked = []

    def client_data(client):
        asked.append(int(client))
        # Requested a round ahead: round 4 is in progress or about to start.
        if client == last and len(asked) > 3 * 4:
            workers[1].kill()
        return toy_experiment.data(client)

    distributed = dataclasses.replace(
        experiment, client_data=client_data, workers=[one.target for one in workers]
    )
    directory = outputs.RunDirectory(tmp_path / 'run')
    with pytest.raises(
        contexts.WorkerError, match=f'round [45]: worker {workers[1].target} does not answer: '
    ):
        program.run_training(distributed, directory)
    # Logged before the report, which can take long.
    (said,) = (line for line in caplog.messages if 'writing the report' in line)
    assert f'worker {workers[1].target} does not answer: ' in said

    saved = checkpoint_folder.latest(directory.path / 'checkpoints', pytest.fail)
    assert saved.rounds >= 3  # All that were complete, though no checkpoint was due.
    resumed = dataclasses.replace(experiment, workers=[workers[0].target])
    program.run_training(resumed, outputs.RunDirectory(directory.path, resume=True), saved)
    assert not runs.differences(directory.path, tmp_path / 'reference')
