"""Evaluates the expressions of a compiled TFF computation: calls, selections, intrinsics.

Python values become values of the interpreter, and back. A value at the server is an array, the
bytes of a data set, or a `Struct` of values. A value at clients is a list of those, one per client,
or an `AllEqual`.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.runtime import graphs
from dpfl.runtime.failures import ComputationError


@dataclasses.dataclass(frozen=True)
class AllEqual:
    """A value that all clients have, however many there are."""

    value: Any


def of_client(value: Any, index: int) -> Any:
    """The value of client number `index` in a structure of values at clients."""
    if isinstance(value, Struct):
        return Struct(
            (name, of_client(element, index))
            for name, element in tff.structure.iter_elements(value)
        )
    return value.value if isinstance(value, AllEqual) else value[index]


def from_python(value: Any, type_spec: tff.Type) -> Any:
    """The interpreter's value for a Python value.

    Raises:
      TypeError: if the value is not of the type.
    """
    if isinstance(type_spec, tff.FederatedType):
        if type_spec.placement is tff.SERVER:
            return from_python(value, type_spec.member)
        if type_spec.all_equal:
            return AllEqual(from_python(value, type_spec.member))
        if not isinstance(value, list | tuple):
            raise TypeError(f'{type_spec}: must be a list, is {type(value).__name__}')
        return [from_python(member, type_spec.member) for member in value]
    if isinstance(type_spec, tff.StructType):
        return _struct(value, type_spec)
    if isinstance(type_spec, tff.SequenceType):
        if isinstance(value, bytes):
            return value  # A data set in the form of `graphs.to_bytes`.
        if isinstance(value, list):
            return graphs.to_bytes(_dataset(value, type_spec.element))
        if not isinstance(value, tf.data.Dataset):
            raise TypeError(f'{type_spec}: must be a tf.data.Dataset, is {type(value).__name__}')
        # Names, types and shapes: TensorFlow would take arrays by their places.
        given = tff.types.tensorflow_to_type(_in_order(value.element_spec, type_spec.element))
        if not type_spec.element.is_assignable_from(given):
            raise TypeError(f'{type_spec}: must not be a tf.data.Dataset of {given}')
        return graphs.to_bytes(value)
    return _array(value, type_spec)


def to_python(value: Any, type_spec: tff.Type) -> Any:
    """A value of the interpreter in the Python containers of its type."""
    return tff.types.type_to_py_container(_named(value, type_spec), type_spec)


def _dataset(elements, type_spec):
    """The data set of a list of elements, whose shapes may differ where the type leaves them open.

    They are serialised: a graph has no other form for arrays of several shapes.
    """
    leaves = list(_leaves(type_spec))
    rows = [
        [
            tf.io.serialize_tensor(leaf).numpy()
            for leaf in graphs.leaves(from_python(element, type_spec))
        ]
        for element in elements
    ]

    def parsed(row):
        tensors = (
            tf.ensure_shape(tf.io.parse_tensor(row[place], leaf.dtype), leaf.shape)
            for place, leaf in enumerate(leaves)
        )
        return _packed(type_spec, tensors)

    strings = tf.constant(rows, tf.string, [len(rows), len(leaves)])
    return tf.data.Dataset.from_tensor_slices(strings).map(parsed)


def _leaves(type_spec):
    """The types of the tensors of a type, in its order."""
    if isinstance(type_spec, tff.StructType):
        for member in type_spec.children():
            yield from _leaves(member)
    else:
        yield type_spec


def _packed(type_spec, tensors):
    """Tensors in the structure of a type."""
    if not isinstance(type_spec, tff.StructType):
        return next(tensors)
    members = [
        (name, _packed(member, tensors)) for name, member in tff.structure.iter_elements(type_spec)
    ]
    if any(name is None for name, _ in members):
        return tuple(member for _, member in members)
    return collections.OrderedDict(members)


def _in_order(spec, type_spec):
    """The specs in the order of the type's names; TensorFlow sorts them, so any order will do."""
    if not isinstance(type_spec, tff.StructType):
        return spec
    members = dict(tff.structure.iter_elements(type_spec))
    if isinstance(spec, Mapping) and spec.keys() == members.keys():
        return collections.OrderedDict(
            (name, _in_order(spec[name], members[name])) for name in members
        )
    if type(spec) is tuple and len(spec) == len(type_spec):
        return tuple(map(_in_order, spec, type_spec))
    return spec


def _struct(value, type_spec):
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
        (name, from_python(element, type_spec[index]))
        for index, (name, element) in enumerate(zip(names, values, strict=True))
    )


def _array(value, type_spec):
    array = np.asarray(value)
    if np.dtype(type_spec.dtype).kind not in 'OSU' and array.dtype != type_spec.dtype:
        of_integers = array.dtype.kind in 'iu' and np.issubdtype(type_spec.dtype, np.integer)
        if not of_integers and not np.can_cast(array.dtype, type_spec.dtype, 'same_kind'):
            raise TypeError(f'{type_spec}: must not be an array of {array.dtype}')
        given, array = array, array.astype(type_spec.dtype)  # Floating-point numbers are rounded.
        if of_integers and not np.array_equal(array, given):
            raise TypeError(f'{type_spec}: must be within its range, is an array of {given.dtype}')
    expected = type_spec.shape
    if expected is not None and (
        len(expected) != array.ndim
        or any(a is not None and a != b for a, b in zip(expected, array.shape, strict=True))
    ):
        raise TypeError(f'{type_spec}: must not be an array of shape {list(array.shape)}')
    return array


def _named(value: Any, type_spec: tff.Type) -> Any:
    """The value with the names of its type, as `type_to_py_container` takes it."""
    if isinstance(type_spec, tff.FederatedType):
        if type_spec.placement is tff.SERVER:
            return _named(value, type_spec.member)
        if isinstance(value, AllEqual):
            return _named(value.value, type_spec.member)
        return [_named(member, type_spec.member) for member in value]
    if isinstance(type_spec, tff.StructType):
        return Struct(
            (name, _named(value[index], member))
            for index, (name, member) in enumerate(tff.structure.iter_elements(type_spec))
        )
    if isinstance(type_spec, tff.SequenceType):
        return graphs.from_bytes(value, tff.types.type_to_tf_tensor_specs(type_spec.element))
    return value


Struct = tff.structure.Struct
_blocks = tff.framework


@dataclasses.dataclass(frozen=True)
class Execution:
    """One execution of a computation.

    Attributes:
      graph: returns the executable graph of a TensorFlow block.
      stream: applies a function to each value of a list, several at a time; the results are in
        order. There are only a few at a time, or up to the number that is its third argument: the
        others are computed when these have been taken.
      num_clients: number of clients.
    """

    graph: Callable[[Any], graphs.Graph]
    stream: Callable[..., Iterator[Any]]
    num_clients: int

    def map(self, function: Callable[[Any], Any], members: list[Any]) -> list[Any]:
        """The results of a function for each value of a list, in order."""
        return list(self.stream(function, members, len(members)))

    def evaluate(self, block: Any, names: Mapping[str, Any]) -> Any:
        """The value of an expression. Functions become Python functions.

        Args:
          block: a building block of TFF.
          names: values of the names that are bound around the block.

        Raises:
          ComputationError: if the block contains something that is not supported.
        """
        match block:
            case _blocks.CompiledComputation():
                graph = self.graph(block)
                takes_argument = block.type_signature.parameter is not None
                return graph if takes_argument else lambda: graph(None)
            case _blocks.Intrinsic():
                if block.uri not in _INTRINSICS:
                    raise ComputationError(f'{block.uri}: is not supported here')
                return lambda argument: _INTRINSICS[block.uri](self, argument)
            case _blocks.Lambda():
                if block.parameter_name is None:
                    return lambda: self.evaluate(block.result, names)
                return lambda argument: self.evaluate(
                    block.result, {**names, block.parameter_name: argument}
                )
            case _blocks.Block():
                names, used = dict(names), [_names_in(block.result)]
                for name, value in reversed(block.locals):
                    used.append((used[-1] - {name}) | _names_in(value))
                for name, value in block.locals:
                    used.pop()
                    names[name] = self.evaluate(value, names)
                    # Values that nothing reads any more, such as the data of all clients, go.
                    names = {kept: names[kept] for kept in names.keys() & used[-1]}
                return self.evaluate(block.result, names)
            case _blocks.Reference():
                return names[block.name]
            case _blocks.Call() if _is_call(block, 'federated_aggregate'):
                return self._aggregate(block.argument, names)
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
        raise ComputationError(f'{type(block).__name__}: is not supported here')

    def _aggregate(self, argument, names):
        """One client after the other, in their order, so that sums are equal in all executions."""
        value, zero, accumulate, _, report = argument
        if _is_call(value, 'federated_map'):
            function, members = self.evaluate(value.argument, names)
            members = self.stream(function, self.at_clients(members))
        else:
            members = self.at_clients(self.evaluate(value, names))
        total, accumulate = self.evaluate(zero, names), self.evaluate(accumulate, names)
        for member in members:
            total = accumulate(Struct.unnamed(total, member))
            del member  # It takes no memory while the next one is computed.
        return self.evaluate(report, names)(total)

    def at_clients(self, value: list[Any] | AllEqual) -> list[Any]:
        """The value of each client."""
        return [value.value] * self.num_clients if isinstance(value, AllEqual) else value


def _names_in(block: Any) -> set[str]:
    """The names that an expression reads, without those that it binds itself."""
    match block:
        case _blocks.Reference():
            return {block.name}
        case _blocks.Lambda():
            return _names_in(block.result) - {block.parameter_name}
        case _blocks.Block():
            used = _names_in(block.result)
            for name, value in reversed(block.locals):
                used = (used - {name}) | _names_in(value)
            return used
    return set().union(*map(_names_in, block.children()))


def with_whole_sums(block: Any) -> Any:
    """The expression with all that only a sum over clients reads inside of that sum.

    So the sum need not keep it: neither its zero, nor more than a few of the clients' results.
    """
    if isinstance(block, _blocks.Lambda):
        return _blocks.Lambda(
            block.parameter_name, block.parameter_type, with_whole_sums(block.result)
        )
    bound = dict(block.locals) if isinstance(block, _blocks.Block) else {}
    if not bound or len(bound) < len(block.locals):
        return block
    reads = collections.Counter(_references(block))
    kept = dict(bound)
    for name, value in bound.items():
        if _is_call(value, 'federated_aggregate'):
            operands = list(tff.structure.iter_elements(value.argument))
            for index, (_, operand) in enumerate(operands[:2]):
                if isinstance(operand, _blocks.Reference) and reads[operand.name] == 1:
                    operands[index] = None, kept.pop(operand.name, operand)
            kept[name] = _blocks.Call(value.function, _blocks.Struct(operands))
    return _blocks.Block(list(kept.items()), block.result)


def _references(block: Any) -> Iterator[str]:
    if isinstance(block, _blocks.Reference):
        yield block.name
    for child in block.children():
        yield from _references(child)


def _is_call(block: Any, uri: str) -> bool:
    return (
        isinstance(block, _blocks.Call)
        and isinstance(block.function, _blocks.Intrinsic)
        and block.function.uri == uri
    )


def _map(execution, argument):
    function, value = argument
    return execution.map(function, execution.at_clients(value))


def _map_all_equal(execution, argument):
    del execution
    function, value = argument
    return AllEqual(function(value.value))


def _apply(execution, argument):
    del execution
    return argument[0](argument[1])


def _zip_at_clients(execution, argument):
    leaves = [leaf for leaf in graphs.leaves(argument) if isinstance(leaf, list | AllEqual)]
    if all(isinstance(leaf, AllEqual) for leaf in leaves):
        return AllEqual(of_client(argument, 0))
    return [of_client(argument, index) for index in range(execution.num_clients)]


_INTRINSICS: dict[str, Callable[[Execution, Any], Any]] = {
    'federated_apply': _apply,
    'federated_broadcast': lambda execution, value: AllEqual(value),
    'federated_eval_at_clients': lambda execution, function: execution.map(
        lambda _: function(), [None] * execution.num_clients
    ),
    'federated_eval_at_server': lambda execution, function: function(),
    'federated_map': _map,
    'federated_map_all_equal': _map_all_equal,
    'federated_value_at_clients': lambda execution, value: AllEqual(value),
    'federated_value_at_server': lambda execution, value: value,
    'federated_zip_at_clients': _zip_at_clients,
    'federated_zip_at_server': lambda execution, value: value,
}
