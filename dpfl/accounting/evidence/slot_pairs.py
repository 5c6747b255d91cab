"""Pairs of choices of slots: clients at any distance of ids, and earlier epochs of a client.

The number of pairs in one slot is binomial where the pairs form a graph without cycles
(`dpfl.accounting.evidence.bins`). For one distance of ranks these are the pairs (i, i + distance);
several distances are joined by the union bound.

With random allocation, given all earlier epochs, the number of clients whose slot is that of an
earlier epoch, of their own or of the client before, is binomial. So the product over the epochs of
exp(x count) / E exp(x count) is a nonnegative martingale with mean 1, for each x, and so is the
mean over several x and over how many epochs are between both ([Ville39]).
"""

import dataclasses
import math

import numpy as np
from scipy import fft

from dpfl.accounting.evidence import laws
from dpfl.accounting.evidence.refutation import LogTest, Statistic

SHARED = '{} of {} pairs share a slot; the planned sampling has {:.6g} on average.'
ANY_DISTANCE = Statistic(
    'any_distance',
    'slots of clients at any distance',
    '{} of {} pairs of clients {} apart share a slot; the planned sampling has {:.6g} on average.',
)
EARLIER_EPOCHS = Statistic(
    'earlier_epochs',
    'slots of earlier epochs',
    '{} of {} choices were the slot that the client, or the one before it, had in one of '
    'the {} epochs before; the planned sampling has {:.6g} on average.',
)

# Most multiplications for the pairs at all distances, or comparisons at a few.
_BUDGET = 3 * 10**8

# Most earlier epochs that an epoch is compared with, the least, and most comparisons between them.
_WINDOW, _LEAST_WINDOW, _COMPARISONS = 64, 4, 5 * 10**8

# Bets multiply the odds of an earlier slot by 1 + scale / (standard deviation of their number).
_SCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclasses.dataclass
class Pairs:
    """Pairs of choices that form a graph without cycles.

    Attributes:
      pairs: number of pairs that could be in the same slot of the log.
      same: number of them that were.
    """

    pairs: int = 0
    same: int = 0

    def add(self, parents: np.ndarray, children: np.ndarray, slots: int) -> np.ndarray:
        """Adds pairs; whether each of them is in the same slot, bool [pairs].

        Args:
          parents: slots of the choices nearer to the roots.
          children: slots of the others.
          slots: number of slots that the log holds of the children's pass.
        """
        same = (parents == children) & (parents >= 0)
        self.pairs += int(((parents >= 0) & (parents < slots)).sum())
        self.same += int(same.sum())
        return same

    def test(self, statistic: Statistic, options: int) -> LogTest:
        """Both sides of the law Bin(pairs, 1 / options); the statistic has the words `SHARED`."""
        p_value = laws.binomial_two_sided(self.same, self.pairs, 1 / options)
        return statistic.test(p_value, self.same, self.pairs, self.pairs / options)


def any_distance(slots: np.ndarray, options: int, groups: int) -> LogTest:
    """Clients in one slot at the distance where this is least likely.

    Args:
      slots: of the clients of one pass in the order of their ids, int32 [clients].
      options: number of slots of the pass that the log holds.
      groups: number of slots of a whole pass.
    """
    clients = slots.size
    if clients < 2:
        return ANY_DISTANCE.test(1.0, 0, 0, 1, 0.0)
    if options * clients * math.log2(2 * clients) <= _BUDGET:
        distances = np.arange(1, clients // 2 + 1)
        same = _same_at_all(slots, options)[distances]
    else:
        few = np.arange(1, 1 + max(1, _BUDGET // clients))
        distances = np.union1d(few, [options, groups])
        distances = distances[distances < clients]
        same = np.array([(slots[d:] == slots[:-d]).sum() for d in distances.tolist()])
    law = same, clients - distances, 1 / options
    p_values = 2 * np.minimum(laws.binomial_lower(*law), laws.binomial_upper(*law))
    first = int(np.argmin(p_values))
    pairs = clients - distances[first]
    return ANY_DISTANCE.test(
        laws.union(distances.size, float(p_values[first])),
        same[first],
        pairs,
        distances[first],
        pairs / options,
    )


def _same_at_all(slots: np.ndarray, options: int) -> np.ndarray:
    """Number of pairs in one slot at each distance, int64 [clients].

    It is the sum of the autocorrelations of the slots' indicators. The rounding errors of the
    transforms are far below 1/2.
    """
    size = fft.next_fast_len(2 * slots.size, real=True)
    power = np.zeros(size // 2 + 1)
    for slot in range(options):
        spectrum = fft.rfft((slots == slot).astype(float), size)
        power += spectrum.real**2 + spectrum.imag**2
    return np.rint(fft.irfft(power, size)[: slots.size]).astype(np.int64)


class EarlierEpochs:
    """Bets on slots of earlier epochs.

    Args:
      clients: number of clients.
      epochs: number of epochs of the log, of which the last may be cut off.
      groups: number of slots of an epoch.
    """

    def __init__(self, clients: int, epochs: int, groups: int):
        window = max(_LEAST_WINDOW, _COMPARISONS // max(1, clients * epochs))
        self._window = min(_WINDOW, epochs - 1, window)
        self._groups = groups
        self._earlier: list[np.ndarray] = []
        self._wealth = np.zeros((2 * len(_SCALES), 2, max(1, self._window)))
        self._logs = [0.0]
        self._same = self._pairs = 0

    def add(self, slots: np.ndarray, options: int) -> None:
        """Bets on an epoch.

        Args:
          slots: of all clients, int32 [clients]; -1 for those without one.
          options: number of slots of the epoch that the log holds.
        """
        for ago, earlier in enumerate(self._earlier):
            for shift in (0, 1):
                pairs = Pairs()
                pairs.add(earlier[: earlier.size - shift], slots[shift:], options)
                self._wealth[:, shift, ago] += _gains(pairs, 1 / self._groups)
                self._same, self._pairs = self._same + pairs.same, self._pairs + pairs.pairs
        self._logs.append(float(np.logaddexp.reduce(self._wealth, axis=None)))
        self._logs[-1] -= math.log(self._wealth.size)
        self._earlier = [slots, *self._earlier][: self._window]

    def test(self) -> LogTest:
        """The test of all bets so far."""
        return EARLIER_EPOCHS.test(
            laws.ville(np.array(self._logs)),
            self._same,
            self._pairs,
            self._window,
            self._pairs / self._groups,
        )


def _gains(pairs: Pairs, chance: float) -> np.ndarray:
    """Logarithms of the factors of all bets on Bin(pairs, chance), [scales and signs]."""
    deviation = math.sqrt(pairs.pairs * chance * (1 - chance))
    if not deviation:
        return np.zeros(2 * len(_SCALES))
    tilts = np.log1p(np.array(_SCALES) / deviation)
    tilts = np.concatenate([tilts, -tilts])
    return tilts * pairs.same - pairs.pairs * np.log1p(chance * np.expm1(tilts))
