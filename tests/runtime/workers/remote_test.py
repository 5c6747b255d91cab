"""Remote workers: the results of a local run, and one clear line when they are gone."""

import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import grpc
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
from tests.runtime.workers import lying_worker
from tests.simulation import toy_experiment

pytestmark = pytest.mark.tff

_START = 240
_TOKEN = bytes(range(32))

needs_namespaces = pytest.mark.skipif(
    subprocess.run(['unshare', '-rn', 'true'], capture_output=True, check=False).returncode != 0,
    reason='no network namespaces here',
)
with_and_without_token = pytest.mark.parametrize(
    'token', [None, pytest.param(_TOKEN, marks=needs_namespaces)], ids=['plain', 'token']
)


def _listener(port=0):
    listener = socket.socket(socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end = time.monotonic() + 30
    while True:
        try:
            listener.bind(('127.0.0.1', port))
            return listener
        except OSError:  # Connections of the worker before are still being closed.
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _addresses(workers, token):
    """With and without a token."""
    return addresses.parse([one.target for one in workers], [token] if token else ())


@pytest.fixture(name='start')
def _start():
    """Starts a worker that listens like a remote one."""
    workers = []

    def start(token=None, port=0):
        started = service.Worker(_listener(port), token=token, require_isolation=token is not None)
        workers.append(started)
        started.await_ready(_START)
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
@pytest.mark.parametrize('num_shards', [1, 2, 5])
def test_results_are_those_of_a_local_run_and_the_same_bits_for_any_workers(start, num_shards):
    process = toy_experiment.experiment().process
    shards = learning.shard(map(toy_experiment.data, range(9)), num_shards)

    def two_rounds():
        first = process.next(process.initialize(), shards)
        return first, process.next(first.state, shards), process.next(first.state, [])

    with contexts.local_runtime():
        expected = two_rounds()
    workers = [start().target, start().target]
    with contexts.distributed_runtime(workers):
        found = two_rounds()
    with contexts.distributed_runtime(workers[:1]):
        alone = two_rounds()
    assert type(found[0].state) is type(expected[0].state)
    assert _bits(found) == _bits(alone)
    # Another build of TensorFlow rounds differently. Keys in the state must be equal.
    for one, other in zip(tree.flatten(found), tree.flatten(expected), strict=True):
        if np.asarray(one).dtype.kind == 'f':
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)


def test_no_workers_is_a_local_run():
    with contexts.distributed_runtime([]):
        assert _counting_round(0, [3, 4]) == (7, 0)


def test_an_error_of_a_client_names_the_worker_and_it_goes_on(start):
    elsewhere = start()

    @tff.tensorflow.computation(np.int64, np.int64)
    def positive(state, value):
        with tf.control_dependencies([tf.debugging.assert_positive(value, message='not positive')]):
            return state + value

    @tff.federated_computation(
        tff.FederatedType(np.int64, tff.SERVER), tff.FederatedType(np.int64, tff.CLIENTS)
    )
    def adding_round(state, values):
        sums = tff.federated_map(positive, (tff.federated_broadcast(state), values))
        return tff.federated_sum(sums), state

    with contexts.distributed_runtime([elsewhere.target]):
        with pytest.raises(
            contexts.ComputationError, match=f'{elsewhere.target}: .*not positive'
        ) as caught:
            adding_round(0, [1, -1])
        assert '\n' not in str(caught.value)
        assert adding_round(1, [1, 2]) == (5, 1)


@with_and_without_token
def test_a_worker_that_is_killed_in_a_round_is_named_at_once(start, token):
    workers = [start(token), start(token)]
    with contexts.distributed_runtime(_addresses(workers, token)):
        assert _counting_round(0, [3, 4]) == (7, 0)
        started = time.monotonic()
        with pytest.raises(contexts.WorkerError) as caught:
            _endless(0.5, workers[1].kill)
        assert time.monotonic() - started < 10
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
        left = time.monotonic()
    assert time.monotonic() - left < 20


@needs_namespaces
def test_a_relay_that_is_stopped_is_named(start, monkeypatch):
    monkeypatch.setattr(remote, '_PING_SECONDS', 0.5)
    elsewhere = start(_TOKEN)
    children = pathlib.Path(f'/proc/{elsewhere.pid}/task/{elsewhere.pid}/children')
    with contexts.distributed_runtime(_addresses([elsewhere], _TOKEN)):
        with pytest.raises(contexts.WorkerError, match='has not answered for 2 seconds'):
            _endless(0.5, lambda: os.kill(int(children.read_text()), signal.SIGSTOP))


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
def test_a_worker_that_computes_for_long_is_not_taken_for_lost(start, monkeypatch):
    monkeypatch.setattr(remote, '_PING_SECONDS', 0.25)
    elsewhere = start()
    with contexts.distributed_runtime([elsewhere.target]):
        # Longer than the four pings; ended by the test.
        with pytest.raises(contexts.WorkerError, match='does not answer: '):
            _endless(4.0, elsewhere.kill)


def test_no_worker_at_the_address():
    with _listener() as bound:
        address = f'127.0.0.1:{bound.getsockname()[1]}'
        with pytest.raises(
            contexts.WorkerError, match=f'worker {address} cannot be reached: Connection refused'
        ):
            with contexts.distributed_runtime([address]):
                pass


@pytest.mark.exhaustive
@needs_namespaces
def test_the_token_changes_no_bit(start):
    process = toy_experiment.experiment().process
    shards = learning.shard(map(toy_experiment.data, range(9)), 3)

    def rounds(workers):
        with contexts.distributed_runtime(workers):
            first = process.next(process.initialize(), shards)
            return first, process.next(first.state, shards)

    threads = threading.active_count()
    secured = [start(_TOKEN), start(_TOKEN)]
    found = rounds(_addresses(secured, _TOKEN))
    assert threading.active_count() <= threads + 1  # That of TensorFlow, for its own.
    assert _bits(found) == _bits(rounds([start().target]))


@needs_namespaces
def test_another_token_or_none_is_one_line_within_seconds(start):
    elsewhere, plain = start(_TOKEN), start()
    cases = [
        (elsewhere, bytes(32), 'cannot be reached: it has another token'),
        (elsewhere, None, 'asks for a token, and none was given for it'),
        (
            plain,
            _TOKEN,
            'cannot be reached: it does not speak TLS, as a worker that was started '
            'without a token',
        ),
    ]
    for one, token, message in cases:
        started = time.monotonic()
        with pytest.raises(contexts.WorkerError) as caught:
            with contexts.distributed_runtime(_addresses([one], token)):
                pass
        assert str(caught.value) == f'worker {one.target} {message}'
        assert time.monotonic() - started < 10


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
def test_a_run_that_lost_a_worker_goes_on_here_to_the_same_end(start, tmp_path, caplog):
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

    shutil.copytree(directory.path, tmp_path / 'other')
    for path, resumed, allowed in [
        (tmp_path / 'other', dataclasses.replace(experiment, workers=[workers[0].target]), set()),
        (directory.path, experiment, {'model.npz', 'ledger.jsonl', 'privacy_report.json'}),
    ]:
        saved = checkpoint_folder.latest(path / 'checkpoints', pytest.fail)
        assert saved.rounds >= 3  # All that were complete, though no checkpoint was due.
        program.run_training(resumed, outputs.RunDirectory(path, resume=True), saved)
        assert set(runs.differences(path, tmp_path / 'reference')) <= allowed
    # The last rounds were computed here, by another build of TensorFlow.
    models = [np.load(path / 'model.npz') for path in (directory.path, tmp_path / 'reference')]
    for name in models[0].files:
        np.testing.assert_allclose(models[0][name], models[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_a_run_whose_worker_lies_keeps_the_rounds_before_and_goes_on(start, tmp_path):
    experiment = toy_experiment.experiment(rounds=4, checkpoint_every=100, num_shards=2)
    honest = start()
    program.run_training(
        dataclasses.replace(experiment, workers=[honest.target]),
        outputs.RunDirectory(tmp_path / 'reference'),
    )
    directory = outputs.RunDirectory(tmp_path / 'run')

    def answer(context):
        context.abort(grpc.StatusCode.INTERNAL, 'so it says')

    with lying_worker.lying_worker(lying_worker.probed(), answer) as liar:
        with pytest.raises(contexts.WorkerError, match=f'round 1: worker {liar}: so it says'):
            program.run_training(
                dataclasses.replace(experiment, workers=[honest.target, liar]), directory
            )
    saved = checkpoint_folder.latest(directory.path / 'checkpoints', pytest.fail)
    program.run_training(
        dataclasses.replace(experiment, workers=[honest.target]),
        outputs.RunDirectory(directory.path, resume=True),
        saved,
    )
    assert not runs.differences(directory.path, tmp_path / 'reference')
