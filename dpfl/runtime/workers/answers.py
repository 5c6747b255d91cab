"""Checks the answers of a worker: only numbers or text of the requested type are accepted.

A message of TFF can also hold a computation, or a data set as a graph, which TFF executes when it
reads it. Such a graph can write files, so it must be refused before.
"""

import math
from typing import Any

import numpy as np
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2


class AnswerError(ValueError):
    """An answer is not of the requested type; the message is one line."""


def check_message(message: executor_pb2.Value) -> None:
    """Checks, before TFF reads it, that a message holds only numbers and text in structures.

    Raises:
      AnswerError: if it holds anything else, or if an array claims to be larger than the message.
    """
    kind = message.WhichOneof('value')
    if kind == 'array':
        size = math.prod(message.array.shape.dim)
        if min(message.array.shape.dim, default=0) < 0 or size > message.ByteSize():
            raise AnswerError(f'an array of {size} elements takes {message.ByteSize()} bytes')
    elif kind == 'struct':
        for element in message.struct.element:
            check_message(element.value)
    elif kind == 'federated':
        for member in message.federated.value:
            check_message(member)
    else:
        raise AnswerError(f'neither an array nor a structure, but: {kind}')


def check_value(value: Any, expected: tff.Type, num_clients: int) -> None:
    """Checks that a value is of a type.

    Args:
      value: as TFF reads it.
      expected: type of the result of the computation.
      num_clients: how many values a value at clients must have.

    Raises:
      AnswerError: if number, structure, dtype or shape differ.
    """
    if isinstance(expected, tff.FederatedType):
        members = [value]
        if not expected.all_equal:
            count = num_clients if expected.placement is tff.CLIENTS else 1
            if not isinstance(value, list) or len(value) != count:
                raise AnswerError(f'must have {count} values of {expected.member}')
            members = value
        for member in members:
            check_value(member, expected.member, num_clients)
    elif isinstance(expected, tff.StructType):
        if not isinstance(value, tff.structure.Struct) or len(value) != len(expected):
            raise AnswerError(f'must be {expected}')
        for member, member_type in zip(value, expected, strict=True):
            check_value(member, member_type, num_clients)
    else:
        _check_array(value, expected)


def _check_array(value, expected) -> None:
    if not isinstance(expected, tff.TensorType):
        raise AnswerError(f'{expected}: must be a type of numbers or text')
    array = np.asarray(value)
    if expected.dtype.type is np.str_:
        is_right = array.dtype.kind in 'OSU'
    else:
        is_right = array.dtype == expected.dtype
    same_shape = expected.shape is None or (
        len(array.shape) == len(expected.shape)
        and all(
            size in (None, found) for found, size in zip(array.shape, expected.shape, strict=True)
        )
    )
    if not is_right or not same_shape:
        raise AnswerError(f'must be {expected}, is {array.dtype}{list(array.shape)}')
