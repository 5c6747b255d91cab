"""Executes TFF computations in a remote worker, from an event loop in a thread."""

import asyncio
import collections
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import grpc
import tensorflow_federated as tff
from google.protobuf import message

from dpfl.runtime import compilation, failures
from dpfl.runtime.workers import answers

# A worker must not fill the memory of a run. So messages are bounded by the largest size in TFF,
# and compressed ones, which could expand to any size, are refused (TFF does not compress).
_MOST_BYTES = (1 << 31) - 1
_CHANNEL_OPTIONS = (
    ('grpc.max_receive_message_length', _MOST_BYTES),
    ('grpc.max_send_message_length', -1),
    ('grpc.per_message_decompression', 0),
    ('grpc.enable_http_proxy', 0),
)

# Computations that an executor caches; a run has fewer.
_MAX_COMPUTATIONS = 16

# Seconds in which a round in progress can notice that its worker is gone.
_DRAIN_SECONDS = 10.0


def channel(target: str, *options: tuple[str, int]) -> grpc.Channel:
    """A channel for messages as large as TFF's can be."""
    return grpc.insecure_channel(target, (*_CHANNEL_OPTIONS, *options))


class Runner:
    """Executes computations in a worker, one after the other; a context manager.

    TFF's own context joins its thread in a finalizer, which may run after the interpreter has
    stopped the thread.

    Args:
      connection: a channel to the worker.
      explain: returns the exception to raise instead of one of gRPC, of a ValueError (closed
        channel) or of one from reading an answer.
      max_cohort_sizes: number of cohort sizes for which it keeps executors.
    """

    def __init__(
        self,
        connection: grpc.Channel,
        explain: Callable[[Exception], Exception],
        max_cohort_sizes: int,
    ):
        self._executors = _Executors(_Stub(connection, explain), max_cohort_sizes)
        self._context = tff.framework.AsyncExecutionContext(
            executor_fn=self._executors,
            compiler_fn=compilation.compiled,
            transform_args=tff.tensorflow.transform_args,
            transform_result=tff.tensorflow.transform_result,
        )
        self._loop = asyncio.new_event_loop()
        # A daemon: a compilation that outlasts the drain must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name='dpfl-runtime', daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _run(self):
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def submit(self, comp: tff.Computation, arg: Any) -> concurrent.futures.Future:
        """Starts a computation."""
        return asyncio.run_coroutine_threadsafe(self._context.invoke(comp, arg), self._loop)

    def release(self) -> None:
        """Releases what the worker holds."""
        self._executors.close()

    def close(self) -> None:
        """Cancels computations in progress, waits for them to end, and ends the thread."""
        asyncio.run_coroutine_threadsafe(self._drain(), self._loop)
        self._thread.join(_DRAIN_SECONDS)
        self.release()

    async def _drain(self):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.stop()


class QuietChannel:
    """A channel without tracebacks on standard error and without state notifications.

    TFF subscribes to state changes for its restarts. A thread of gRPC polls for them, and prints a
    traceback when the channel is closed. gRPC prints another one for an answer that is not a valid
    message.
    """

    def __init__(self, connection):
        self._channel = connection

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        """Ignores the subscription."""

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **options: Any
    ) -> Any:
        """A call that fails like any other if the answer is not a valid message."""

        def read(data):
            try:
                return response_deserializer(data)
            except message.DecodeError:
                return None  # gRPC fails the call.

        return self._channel.unary_unary(method, request_serializer, read, **options)

    def __getattr__(self, name):
        return getattr(self._channel, name)


class _Stub(tff.framework.RemoteExecutorStub):
    """Calls to the worker. Their failures are errors of one line.

    An absent worker is an error at once. TFF assumes that an unreachable executor is being
    restarted, and repeats the computation until it answers, which here would be a hang.
    """

    def __init__(self, connection, explain):
        self._explain = explain
        self._stub = tff.framework.RemoteExecutorGrpcStub(QuietChannel(connection))

    def _call(self, method, request):
        try:
            return method(request)
        except (grpc.RpcError, ValueError) as error:
            failure = self._explain(error)
        raise failure

    def _release(self, method, request):
        # Finalizers call this too. A worker that is gone has nothing to release.
        with contextlib.suppress(grpc.RpcError, ValueError):
            return method(request)

    def get_executor(self, request):
        return self._call(self._stub.get_executor, request)

    def create_value(self, request):
        return self._call(self._stub.create_value, request)

    def create_struct(self, request):
        return self._call(self._stub.create_struct, request)

    def create_call(self, request):
        return self._call(self._stub.create_call, request)

    def create_selection(self, request):
        return self._call(self._stub.create_selection, request)

    def compute(self, request):
        response = self._call(self._stub.compute, request)
        answers.check_message(response.value)
        return response

    def explain_answer(self, error):
        """The exception to raise for an error in reading an answer."""
        if isinstance(error, answers.AnswerError):
            return self._explain(error)
        return self._explain(answers.AnswerError(f'{type(error).__name__}: {error}'))

    def dispose(self, request):
        return self._release(self._stub.dispose, request)

    def dispose_executor(self, request):
        return self._release(self._stub.dispose_executor, request)


class _Executor(tff.framework.RemoteExecutor):
    """An executor that sends each computation once, and checks answers before they are used."""

    def __init__(self, stub, num_clients):
        super().__init__(stub, dispose_batch_size=1)
        self._answering = stub
        self._num_clients = num_clients
        self._computations = {}

    async def _compute(self, value_ref, type_spec):
        try:
            value = await super()._compute(value_ref, type_spec)
            answers.check_value(value, type_spec, self._num_clients)
        except (failures.WorkerError, failures.ComputationError):
            raise
        except Exception as error:  # TFF may raise anything for an unexpected answer.
            failure = self._answering.explain_answer(error)
        else:
            return value
        raise failure

    async def create_value(self, value, type_spec=None):
        if not isinstance(value, tff.framework.ConcreteComputation):
            return await super().create_value(value, type_spec)
        # By identity: equality compares all graphs. The entry keeps the object alive.
        if id(value) not in self._computations:
            if len(self._computations) == _MAX_COMPUTATIONS:
                self._computations.clear()
            remote = await super().create_value(value, type_spec)
            self._computations[id(value)] = (value, remote)
        return self._computations[id(value)][1]

    def close(self):
        self._computations.clear()
        super().close()


class _Executors(tff.framework.ExecutorFactory):
    """LRU cache of executors, one per cohort size.

    Unlike TFF's own factory, it closes the executors that it drops, and releases their values at
    once instead of twenty at a time. Otherwise cohort sizes that vary from round to round fill the
    worker's memory with graphs and models of earlier rounds.
    """

    def __init__(self, stub, max_count):
        self._stub = stub
        self._max_count = max_count
        self._executors = collections.OrderedDict()

    def create_executor(self, cardinalities):
        key = self._key(cardinalities)
        if key not in self._executors:
            while len(self._executors) >= self._max_count:
                self._executors.popitem(last=False)[1].close()
            cardinalities = {tff.CLIENTS: 0, **cardinalities}
            executor = _Executor(self._stub, cardinalities[tff.CLIENTS])
            executor.set_cardinalities(cardinalities)
            self._executors[key] = executor
        self._executors.move_to_end(key)
        return self._executors[key]

    def clean_up_executor(self, cardinalities):
        executor = self._executors.pop(self._key(cardinalities), None)
        if executor is not None:
            executor.close()

    def close(self):
        while self._executors:
            self._executors.popitem()[1].close()

    def _key(self, cardinalities):
        return frozenset((str(placement), count) for placement, count in cardinalities.items())
