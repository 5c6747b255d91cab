"""Types of values that aggregators take, as TFF's own factories do."""

import tensorflow_federated as tff


def is_empty(value_type: tff.Type) -> bool:
    """Whether values of a type, a structure of tensors, have no tensor."""
    return isinstance(value_type, tff.StructType) and all(map(is_empty, value_type.children()))


def check(value_type: tff.Type) -> None:
    """Checks that a type is that of tensors of known shapes.

    Raises:
      TypeError: if it is a type of something else, such as sequences, federated values or
        functions, or has a tensor of unknown shape. The message is one line.
    """
    if not tff.types.is_structure_of_tensors(value_type):
        raise TypeError(f'value_type={value_type}: must be a tensor or a structure of tensors')
    if tff.types.contains(value_type, _has_unknown_shape):
        raise TypeError(
            f'value_type={value_type}: must have tensors of known shapes, since noise is drawn for '
            'every coordinate'
        )


def _has_unknown_shape(part: tff.Type) -> bool:
    return isinstance(part, tff.TensorType) and not tff.types.is_shape_fully_defined(part.shape)
