"""Tests of the runtime: results, errors, signals, and every way in which a process can end."""

import asyncio
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors
from dpfl.runtime import contexts, failures
from tests import paths

pytestmark = pytest.mark.tff

_STARTS_WITHIN, _ENDS_WITHIN = 240, 60  # Seconds.
CLIENTS_FLOAT = tff.FederatedType(np.float32, tff.CLIENTS)


@tff.tensorflow.computation(np.float32)
def reciprocal(x):
    with tf.control_dependencies([tf.debugging.assert_positive(x, message='not positive')]):
        return 1 / x


@tff.federated_computation(CLIENTS_FLOAT)
def sum_of_reciprocals(values):
    return tff.federated_sum(tff.federated_map(reciprocal, values))


@tff.tensorflow.computation
def one():
    return 1


def test_no_process_is_started_and_nothing_listens():
    children = pathlib.Path('/proc/self/task', str(os.getpid()), 'children')
    before = children.read_text()  # Other tests of this process may have some.
    with contexts.local_runtime():
        assert sum_of_reciprocals([1.0, 2.0]) == 1.5
        assert children.read_text() == before


def test_a_program_of_tff_gets_references_to_values():
    async def program():
        tff.program.check_in_federated_context()
        sums = [sum_of_reciprocals([1.0, x]) for x in (2.0, 4.0)]
        assert all(isinstance(x, tff.program.MaterializableValueReference) for x in sums)
        return await tff.program.materialize_value(sums)

    with contexts.local_runtime(for_programs=True):
        assert asyncio.run(program()) == [1.5, 1.25]


def test_an_assertion_with_a_message_is_this_message():
    with contexts.local_runtime():
        with pytest.raises(contexts.ComputationError, match=r'\Anot positive\.\Z'):
            sum_of_reciprocals([1.0, 0.0])
    kept = 'assertion failed: [1 2 nan] [x: 3]'
    assert failures.one_line(kept) == kept


@pytest.mark.standard
def test_a_tensor_that_finds_no_memory_is_one_line():
    @tff.tensorflow.computation(np.int64)
    def too_large(size):
        return tf.reduce_sum(tf.random.stateless_uniform([size], [1, 2]))

    with contexts.local_runtime():
        with pytest.raises(contexts.OutOfMemoryError, match='out of memory: OOM when') as caught:
            too_large(1 << 50)
    assert '\n' not in str(caught.value) and isinstance(caught.value, errors.RunError)


def test_operations_that_find_no_memory_in_libraries_are_recognised():
    what = 'message: could not create a primitive, in file transpose_op.cc:106'
    message = (
        "Graph execution error:\n\nDetected at node 'transpose' defined at (most recent call):\n"
        f"Node: 'transpose'\nOperation received an exception:Status: {{status}}, {what}"
        '\n\t [[{{{{node transpose}}}}]]'
    )
    error = tf.errors.AbortedError(None, None, message.format(status=1))
    assert str(failures.of_tensorflow(error)) == f'out of memory: Status: 1, {what}'
    error = tf.errors.AbortedError(None, None, message.format(status=2))
    assert isinstance(failures.of_tensorflow(error), contexts.ComputationError)


def test_context_and_signal_handlers_are_restored():
    stack = tff.framework.get_context_stack()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    context, handlers = stack.current, [signal.getsignal(number) for number in numbers]
    with pytest.raises(KeyError):
        with contexts.local_runtime():
            ours = stack.current
            with contexts.local_runtime():
                assert stack.current is not ours
                assert one() == 1
            assert stack.current is ours
            assert one() == 1
            raise KeyError
    assert stack.current is context
    assert [signal.getsignal(number) for number in numbers] == handlers


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_whose_exception_got_lost_ends_the_next_computation(number, request):
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    # Whoever started the tests may ignore it, as nohup does.
    request.addfinalizer(functools.partial(signal.signal, number, signal.signal(number, default)))
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with contexts.local_runtime():
        try:
            signal.raise_signal(number)
        except expected:
            assert one() == 1  # Cleaning up is allowed.
        with pytest.raises(expected) as caught:
            one()
        assert one() == 1
    assert number == signal.SIGINT or caught.value.code == 128 + number


def test_handlers_of_the_caller_are_left_alone():
    def handler(number, frame):
        del number, frame

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with contexts.local_runtime():
            assert signal.getsignal(signal.SIGTERM) is handler
            assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


# Python ends by SIGINT itself after a KeyboardInterrupt that nothing caught: 130 in a shell.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    'how, numbers, status',
    [
        ('exception', [], 1),
        ('interrupted', [signal.SIGINT], -signal.SIGINT),
        ('interrupted', [signal.SIGTERM], 128 + signal.SIGTERM),
        ('interrupted elsewhere', [signal.SIGINT], None),  # The other thread sleeps on.
        ('interrupted, slow cleanup', [signal.SIGINT, signal.SIGINT], -signal.SIGINT),
    ],
)
def test_the_end_of_a_process(how, numbers, status):
    process = subprocess.Popen(
        [sys.executable, '-m', 'tests.runtime.runtime_child', how],
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(_STARTS_WITHIN, process.kill)
    watchdog.start()
    try:
        assert process.stdout.readline() == 'started\n'
        for number, word in zip(numbers, ('running\n', 'leaving\n'), strict=False):
            assert process.stdout.readline() == word
            os.killpg(process.pid, number)  # As a terminal does.
        if len(numbers) < 2:
            assert process.stdout.readline() == 'leaving\n'
        if status is not None:
            # Reading ends only when no process holds the other end of the pipe.
            _, error = process.communicate(timeout=_ENDS_WITHIN)
            assert process.returncode == status, error
            assert 'Exception ignored' not in error and 'never retrieved' not in error
            assert (how == 'exception') == ('ValueError: an error of the training' in error)
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
