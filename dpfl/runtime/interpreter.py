"""Executes TFF computations in this process, the shards of a round in parallel.

TFF compiles a computation to a program of few instructions: TensorFlow graphs, and what to do with
their results at the server and at clients. This is an interpreter of such programs: `expressions`
evaluates them and converts arguments and results, `graphs` executes the TensorFlow graphs.
"""

import collections
import concurrent.futures
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors
from dpfl.runtime import compilation, expressions, failures, graphs
from dpfl.runtime.failures import ComputationError

Struct = tff.structure.Struct

# Size of the LRU cache of compiled computations.
_MAX_PROGRAMS = 64

_ENDED = 'the runtime has ended'


class Interpreter:
    """Executes computations, and caches what it compiles.

    Args:
      num_threads: how many clients' parts of a computation run at a time.
    """

    def __init__(self, num_threads: int):
        self._num_threads = num_threads
        self._threads = concurrent.futures.ThreadPoolExecutor(
            num_threads, 'dpfl-clients', initializer=graphs.compute_alone
        )
        self._programs: collections.OrderedDict[int, _Program] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def execute(self, computation: tff.Computation, argument: Any) -> Any:
        """The result of a computation in Python containers, as TFF's own contexts return it.

        Args:
          computation: has no secure sums, no `federated_select`, and no code of frameworks other
            than TensorFlow.
          argument: value of its parameter; with several parameters a structure of them.

        Raises:
          ComputationError: if TensorFlow fails, or the computation has something unsupported.
          OutOfMemoryError: if there is not enough memory for a tensor.
          TypeError: if the argument is not of the computation's type.
          ValueError: if arguments have values for different numbers of clients.
        """
        program = self._program(computation)
        arguments = Struct.unnamed()
        if computation.type_signature.parameter is not None:
            parameter = computation.type_signature.parameter
            arguments = Struct.unnamed(expressions.from_python(argument, parameter))
        sizes = {len(leaf) for leaf in graphs.leaves(arguments) if isinstance(leaf, list)}
        if len(sizes) > 1:
            raise errors.ArgumentError(
                'clients',
                errors.NOT_SHOWN,
                f'must be equally many in all arguments, are {sorted(sizes)}',
            )

        execution = expressions.Execution(program.graph, self._stream, max(sizes, default=0))
        try:
            function = execution.evaluate(program.block, {})
            result = function(*arguments) if callable(function) else function
        except tf.errors.OpError as error:
            raise failures.of_tensorflow(error) from None
        except (concurrent.futures.CancelledError, RuntimeError):
            if not self._is_closed:
                raise
            raise ComputationError(_ENDED) from None
        return expressions.to_python(result, computation.type_signature.result)

    def close(self) -> None:
        """Ends computations in progress with errors, and releases the compiled ones."""
        with self._lock:
            self._is_closed = True
            programs = list(self._programs.values())
            self._programs.clear()
        for program in programs:
            program.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _program(self, computation) -> '_Program':
        with self._lock:
            if self._is_closed:
                raise ComputationError(_ENDED)
            # By identity: the hash of a computation is computed from all of its graphs.
            program = self._programs.pop(id(computation), None) or _Program(computation)
            self._programs[id(computation)] = program
            while len(self._programs) > _MAX_PROGRAMS:
                self._programs.popitem(last=False)[1].close()
        return program

    def _stream(self, function, members, most: int | None = None) -> Iterator[Any]:
        """The results of a function for the clients' values in order, `most` of them at a time.

        By default there are as many at a time as there are threads.
        """
        most, members = most or self._num_threads, iter(members)
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            while True:
                for member in itertools.islice(members, most - len(waiting)):
                    waiting.append(self._threads.submit(function, member))
                if not waiting:
                    return
                waiting[0].exception()  # Waits.
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class _Program:
    """A compiled computation and its graphs, each built when it is first needed."""

    def __init__(self, computation):
        self._computation = computation  # While it lives, no other object has its `id`.
        compiled = compilation.compiled(computation).to_building_block()
        self.block = expressions.with_whole_sums(compiled)
        self._graphs: dict[int, graphs.Graph] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def graph(self, block: tff.framework.CompiledComputation) -> graphs.Graph:
        with self._lock:
            if self._is_closed:
                raise ComputationError(_ENDED)
            if id(block) not in self._graphs:
                if block.proto.WhichOneof('computation') != 'tensorflow':
                    raise ComputationError('code of other frameworks: is not supported here')
                self._graphs[id(block)] = graphs.Graph(block.proto.tensorflow)
            return self._graphs[id(block)]

    def close(self):
        with self._lock:
            self._is_closed = True
            for graph in self._graphs.values():
                graph.close()
