"""Values of the interpreter, from Python values and back.

A value at the server is an array, the bytes of a data set, or a `Struct` of values. A value at
clients is a list of those, one per client, or an `AllEqual`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl.runtime import graphs

Struct = tff.structure.Struct


@dataclasses.dataclass(frozen=True)
class AllEqual:
    """A value that all clients have, however many there are."""

    value: Any


def flatten(value: Any) -> Iterator[Any]:
    """The values at the server or at clients in a structure of them."""
    if isinstance(value, Struct):
        for element in value:
            yield from flatten(element)
    else:
        yield value


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
        if not isinstance(value, tf.data.Dataset):
            raise TypeError(f'{type_spec}: must be a tf.data.Dataset, is {type(value).__name__}')
        return graphs.to_bytes(value)
    return _array(value, type_spec)


def to_python(value: Any, type_spec: tff.Type) -> Any:
    """A value of the interpreter in the Python containers of its type."""
    return tff.types.type_to_py_container(_named(value, type_spec), type_spec)


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
    """The same numbers in another type; floating-point numbers are rounded."""
    of_integers = array.dtype.kind in 'iu' and np.issubdtype(type_spec.dtype, np.integer)
    if not of_integers and not np.can_cast(array.dtype, type_spec.dtype, 'same_kind'):
        raise TypeError(f'{type_spec}: must not be an array of {array.dtype}')
    cast = array.astype(type_spec.dtype)
    if of_integers and not np.array_equal(cast, array):
        raise TypeError(f'{type_spec}: must be within its range, is an array of {array.dtype}')
    return cast


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
