"""TensorFlow computations of TFF as callables in this process.

A computation is a graph with names for its inputs and outputs. It runs in its own sessions, as in
TFF's worker, but in the TensorFlow of this process. Tensors are passed as NumPy arrays, a sequence
as the serialised graph of its data set.
"""

import collections
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

Struct = tff.structure.Struct


# With smaller arguments, waking up other threads takes longer than the work they could do.
_SMALL_BYTES = 4 << 20
# Constants with more elements are made in each call, where one number is all that they have. A
# session would hold them for good.
_MOST_CONSTANTS = 1 << 16
# Outputs of a session from its inputs.
_Compute = Callable[[list[Any]], list[Any]]
# Whether this thread computes alone.
_thread = threading.local()


def compute_alone() -> None:
    """From now on, graphs that this thread calls are computed in this thread only.

    For threads that keep the cores busy. Otherwise TensorFlow hands operations to a pool of
    threads, which poll for work and take the cores from the threads that have some.
    """
    _thread.is_alone = True


class Graph:
    """One computation. Several threads may call it at a time; each call has its own session.

    Calls that share a session would wait for each other: for its variables, and for the thread that
    reads its data set, which also computes what follows.

    Args:
      proto: TFF's `TensorFlow` message.
    """

    def __init__(self, proto: Any):
        graph_def = tf.compat.v1.GraphDef()
        proto.graph_def.Unpack(graph_def)
        inputs = _names(proto.parameter) if proto.HasField('parameter') else []
        self._result = proto.result
        self._initializer = proto.initialize_op
        self._feeds = [name if ':' in name else f'{name}:0' for _, name in inputs]
        with tf.Graph().as_default() as self._graph:
            _fill_large_constants(graph_def)
            tf.graph_util.import_graph_def(_with_serialized_inputs(graph_def, inputs), name='')
            # Copies: a session refuses to fetch a tensor that it is fed.
            self._fetches = [_output(self._graph, *output) for output in _names(proto.result)]
            functions = {node.signature.name: node for node in graph_def.library.function}
            for operation in self._graph.get_operations():
                if operation.type == 'ReduceDataset':
                    name = operation.get_attr('f').name
                    _replace(operation, _loop(operation, functions[name].signature.input_arg))
        self._sessions: list[tf.compat.v1.Session] = []
        # Functions of sessions that no call uses, by whether they are for threads that compute
        # alone.
        self._idle: dict[bool, list[_Compute]] = collections.defaultdict(list)
        self._lock = threading.Lock()
        self._is_closed = False

    def __call__(self, argument: Any) -> Any:
        """The result for an argument: arrays and bytes, in a `Struct` where the type has one.

        Raises:
          RuntimeError: if the graph is closed.
          tf.errors.OpError: if TensorFlow fails.
        """
        arguments = list(leaves(argument))
        size = sum(np.asarray(array).nbytes for array in arguments)
        is_alone = getattr(_thread, 'is_alone', False) or size < _SMALL_BYTES
        with self._lock:
            idle = self._idle[is_alone]
            compute = idle.pop() if idle else self._start(is_alone)
        try:
            outputs = compute(arguments)
        finally:
            idle.append(compute)
        return _pack(self._result, iter(outputs))

    def close(self) -> None:
        """Ends calls in progress with an error, and releases their resources."""
        with self._lock:
            self._is_closed = True
            for session in self._sessions:
                session.close()

    def _start(self, is_alone: bool) -> '_Compute':
        """Starts a session, which executes one call at a time."""
        if self._is_closed:
            raise RuntimeError('the graph is closed')
        config = tf.compat.v1.ConfigProto()
        if is_alone:
            config.inter_op_parallelism_threads = -1  # Operations run in the calling thread.
        # TFF's settings: no optimisation, since graphs were optimised when they were compiled.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        config.experimental.optimize_for_static_graph = True
        session = tf.compat.v1.Session(graph=self._graph, config=config)
        self._sessions.append(session)
        initialize = fetch = None  # `make_callable` needs at least one target.
        if self._initializer:
            operation = self._graph.get_operation_by_name(self._initializer)
            initialize = session.make_callable([operation], self._feeds)
        if self._fetches:
            fetch = session.make_callable(self._fetches, self._feeds)

        def compute(arguments: list[Any]) -> list[Any]:
            if initialize is not None:
                initialize(*arguments)
            return [] if fetch is None else fetch(*arguments)

        return compute


def _names(binding) -> list[tuple[str, str]]:
    """Kind ('tensor' or 'sequence') and name in the graph of each leaf."""
    kind = binding.WhichOneof('binding')
    if kind == 'struct':
        return [name for element in binding.struct.element for name in _names(element)]
    if kind == 'sequence':
        return [(kind, binding.sequence.variant_tensor_name)]
    return [(kind, binding.tensor.tensor_name)]


def _output(graph: tf.Graph, kind: str, name: str) -> tf.Tensor:
    tensor = graph.get_tensor_by_name(name)
    if kind == 'sequence':
        return tf.raw_ops.DatasetToGraphV2(input_dataset=tensor, strip_device_assignment=True)
    return tf.identity(tensor)


def _with_serialized_inputs(graph_def, inputs: Sequence[tuple[str, str]]):
    """The graph with placeholders of bytes instead of data sets.

    A data set itself cannot be passed to a session.
    """
    for kind, name in inputs:
        if kind != 'sequence':
            continue
        node = name.partition(':')[0]
        restored = f'{node}/restored'
        for other in graph_def.node:
            if other.name == node:
                other.attr['dtype'].type = tf.string.as_datatype_enum
                other.attr.pop('_output_shapes', None)
                other.attr['shape'].shape.Clear()
            else:
                renamed = [_renamed(name, node, restored) for name in other.input]
                other.input[:] = renamed
        graph_def.node.add(name=restored, op='DatasetFromGraph', input=[node])
    return graph_def


def _fill_large_constants(graph_def) -> None:
    """Replaces large constants of one number, such as the zero of a sum, by `Fill` operations."""
    for node in list(graph_def.node):
        tensor = node.attr['value'].tensor if node.op == 'Const' else None
        if tensor is None or tensor.tensor_content:
            continue
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        values = [field for field, _ in tensor.ListFields() if field.name.endswith('_val')]
        if math.prod(shape) < _MOST_CONSTANTS or len(values) != 1:
            continue
        if len(getattr(tensor, values[0].name)) != 1:
            continue
        parts = {'shape': tf.make_tensor_proto(shape, tf.int64), 'number': tensor}
        for name, part in parts.items():
            constant = graph_def.node.add(name=f'{node.name}/{name}', op='Const')
            constant.device = node.device
            constant.attr['dtype'].type = part.dtype
            constant.attr['value'].tensor.CopyFrom(part)
        constant.attr['value'].tensor.tensor_shape.Clear()
        dtype, inputs = tensor.dtype, list(node.input)
        node.op = 'Fill'
        node.attr.clear()
        node.attr['T'].type, node.attr['index_type'].type = dtype, tf.int64.as_datatype_enum
        node.input[:] = [f'{node.name}/{name}' for name in parts] + inputs


def _renamed(name: str, old: str, new: str) -> str:
    """A node's input with node `old` replaced by `new`, also with a port or as a control input."""
    marker = '^' if name.startswith('^') else ''
    node, colon, port = name.removeprefix('^').partition(':')
    return f'{marker}{new}{colon}{port}' if node == old else name


def _loop(reduce: tf.Operation, parameters: Sequence[Any]) -> list[tf.Tensor]:
    """The outputs of a `ReduceDataset`, computed by a loop in the graph.

    TensorFlow prepares the function of a `ReduceDataset` anew in each call, which takes longer than
    the training steps of a small client. It prepares the operations of a graph once.

    Args:
      reduce: the operation.
      parameters: of its function, as in a `FunctionDef`.
    """
    dataset, *others = reduce.inputs
    count = len(reduce.outputs)
    state, captured = others[:count], others[count:]
    shapes = [tf.TensorShape(shape) for shape in reduce.get_attr('output_shapes')]
    types = [parameter.type for parameter in parameters[count : len(parameters) - len(captured)]]
    element = dict(output_types=types, output_shapes=[tf.TensorShape(None)] * len(types))
    iterator = tf.raw_ops.AnonymousIteratorV3(**element)
    made = tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)

    def step(optional, *state):
        values = tf.raw_ops.OptionalGetValue(optional=optional, **element)
        following = tf.raw_ops.StatefulPartitionedCall(
            args=[*state, *values, *captured],
            Tout=[tensor.dtype for tensor in state],
            f=reduce.get_attr('f'),
        )
        # The next step begins when all of this one is done, variables that it assigns included.
        with tf.control_dependencies([following[0].op]):
            ended = [
                tf.ensure_shape(value, shape)
                for value, shape in zip(following, shapes, strict=True)
            ]
            following = tf.raw_ops.IteratorGetNextAsOptional(iterator=iterator, **element)
        return following, *ended

    with tf.control_dependencies([*reduce.control_inputs, made]):
        first = tf.raw_ops.IteratorGetNextAsOptional(iterator=iterator, **element)
        return tf.while_loop(
            lambda optional, *state: tf.raw_ops.OptionalHasValue(optional=optional),
            step,
            (first, *state),
            shape_invariants=(first.shape, *shapes),
            parallel_iterations=1,
        )[1:]


def _replace(operation: tf.Operation, outputs: Sequence[tf.Tensor]) -> None:
    """Replaces an operation's outputs, as inputs and as control inputs of other operations."""
    for old, new in zip(operation.outputs, outputs, strict=True):
        for consumer in old.consumers():
            for index, tensor in enumerate(consumer.inputs):
                if tensor is old:
                    consumer._update_input(index, new)
    for other in operation._control_outputs:
        kept = [control for control in other.control_inputs if control is not operation]
        other._remove_all_control_inputs()
        other._add_control_inputs([*kept, *[new.op for new in outputs]])


def leaves(value: Any) -> Iterator[Any]:
    """The values in a structure of them, in their order; none for None."""
    if isinstance(value, Struct):
        for element in value:
            yield from leaves(element)
    elif value is not None:
        yield value


def _pack(binding, outputs):
    if binding.WhichOneof('binding') == 'struct':
        return Struct.unnamed(*[_pack(element, outputs) for element in binding.struct.element])
    return next(outputs)


def to_bytes(dataset: tf.data.Dataset) -> np.ndarray:
    """A data set in the form that a `Graph` takes."""
    with tf.device('cpu'):
        return tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset), strip_device_assignment=True
        ).numpy()


def from_bytes(graph: bytes, element_spec: Any) -> tf.data.Dataset:
    """The data set in the result of a `Graph`."""
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph)
    return tf.data.experimental.from_variant(variant, element_spec)
