"""Executes TFF computations in this process, the shards of a round side by side.

TFF compiles a computation to a program of few instructions: TensorFlow graphs, and what to do with
their results at the server and at clients. This is an interpreter of those programs. A value at the
server is an array, the bytes of a data set, or a `Struct` of values; a value at clients is a list
of them, one for each.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import errors
from dpfl.runtime import compilation, failures, graphs
from dpfl.runtime.failures import ComputationError

Struct = tff.structure.Struct
_blocks = tff.framework

# That are kept compiled: those used last.
_MAX_PROGRAMS = 64

_ENDED = 'the runtime has ended'


@dataclasses.dataclass(frozen=True)
class _Same:
    """A value that all clients have, however many there are."""

    value: Any


class Interpreter:
    """Executes computations; what it compiled is kept for the next time.

    Args:
      num_threads: how many clients' parts of a computation run at a time.
      observe: takes a stage, 'moving in' (arguments are made ready), 'clients' or 'server', and the
        seconds that it took; None for no one to tell.
    """

    def __init__(self, num_threads: int, observe: Callable[[str, float], None] | None = None):
        self._threads = concurrent.futures.ThreadPoolExecutor(
            num_threads, 'dpfl-clients', initializer=graphs.compute_alone
        )
        self._observe = observe
        self._programs = collections.OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    def execute(self, computation: tff.Computation, argument: Any) -> Any:
        """The result of a computation in Python's containers, as TFF's own contexts return it.

        Args:
          computation: without secure sums, `federated_select` and code of other frameworks.
          argument: a value for its parameter; with several parameters a structure of them.

        Raises:
          ComputationError: if TensorFlow refuses, or if it has something that is not executed here.
          OutOfMemoryError: if there is not the memory for a tensor.
          TypeError: if the argument is not of the computation's type.
          ValueError: if values at clients are of different numbers of clients.
        """
        program = self._program(computation)
        watch = _Stopwatch(self._observe)
        arguments = Struct.unnamed()
        if computation.type_signature.parameter is not None:
            with watch.measuring('moving in'):
                arguments = Struct.unnamed(_ingest(argument, computation.type_signature.parameter))
        sizes = {len(leaf) for leaf in _flatten(arguments) if isinstance(leaf, list)}
        if len(sizes) > 1:
            raise errors.ArgumentError(
                'clients',
                errors.NOT_SHOWN,
                f'must be as many in each argument, are {sorted(sizes)}',
            )

        def at_clients(function, values):
            with watch.measuring('clients'):
                return self._map(function, values)

        execution = _Execution(program.graph, at_clients, max(sizes, default=0))
        try:
            with watch.measuring('server'):
                function = execution.evaluate(program.block, {})
                result = function(*arguments) if callable(function) else function
        except tf.errors.OpError as error:
            raise failures.of_tensorflow(error) from None
        except (concurrent.futures.CancelledError, RuntimeError):
            if not self._is_closed:
                raise
            raise ComputationError(_ENDED) from None
        result_type = computation.type_signature.result
        return tff.types.type_to_py_container(_result(result, result_type), result_type)

    def close(self) -> None:
        """Ends what is in progress with errors, and releases what was compiled."""
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
            # By identity: its own hash is that of all of its graphs.
            program = self._programs.pop(id(computation), None) or _Program(computation)
            self._programs[id(computation)] = program
            while len(self._programs) > _MAX_PROGRAMS:
                self._programs.popitem(last=False)[1].close()
        return program

    def _map(self, function: Callable[[Any], Any], values: list[Any]) -> list[Any]:
        """The results for the values at clients, several at a time."""
        futures = [self._threads.submit(function, value) for value in values]
        done, waiting = concurrent.futures.wait(
            futures, return_when=concurrent.futures.FIRST_EXCEPTION
        )
        for future in waiting:
            future.cancel()
        for future in done:
            future.result()
        return [future.result() for future in futures]


class _Stopwatch:
    """Tells seconds of stages; those within another one do not count for that."""

    def __init__(self, observe):
        self._observe = observe
        self._inner = 0.0

    @contextlib.contextmanager
    def measuring(self, stage: str):
        if self._observe is None:
            yield
            return
        started, before, self._inner = time.perf_counter(), self._inner, 0.0
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self._observe(stage, seconds - self._inner)
            self._inner = before + seconds


class _Program:
    """A compiled computation and its graphs, each built when it is first needed."""

    def __init__(self, computation):
        self._computation = computation  # As long as it lives, its `id` is not another's.
        self.block = compilation.compiled(computation).to_building_block()
        self._graphs = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def graph(self, block: tff.framework.CompiledComputation) -> graphs.Graph:
        with self._lock:
            if self._is_closed:
                raise ComputationError(_ENDED)
            if id(block) not in self._graphs:
                if block.proto.WhichOneof('computation') != 'tensorflow':
                    raise ComputationError('code of other frameworks: is not executed here')
                self._graphs[id(block)] = graphs.Graph(block.proto.tensorflow)
            return self._graphs[id(block)]

    def close(self):
        with self._lock:
            self._is_closed = True
            for graph in self._graphs.values():
                graph.close()


@dataclasses.dataclass(frozen=True)
class _Execution:
    """One execution of a computation.

    Attributes:
      graph: the executable of a block of TensorFlow.
      map: applies a function to the values of a list, several at a time.
      num_clients: that it has.
    """

    graph: Callable[[Any], graphs.Graph]
    map: Callable[[Callable[[Any], Any], list[Any]], list[Any]]
    num_clients: int

    def evaluate(self, block, names: Mapping[str, Any]) -> Any:
        """The value of an expression; functions are functions of Python."""
        match block:
            case _blocks.CompiledComputation():
                graph = self.graph(block)
                takes_argument = block.type_signature.parameter is not None
                return graph if takes_argument else lambda: graph(None)
            case _blocks.Intrinsic():
                if block.uri not in _INTRINSICS:
                    raise ComputationError(f'{block.uri}: is not executed here')
                return lambda argument: _INTRINSICS[block.uri](self, argument)
            case _blocks.Lambda():
                if block.parameter_name is None:
                    return lambda: self.evaluate(block.result, names)
                return lambda argument: self.evaluate(
                    block.result, {**names, block.parameter_name: argument}
                )
            case _blocks.Block():
                names = dict(names)
                for name, value in block.locals:
                    names[name] = self.evaluate(value, names)
                return self.evaluate(block.result, names)
            case _blocks.Reference():
                return names[block.name]
            case _blocks.Call():
                function = self.evaluate(block.function, names)
                if block.argument is None:
                    return function()
                return function(self.evaluate(block.argument, names))
            case _blocks.Selection():
                source = self.evaluate(block.source, names)
                return getattr(source, block.name) if block.index is None else source[block.index]
            case _blocks.Struct():
                return Struct(
                    (name, self.evaluate(value, names))
                    for name, value in tff.structure.iter_elements(block)
                )
            case _blocks.Literal():
                return np.asarray(block.value)
        raise ComputationError(f'{type(block).__name__}: is not executed here')

    def at_clients(self, values: list[Any] | _Same) -> list[Any]:
        """A value for each client."""
        return [values.value] * self.num_clients if isinstance(values, _Same) else values


def _map(execution, argument):
    function, values = argument
    return execution.map(function, execution.at_clients(values))


def _map_all_equal(execution, argument):
    del execution
    function, values = argument
    return _Same(function(values.value))


def _apply(execution, argument):
    del execution
    return argument[0](argument[1])


def _aggregate(execution, argument):
    """In the order of the clients, one after the other: sums are the same in every execution."""
    values, total, accumulate, _, report = argument
    for value in execution.at_clients(values):
        total = accumulate(Struct.unnamed(total, value))
    return report(total)


def _zip_at_clients(execution, argument):
    leaves = [leaf for leaf in _flatten(argument) if isinstance(leaf, list | _Same)]
    if all(isinstance(leaf, _Same) for leaf in leaves):
        return _Same(_member(argument, 0))
    return [_member(argument, index) for index in range(execution.num_clients)]


def _flatten(value):
    """The values at clients or at the server in a structure of them."""
    if isinstance(value, Struct):
        for element in value:
            yield from _flatten(element)
    else:
        yield value


def _member(value, index):
    if isinstance(value, Struct):
        return Struct(
            (name, _member(element, index)) for name, element in tff.structure.iter_elements(value)
        )
    return value.value if isinstance(value, _Same) else value[index]


_INTRINSICS = {
    'federated_aggregate': _aggregate,
    'federated_apply': _apply,
    'federated_broadcast': lambda execution, value: _Same(value),
    'federated_eval_at_clients': lambda execution, function: execution.map(
        lambda _: function(), [None] * execution.num_clients
    ),
    'federated_eval_at_server': lambda execution, function: function(),
    'federated_map': _map,
    'federated_map_all_equal': _map_all_equal,
    'federated_value_at_clients': lambda execution, value: _Same(value),
    'federated_value_at_server': lambda execution, value: value,
    'federated_zip_at_clients': _zip_at_clients,
    'federated_zip_at_server': lambda execution, value: value,
}


def _ingest(value: Any, type_spec: tff.Type) -> Any:
    """A Python value as the interpreter has it."""
    if isinstance(type_spec, tff.FederatedType):
        if type_spec.placement is tff.SERVER:
            return _ingest(value, type_spec.member)
        if type_spec.all_equal:
            return _Same(_ingest(value, type_spec.member))
        if not isinstance(value, list | tuple):
            raise TypeError(f'{type_spec}: must be a list, is {type(value).__name__}')
        return [_ingest(member, type_spec.member) for member in value]
    if isinstance(type_spec, tff.StructType):
        return _ingest_struct(value, type_spec)
    if isinstance(type_spec, tff.SequenceType):
        if not isinstance(value, tf.data.Dataset):
            raise TypeError(f'{type_spec}: must be a tf.data.Dataset, is {type(value).__name__}')
        return graphs.to_bytes(value)
    return _ingest_tensor(value, type_spec)


def _ingest_struct(value, type_spec):
    if not isinstance(value, Struct):
        value = tff.structure.from_container(value)
    names = [name for name, _ in tff.structure.iter_elements(type_spec)]
    elements = tff.structure.to_elements(value)
    if any(name is not None for name, _ in elements) and None not in names:
        by_name = dict(elements)
        if set(by_name) != set(names):
            raise TypeError(f'{type_spec}: value has {sorted(map(str, by_name))}')
        values = [by_name[name] for name in names]
    else:
        values = [element for _, element in elements]
    if len(values) != len(names):
        raise TypeError(f'{type_spec}: value has {len(values)} elements')
    return Struct(
        (name, _ingest(element, type_spec[index]))
        for index, (name, element) in enumerate(zip(names, values, strict=True))
    )


def _ingest_tensor(value, type_spec):
    array = np.asarray(value)
    if array.dtype.kind not in 'OSU' and array.dtype != type_spec.dtype:
        array = _cast(array, type_spec)
    expected = type_spec.shape
    if expected is not None and (
        len(expected) != array.ndim
        or any(a is not None and a != b for a, b in zip(expected, array.shape, strict=True))
    ):
        raise TypeError(f'{type_spec}: must not be an array of shape {list(array.shape)}')
    return array


def _cast(array: np.ndarray, type_spec: tff.TensorType) -> np.ndarray:
    """The same numbers, up to the rounding of floating-point ones, in another type."""
    of_integers = array.dtype.kind in 'iu' and np.issubdtype(type_spec.dtype, np.integer)
    if not of_integers and not np.can_cast(array.dtype, type_spec.dtype, 'same_kind'):
        raise TypeError(f'{type_spec}: must not be an array of {array.dtype}')
    cast = array.astype(type_spec.dtype)
    if of_integers and not np.array_equal(cast, array):
        raise TypeError(f'{type_spec}: must be within its range, is an array of {array.dtype}')
    return cast


def _result(value: Any, type_spec: tff.Type) -> Any:
    """A value of the interpreter with the names of its type, as `type_to_py_container` takes it."""
    if isinstance(type_spec, tff.FederatedType):
        if type_spec.placement is tff.SERVER:
            return _result(value, type_spec.member)
        if isinstance(value, _Same):
            return _result(value.value, type_spec.member)
        return [_result(member, type_spec.member) for member in value]
    if isinstance(type_spec, tff.StructType):
        return Struct(
            (name, _result(value[index], member))
            for index, (name, member) in enumerate(tff.structure.iter_elements(type_spec))
        )
    if isinstance(type_spec, tff.SequenceType):
        return graphs.from_bytes(value, tff.types.type_to_tf_tensor_specs(type_spec.element))
    return value
