"""Optimises a mechanism, saves it, and returns its losses."""

import pathlib
import time
from typing import Any

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import registry
from dpfl.simulation.training.server_config import ScheduleConfig

_CONSTANT = ScheduleConfig()


def optimize(
    name: str,
    schema: Participation,
    output: pathlib.Path,
    *,
    buffers: int | None = None,
    bands: int | None = None,
    loss: str | None = None,
    momentum: float = 0.0,
    nesterov: bool = False,
    schedule: ScheduleConfig = _CONSTANT,
) -> dict[str, Any]:
    """Optimises a mechanism for a schema, saves it in a file, and returns its losses by name.

    Args:
      name: Name of the mechanism, one of `registry.OPTIMIZED`.
      schema: Participation schema to optimise for.
      output: File to save the mechanism in (.npz).
      buffers: Number of buffers of a BLT; None for 4.
      bands: Number of bands of a banded mechanism; None for the min separation.
      loss: 'max' or 'rms'; None for the loss that the mechanism is published with.
      momentum: If not 0, optimise for the models of SGD with this momentum instead of prefix sums.
      nesterov: Whether the momentum is Nesterov's.
      schedule: Learning rates of the SGD.

    Raises:
      ArgumentError: If a value is not allowed, or the file cannot be written.
    """
    check_output(output)
    if nesterov and not momentum:
        raise errors.ArgumentError('nesterov', nesterov, 'needs momentum')
    optimizer = registry.ENTRIES[name].optimizer
    assert optimizer is not None
    sizes = {'buffers': buffers, 'bands': bands}
    size = sizes.pop(optimizer.size)
    for other, value in sizes.items():
        if value is not None:
            raise errors.ArgumentError(other, value, f'mechanism={name} has {optimizer.size}')
    started = time.monotonic()
    workload = schedule.workload_of_sgd(schema.rounds, momentum, nesterov)
    mechanism = optimizer.optimize(schema, size, loss=loss, workload=workload, progress=True)
    seconds = time.monotonic() - started
    save(mechanism, output)
    return {
        'mechanism': name,
        'rounds': schema.rounds,
        'min_separation': schema.min_separation,
        'max_participations': schema.count,
        'buffers': mechanism.kernel().buffers,
        'max_loss': mechanism.max_loss(schema, workload),
        'rms_loss': mechanism.rms_loss(schema, workload),
        'sensitivity': mechanism.sensitivity(schema),
        'sensitivity_is_exact': mechanism.sensitivity_is_exact(schema),
        'seconds': seconds,
        'output': str(output),
    }


def check_output(output: pathlib.Path) -> None:
    """Raises ArgumentError if the directory of a file does not exist."""
    if not output.parent.is_dir():
        raise errors.ArgumentError('output', output, 'must be in a directory that exists')


def save(mechanism: mechanisms.Mechanism, output: pathlib.Path) -> None:
    """Saves a mechanism; raises ArgumentError if the file cannot be written."""
    try:
        mechanisms.save(mechanism, output)
    except OSError as error:
        raise errors.ArgumentError('output', output, str(error.strerror)) from None
