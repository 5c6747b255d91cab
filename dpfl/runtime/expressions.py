"""Evaluates the expressions of a compiled TFF computation: calls, selections, intrinsics."""

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow_federated as tff

from dpfl.runtime import graphs, values
from dpfl.runtime.failures import ComputationError

Struct = tff.structure.Struct
_blocks = tff.framework


@dataclasses.dataclass(frozen=True)
class Execution:
    """One execution of a computation.

    Attributes:
      graph: returns the executable graph of a TensorFlow block.
      map: applies a function to each value of a list, several at a time; the results are in order.
      stream: the same, but there are only a few results at a time, the others being computed when
        these have been taken.
      num_clients: number of clients.
    """

    graph: Callable[[Any], graphs.Graph]
    map: Callable[[Callable[[Any], Any], list[Any]], list[Any]]
    stream: Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]
    num_clients: int

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

    def at_clients(self, value: list[Any] | values.AllEqual) -> list[Any]:
        """The value of each client."""
        return [value.value] * self.num_clients if isinstance(value, values.AllEqual) else value


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
    return values.AllEqual(function(value.value))


def _apply(execution, argument):
    del execution
    return argument[0](argument[1])


def _zip_at_clients(execution, argument):
    leaves = [leaf for leaf in values.flatten(argument) if isinstance(leaf, list | values.AllEqual)]
    if all(isinstance(leaf, values.AllEqual) for leaf in leaves):
        return values.AllEqual(values.of_client(argument, 0))
    return [values.of_client(argument, index) for index in range(execution.num_clients)]


_INTRINSICS: dict[str, Callable[[Execution, Any], Any]] = {
    'federated_apply': _apply,
    'federated_broadcast': lambda execution, value: values.AllEqual(value),
    'federated_eval_at_clients': lambda execution, function: execution.map(
        lambda _: function(), [None] * execution.num_clients
    ),
    'federated_eval_at_server': lambda execution, function: function(),
    'federated_map': _map,
    'federated_map_all_equal': _map_all_equal,
    'federated_value_at_clients': lambda execution, value: values.AllEqual(value),
    'federated_value_at_server': lambda execution, value: value,
    'federated_zip_at_clients': _zip_at_clients,
    'federated_zip_at_server': lambda execution, value: value,
}
