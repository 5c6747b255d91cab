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
    draws: int | None = None
    loss: float | None = None
    above_bound: float | None = None
    loss_if_closer: float | None = None
    verdict: str = ''
    mechanism: Mechanism | None = dataclasses.field(default=None, compare=False)


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
    made: list[tuple[float, Candidate, Mechanism]] = []
    left: list[Candidate] = []
    for candidate, make in _options(participation, workload):
        buffers, verdict = candidate.buffers, candidate.verdict
        if buffers * copy_gigabytes > memory_limit:
            # The noise of a banded inverse can be drawn again in each round, and takes no memory.
            if candidate.kind == 'banded_inverse' and noise == 'default':
                buffers = 0
            else:
                verdict = f'left: its state is larger than {memory_limit:g} GB'
        candidate = dataclasses.replace(
            candidate, buffers=buffers, gigabytes=buffers * copy_gigabytes, verdict=verdict
        )
        if verdict:
            left.append(candidate)
        else:
            mechanism = make()
            made.append((mechanism.max_loss(participation, workload), candidate, mechanism))
    made.sort(key=lambda entry: (entry[0], entry[1].buffers))
    least, _, best = made[0]
    bound = None
    if participation.rounds <= _MOST_BOUNDED_ROUNDS:
        bound = loss_lower_bound(participation, loss='max', workload=workload)
    closer = Participation(
        participation.rounds, max(1, participation.min_separation // 2), 2 * participation.count
    )
    ranked: list[Candidate] = []
    for loss, candidate, mechanism in made:
        kernel = mechanism.kernel()
        verdict = f'left: {loss / least - 1:.1%} more loss' if ranked else 'taken: the least loss'
        ranked.append(
            dataclasses.replace(
                candidate,
                draws=1 if kernel.is_regenerable and candidate.buffers else kernel.draws,
                loss=loss,
                above_bound=None if bound is None else loss / bound - 1,
                loss_if_closer=mechanism.max_loss(closer, workload),
                verdict=verdict,
                mechanism=mechanism,
            )
        )
    return best, ranked + left


def _options(
    participation: Participation, workload: np.ndarray | None
) -> Iterator[tuple[Candidate, Callable[[], Mechanism]]]:
    """Mechanisms that could be made, and how; those that take too long have a verdict already."""
    rounds = participation.rounds
    for name, sizes in _CONSIDERED:
        entry = registry.ENTRIES[name]
        optimizer = entry.optimizer
        if optimizer is None:
            construct = functools.partial(entry.construct, rounds)
            yield Candidate(name, name, None, construct().num_buffers(), 0.0), construct
            continue
        limit, verdict = optimizer.quick_rounds, ''
        if limit is not None and rounds > limit:
            verdict = f'left: takes minutes to optimise beyond {limit} rounds'
        for given in sizes:
            size = optimizer.default_size(participation) if given is None else given
            if given is None or optimizer.size != 'bands' or size < rounds:
                shown, buffers = f'{name} with {size} {optimizer.size}', optimizer.num_buffers(size)
                optimize = functools.partial(
                    optimizer.optimize, participation, size, loss='max', workload=workload
                )
                yield Candidate(shown, name, size, buffers, 0.0, verdict=verdict), optimize
