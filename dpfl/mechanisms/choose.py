"""Chooses a mechanism for a schema, a model size and a memory limit, and says why."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from dpfl import _validate
from dpfl.mechanisms import registry
from dpfl.mechanisms.base import Mechanism
from dpfl.participation import Participation

_BYTES = 4  # float32 in a run
# The mechanisms considered, and the sizes of those that are optimised; None for the default size.
_CONSIDERED: tuple[tuple[str, tuple[int | None, ...]], ...] = (
    ('gaussian', ()),
    ('honaker_tree', ()),
    ('blt', (2, 4)),
    ('free_banded', (None,)),
    ('banded_inverse', (8, 32)),
)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mechanism that was considered.

    Attributes:
      name: name and size of the mechanism.
      buffers: size of its noise state, in copies of the model.
      gigabytes: size of its noise state in gigabytes.
      loss: max loss under the schema; None if it was not computed.
      verdict: why it was taken or left, in one clause.
      mechanism: the mechanism; None if it was not made.
    """

    name: str
    buffers: int
    gigabytes: float
    loss: float | None
    verdict: str
    mechanism: Mechanism | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class _Option:
    """A mechanism that could be made.

    Attributes:
      name: name and size of the mechanism.
      buffers: size of its noise state, in copies of the model.
      make: makes it.
      obstacle: why it is not made; empty if it can be.
    """

    name: str
    buffers: int
    make: Callable[[], Mechanism]
    obstacle: str = ''


def choose(
    participation: Participation,
    dimension: int,
    memory_limit: float,
    workload: np.ndarray | None = None,
) -> tuple[Mechanism, list[Candidate]]:
    """Chooses the mechanism with the least max loss whose noise state fits into memory.

    Args:
      participation: the schema.
      dimension: number of model coordinates.
      memory_limit: memory for the noise state in float32, in gigabytes.
      workload: A, see `mechanisms.workload`, whose errors count; None for the prefix sums.

    Returns:
      The mechanism, and all candidates, the chosen one first.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    made: list[tuple[float, _Option, Mechanism]] = []
    left: list[Candidate] = []

    def gigabytes(option: _Option) -> float:
        return option.buffers * dimension * _BYTES / 1e9

    for option in _options(participation, workload):
        obstacle = option.obstacle
        if gigabytes(option) > memory_limit:
            obstacle = f'its state is larger than {memory_limit:g} GB'
        if obstacle:
            verdict = f'left: {obstacle}'
            left.append(Candidate(option.name, option.buffers, gigabytes(option), None, verdict))
        else:
            mechanism = option.make()
            made.append((mechanism.max_loss(participation, workload), option, mechanism))
    made.sort(key=lambda entry: (entry[0], entry[1].buffers))
    least, _, best = made[0]
    ranked = [
        Candidate(
            option.name,
            option.buffers,
            gigabytes(option),
            loss,
            'taken: the least loss' if place == 0 else f'left: {loss / least - 1:.1%} more loss',
            mechanism,
        )
        for place, (loss, option, mechanism) in enumerate(made)
    ]
    return best, ranked + left


def _options(participation: Participation, workload: np.ndarray | None) -> Iterator[_Option]:
    rounds = participation.rounds
    for name, sizes in _CONSIDERED:
        entry = registry.ENTRIES[name]
        if entry.optimizer is None:
            make = functools.partial(entry.construct, rounds)
            yield _Option(name, make().num_buffers(), make)
            continue
        for given in sizes:
            size = entry.optimizer.default_size(participation) if given is None else given
            if given is None or entry.optimizer.size != 'bands' or size < rounds:
                yield _optimized(name, entry.optimizer, participation, size, workload)


def _optimized(
    name: str,
    optimizer: registry.Optimizer,
    participation: Participation,
    size: int,
    workload: np.ndarray | None,
) -> _Option:
    limit = optimizer.quick_rounds
    is_slow = limit is not None and participation.rounds > limit
    return _Option(
        f'{name} with {size} {optimizer.size}',
        optimizer.num_buffers(size),
        functools.partial(optimizer.optimize, participation, size, workload=workload),
        f'takes minutes to optimise beyond {limit} rounds' if is_slow else '',
    )
