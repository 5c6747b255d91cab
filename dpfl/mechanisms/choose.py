"""Chooses a mechanism for a schema, a model size and a memory limit, and says why."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from dpfl import _validate
from dpfl.mechanisms import kernels, registry
from dpfl.mechanisms.base import Mechanism
from dpfl.mechanisms.optimize.lower_bound import loss_lower_bound
from dpfl.participation import Participation

# The mechanisms considered, and the sizes of those that are optimised; None for the default size.
_CONSIDERED: tuple[tuple[str, tuple[int | None, ...]], ...] = (
    ('gaussian', ()),
    ('honaker_tree', ()),
    ('blt', (2, 4)),
    ('scaled_blt', (2, 4)),
    ('block_blt', (2,)),
    ('free_banded', (None,)),
    ('banded_inverse', (8, 32)),
)
# Number of rounds beyond which a lower bound of the loss takes more than seconds.
_MOST_BOUNDED_ROUNDS = 1000


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mechanism that was considered.

    Attributes:
      name: name and size of the mechanism.
      kind: its name in the registry.
      size: its number of buffers or bands; None if it is not optimised.
      buffers: size of its noise state, in copies of the model; 0 if all is drawn again.
      gigabytes: size of its noise state in gigabytes.
      draws: rows of independent noise drawn in each round; None if the mechanism was not made.
      loss: max loss under the schema; None if it was not computed.
      above_bound: how far `loss` is above what any mechanism can reach, as a share of that; None
        if there is no loss, or the bound would take long.
      loss_if_closer: max loss if clients come back after half of the separation, twice as often:
        a measure of how much relies on the schema. None if `loss` is.
      verdict: why it was taken or left, in one clause.
      mechanism: the mechanism; None if it was not made.

    Example:
      >>> _, candidates = choose(Participation(12, 4), dimension=1000, memory_limit=1.0)
      >>> losses = [candidate.loss for candidate in candidates if candidate.loss is not None]
      >>> candidates[0].loss == min(losses)
      True
    """

    name: str
    kind: str
    size: int | None
    buffers: int
    gigabytes: float
    draws: int | None
    loss: float | None
    above_bound: float | None
    loss_if_closer: float | None
    verdict: str
    mechanism: Mechanism | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class _Option:
    """A mechanism that could be made.

    Attributes:
      name, kind, size: as in `Candidate`.
      buffers: size of its noise state, in copies of the model.
      regenerates: whether its state can be drawn again in each round, and then takes no memory.
      make: makes it.
      obstacle: why it is not made; empty if it can be.
    """

    name: str
    kind: str
    size: int | None
    buffers: int
    make: Callable[[], Mechanism]
    regenerates: bool = False
    obstacle: str = ''


def choose(
    participation: Participation,
    dimension: int,
    memory_limit: float,
    workload: np.ndarray | None = None,
    *,
    noise: str = 'default',
) -> tuple[Mechanism, list[Candidate]]:
    """Chooses the mechanism with the least max loss whose noise state fits into memory.

    A state that holds nothing but independent noise need not fit: that noise can be drawn again.

    Args:
      participation: the schema.
      dimension: number of model coordinates.
      memory_limit: memory for the noise state, in gigabytes.
      workload: A, see `mechanisms.workload`, whose errors count; None for the prefix sums.
      noise: 'default' or 'hardened', which takes twice the memory and is not drawn again.

    Returns:
      The mechanism, and all candidates, the chosen one first.

    Raises:
      ArgumentError: if an argument is out of its range.

    Example:
      >>> best, candidates = choose(Participation(12, 4), dimension=1000, memory_limit=1.0)
      >>> best == candidates[0].mechanism
      True
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    _validate.choice('noise', noise, tuple(kernels.BYTES))
    copy_gigabytes = dimension * kernels.BYTES[noise] / 1e9
    made: list[tuple[float, _Option, Mechanism]] = []
    left: list[Candidate] = []
    for option in _options(participation, workload):
        gigabytes = option.buffers * copy_gigabytes
        obstacle = option.obstacle
        if gigabytes > memory_limit:
            if option.regenerates and noise == 'default':
                option = dataclasses.replace(option, buffers=0)
            else:
                obstacle = f'its state is larger than {memory_limit:g} GB'
        if obstacle:
            verdict = f'left: {obstacle}'
            left.append(Candidate(*_named(option), gigabytes, None, None, None, None, verdict))
        else:
            mechanism = option.make()
            made.append((mechanism.max_loss(participation, workload), option, mechanism))
    made.sort(key=lambda entry: (entry[0], entry[1].buffers))
    least, _, best = made[0]
    bound, closer = _bound(participation, workload), _closer(participation)
    ranked = [
        Candidate(
            *_named(option),
            option.buffers * copy_gigabytes,
            _draws(mechanism.kernel(), option),
            loss,
            None if bound is None else loss / bound - 1,
            mechanism.max_loss(closer, workload),
            'taken: the least loss' if place == 0 else f'left: {loss / least - 1:.1%} more loss',
            mechanism,
        )
        for place, (loss, option, mechanism) in enumerate(made)
    ]
    return best, ranked + left


def _named(option: _Option) -> tuple[str, str, int | None, int]:
    return option.name, option.kind, option.size, option.buffers


def _bound(participation: Participation, workload: np.ndarray | None) -> float | None:
    """A lower bound of the max loss; None if it would take long."""
    if participation.rounds > _MOST_BOUNDED_ROUNDS:
        return None
    return loss_lower_bound(participation, loss='max', workload=workload)


def _closer(participation: Participation) -> Participation:
    """The schema of clients who come back after half of the separation, twice as often."""
    separation = max(1, participation.min_separation // 2)
    return Participation(participation.rounds, separation, 2 * participation.count)


def _draws(kernel: kernels.Kernel, option: _Option) -> int:
    """Rows of independent noise that are drawn in each round."""
    return 1 if kernel.is_regenerable and option.buffers else kernel.draws


def _options(participation: Participation, workload: np.ndarray | None) -> Iterator[_Option]:
    rounds = participation.rounds
    for name, sizes in _CONSIDERED:
        entry = registry.ENTRIES[name]
        if entry.optimizer is None:
            make = functools.partial(entry.construct, rounds)
            yield _Option(name, name, None, make().num_buffers(), make)
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
        name,
        size,
        optimizer.num_buffers(size),
        functools.partial(optimizer.optimize, participation, size, loss='max', workload=workload),
        name == 'banded_inverse',
        f'takes minutes to optimise beyond {limit} rounds' if is_slow else '',
    )
