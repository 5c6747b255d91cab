"""Which mechanism to use for a schema, a model size and a memory limit, and why."""

import dataclasses
from collections.abc import Callable

from dpfl import _validate
from dpfl.mechanisms import base, identity, tree
from dpfl.mechanisms.optimize.banded import optimize_banded
from dpfl.mechanisms.optimize.banded_inverse import optimize_banded_inverse
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.participation import Participation

_BYTES = 4  # float32 in a run
# Optimising a dense band takes minutes beyond this many rounds; BLTs come within a few percent.
_MOST_BANDED_ROUNDS = 3000


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A mechanism that was considered.

    Attributes:
      name: what it is, with its size.
      buffers: copies of the model that its noise state holds.
      gigabytes: of that state.
      loss: max loss under the schema, or None where it was not computed.
      verdict: why it was taken or left, one clause.
      mechanism: the mechanism, or None where it was not made.
    """

    name: str
    buffers: int
    gigabytes: float
    loss: float | None
    verdict: str
    mechanism: base.Mechanism | None = dataclasses.field(default=None, compare=False)


def choose(
    participation: Participation, dimension: int, memory_limit: float
) -> tuple[base.Mechanism, list[Candidate]]:
    """The mechanism with the least max loss whose noise state fits.

    Args:
      participation: the schema.
      dimension: number of model coordinates.
      memory_limit: gigabytes for the noise state, float32.

    Returns:
      The mechanism, and all candidates, the chosen one first.

    Raises:
      ValueError: if an argument is out of its range.
    """
    _validate.integer('dimension', dimension, minimum=1)
    _validate.number('memory_limit', memory_limit, minimum=0)
    made, left = [], []
    for name, buffers, make in _candidates(participation):
        gigabytes = buffers * dimension * _BYTES / 1e9
        if gigabytes > memory_limit:
            verdict = f'left: its state is larger than {memory_limit:g} GB'
            left.append(Candidate(name, buffers, gigabytes, None, verdict))
        elif name.startswith('banded ') and participation.rounds > _MOST_BANDED_ROUNDS:
            verdict = f'left: takes minutes to optimise beyond {_MOST_BANDED_ROUNDS} rounds'
            left.append(Candidate(name, buffers, gigabytes, None, verdict))
        else:
            mechanism = make()
            loss = mechanism.max_loss(participation)
            made.append(Candidate(name, buffers, gigabytes, loss, '', mechanism))
    made.sort(key=lambda candidate: (candidate.loss, candidate.buffers))
    best = made[0]
    ranked = [dataclasses.replace(best, verdict='taken: the least loss')] + [
        dataclasses.replace(other, verdict=f'left: {other.loss / best.loss - 1:.1%} more loss')
        for other in made[1:]
    ]
    return best.mechanism, ranked + left


def _candidates(
    participation: Participation,
) -> list[tuple[str, int, Callable[[], base.Mechanism]]]:
    """Name, buffers, and how to make each."""
    rounds = participation.rounds
    bands = min(participation.min_separation, rounds)
    levels = rounds.bit_length() - 1
    candidates = [
        ('gaussian', 0, lambda: identity.Identity(rounds)),
        ('honaker_tree', levels, lambda: tree.HonakerTree(rounds)),
        ('blt with 2 buffers', 2, lambda: optimize_blt(participation, 2)),
        ('blt with 4 buffers', 4, lambda: optimize_blt(participation, 4)),
        (f'banded with {bands} bands', bands - 1, lambda: optimize_banded(participation, bands)),
    ]
    for size in (8, 32):
        if size < rounds:
            candidates.append(
                (
                    f'banded_inverse with {size} bands',
                    size - 1,
                    lambda size=size: optimize_banded_inverse(participation, size),
                )
            )
    return candidates
