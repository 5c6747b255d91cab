"""A task of one's own: a model, and arrays of examples for each client."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random, errors
from dpfl.tasks import federated_task
from dpfl.tasks.federated_task import Examples, FederatedTask


def from_arrays(
    model: Any,
    clients: Sequence[Examples],
    heldout: Sequence[Examples],
    *,
    seed: int = 0,
) -> FederatedTask:
    """A task with data in memory.

    Args:
      model: a `tff.learning.models.FunctionalModel`, for instance from
        `learning.from_keras`; its metrics should have 'loss', and 'accuracy' to be shown during
        the run.
      clients: for each client to train on, its examples: arrays by the names of the model's
        `input_spec`, such as 'x' and 'y', whose first axes are as long as there are examples.
      heldout: the same for clients that are held out for evaluation, which must be others: the
        metrics on them have no noise.
      seed: of the order in which a client's examples are used in each epoch.

    Raises:
      ArgumentError: if there are no clients, arrays do not fit the model, or a client is on both
        sides.
    """
    _random.check_seed('seed', seed)
    specs = model.input_spec
    if not isinstance(specs, Mapping) or {*specs} != {'x', 'y'}:
        raise errors.ArgumentError(
            'model', errors.NOT_SHOWN, 'must have an input_spec with the keys x and y'
        )
    names = tuple(specs)
    for argument, given in (('clients', clients), ('heldout', heldout)):
        if not given:
            raise errors.ArgumentError(argument, errors.NOT_SHOWN, 'must have at least one client')
        for number, examples in enumerate(given):
            _check(f'{argument}[{number}]', examples, specs)
    _check_apart(clients, heldout, specs)

    def client_batches(
        client: int, batch_size: int, epochs: int, max_batches: int | None
    ) -> list[Any]:
        arrays = _of_type(clients[client], specs)
        order = _random.generator('own_data.order', seed, client)
        batches: list[Any] = []
        for _ in range(epochs):  # Another order in each.
            rows = order.permutation(len(arrays[names[0]]))
            shuffled = {name: array[rows] for name, array in arrays.items()}
            batches += federated_task.batches(shuffled, batch_size)
        return batches[:max_batches]

    def heldout_batches(num_clients: int, batch_size: int) -> tf.data.Dataset:
        chosen = [_of_type(examples, specs) for examples in heldout[:num_clients]]
        return federated_task.dataset(federated_task.pooled(chosen), batch_size)

    return FederatedTask(
        model=model,
        population=len(clients),
        client_batches=client_batches,
        heldout=heldout_batches,
        in_memory={
            'clients': lambda: _arrays(clients, names),
            'heldout': lambda: _arrays(heldout, names),
        },
        fingerprints={'order_seed': str(seed)},
    )


def _arrays(clients: Sequence[Examples], names: tuple[str, ...]) -> Iterator[list[Any]]:
    """The arrays of each client, as a list of one batch."""
    for examples in clients:
        yield [[np.asarray(examples[name]) for name in names]]


def num_parameters(model: Any) -> int:
    """Number of trainable parameters of a functional model."""
    return sum(math.prod(np.shape(weight)) for weight in model.initial_weights[0])


def _of_type(examples: Examples, specs: Mapping[str, tf.TensorSpec]) -> dict[str, np.ndarray]:
    """The arrays of a client, of the types that the model takes."""
    return {
        name: np.asarray(examples[name], spec.dtype.as_numpy_dtype) for name, spec in specs.items()
    }


def _check(name: str, examples: Examples, specs: Mapping[str, tf.TensorSpec]) -> None:
    if not isinstance(examples, Mapping) or set(examples) != set(specs):
        raise errors.ArgumentError(
            name, errors.NOT_SHOWN, f'must have the arrays {", ".join(specs)}'
        )
    arrays = {key: np.asarray(examples[key]) for key in specs}
    for key, spec in specs.items():
        array, kind = arrays[key], spec.dtype.as_numpy_dtype
        if not (
            array.ndim
            and spec.shape.rank in (None, array.ndim)
            and spec.shape[1:].is_compatible_with(array.shape[1:])
            and np.can_cast(array.dtype, kind, 'same_kind')
        ):
            raise errors.ArgumentError(
                f'{name}[{key!r}]',
                errors.NOT_SHOWN,
                f'must be {spec.dtype.name} of shape {spec.shape}, is {array.dtype} of shape '
                f'{array.shape}',
            )
    if len({len(array) for array in arrays.values()}) != 1:
        raise errors.ArgumentError(name, errors.NOT_SHOWN, 'must have arrays of one length')


def _check_apart(
    clients: Sequence[Examples], heldout: Sequence[Examples], specs: Mapping[str, tf.TensorSpec]
) -> None:
    """Checks that no held-out client has exactly the examples of a training client."""
    known = {_digest(_of_type(client, specs)): number for number, client in enumerate(clients)}
    for number, examples in enumerate(heldout):
        same = known.get(_digest(_of_type(examples, specs)))
        if same is not None and len(next(iter(examples.values()))):
            raise errors.ArgumentError(
                f'heldout[{number}]',
                errors.NOT_SHOWN,
                f'must not have the examples of clients[{same}]: a client is protected or held out',
            )


def _digest(arrays: Mapping[str, np.ndarray]) -> bytes:
    total = hashlib.sha256()
    for array in arrays.values():
        total.update(f'{array.dtype.str} {array.shape}\n'.encode())
        # The bytes of objects, such as texts, are their addresses.
        plain = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        total.update(plain)
    return total.digest()
