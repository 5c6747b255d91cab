"""Times of rounds, and the separation and the participations that a timer then allows."""

import dataclasses
import math

import numpy as np

from dpfl import _validate, errors
from dpfl.participation.schema import Participation

_MICROSECONDS = 3_600_000_000  # In an hour.
_MOST_HOURS = 1e6
_MOST_TIME = 2**61  # Differences of two times, and their sums with a timer, then fit into int64.


@dataclasses.dataclass(frozen=True, eq=False)
class RoundTimes:
    """The times at which the rounds of a run were opened.

    Attributes:
      starts: in microseconds since any moment, not decreasing, int64 [rounds], at least 2 rounds.
      end: when the last round had ended, in the same unit; by default when it was opened. Its
        clients are counted by `most_participations` and `participation`: if its end is not after
        its start, it lasted no longer than the longest time between two starts.

    Raises:
      ArgumentError: if there are fewer than two rounds, a round starts before the previous one, the
        end is before the last start, or a time is more than 2^61 microseconds from 0.

    Example:
      >>> times = RoundTimes.from_hours(np.array([0.0, 3.0, 6.0, 9.0]))
      >>> times.participation(hours=7.0)  # A client comes back seven hours after a round.
      Participation(rounds=4, min_separation=2, max_participations=2)
    """

    starts: np.ndarray
    end: int | None = None

    def __post_init__(self) -> None:
        starts = np.array(self.starts)
        if starts.ndim != 1 or starts.dtype != np.int64 or starts.size < 2:
            raise errors.ArgumentError(
                'starts', errors.NOT_SHOWN, 'must be int64 microseconds of at least two rounds'
            )
        if max(-int(starts.min()), int(starts.max())) > _MOST_TIME:
            raise errors.ArgumentError(
                'starts', errors.NOT_SHOWN, f'must be within {_MOST_TIME} microseconds of 0'
            )
        later = np.flatnonzero(starts[1:] < starts[:-1])
        if later.size:
            raise errors.ArgumentError(
                'starts', errors.NOT_SHOWN, f'must not decrease, as after round {later[0]}'
            )
        starts.setflags(write=False)
        object.__setattr__(self, 'starts', starts)
        end = int(starts[-1]) if self.end is None else self.end
        _validate.integer('end', end, minimum=int(starts[-1]), maximum=_MOST_TIME)
        object.__setattr__(self, 'end', end)

    @classmethod
    def from_hours(cls, starts: np.ndarray, end: float | None = None) -> 'RoundTimes':
        """Times from hours, float64 [rounds]; rounded down to microseconds, the end up."""
        most = _MOST_TIME / _MICROSECONDS
        hours = np.clip(_validate.vector('starts', starts), -2 * most, 2 * most)
        return cls(
            np.floor(hours * _MICROSECONDS).astype(np.int64),
            None
            if end is None
            else math.ceil(_validate.number('end', end, maximum=most) * _MICROSECONDS),
        )

    @property
    def hours(self) -> float:
        """Hours from the first start to the end."""
        assert self.end is not None  # Set above.
        return (self.end - int(self.starts[0])) / _MICROSECONDS

    def fewest_rounds(self, hours: float) -> int:
        """The fewest rounds that were opened in any window of `hours` hours within the times.

        This is the least separation that a timer ensures if rounds do not overlap and a client's
        timer restarts when it reports. A report comes after its round i was opened, so the client
        is back after starts[i] + hours. Every round that was opened up to then, except the last of
        them, is over. So the fewest rounds are counted in windows (starts[i], starts[i] + hours]:
        any other window can be moved back to a start, or has no fewer rounds.

        Every window is counted, by one pass over the starts with two positions (the second one
        found by binary search).

        Raises:
          ArgumentError: if the times span less than one window.
        """
        back = self._back(hours)
        whole = np.flatnonzero(back <= self.end)
        if not whole.size:
            raise errors.ArgumentError(
                'timer_hours', hours, f'must be <= {self.hours:.6g}, the hours that the times span'
            )
        opened = np.searchsorted(self.starts, back[whole], 'right')
        return int((opened - 1 - whole).min())

    def most_participations(self, hours: float, rounds: int | None = None) -> int:
        """The most rounds in which a client with a timer of `hours` hours can take part.

        The assumptions are those of `fewest_rounds`: rounds do not overlap, and a client that takes
        part in round i is back after back = starts[i] + hours. It can then take part in round
        j > i if and only if round j is not over at `back`: round j + 1 is opened later, or the last
        round ends later. The first such round is
        next(i) = max(i + 1, the last round opened up to `back`), and all later ones are possible
        too. The result is the exact length of the longest chain of rounds of which each is possible
        after the one before. A client that reports late in its round is back even later, so no
        client has more.

        Proof that the chain i, next(i), next(next(i)), ... is the longest of all that begin in i or
        later: next does not decrease in i. The m-th round of this chain is not after the m-th round
        of any other one. This holds for m = 1, and if it holds for m, then next of the former is
        not after next of the latter, which is not after round m + 1 of the other chain. So the
        chain goes on for as long as any other one.

        The chains from all starts are followed at once, by doubling the length of the steps.

        Args:
          hours: of the timer.
          rounds: limits the chain to this many consecutive rounds, wherever they begin; by default
            all rounds.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        length = self.starts.size if rounds is None else rounds
        _validate.integer('rounds', length, minimum=1, maximum=self.starts.size)
        following = self._following(hours)
        first = np.arange(self.starts.size - length + 1)

        def is_reached(position: np.ndarray) -> bool:
            return bool((position < first + length).any())

        powers = []
        while is_reached(following[first]):
            powers.append(following)
            following = following[following]
        most, position = 1, first
        for exponent in reversed(range(len(powers))):
            moved = powers[exponent][position]
            if is_reached(moved):
                most, position = most + 2**exponent, moved
        return most

    def most_away(self, hours: float) -> int:
        """The most earlier rounds whose clients may be away with their timers when a round opens.

        A client of round i that reports last, when round i + 1 is opened, is away until
        starts[i + 1] + hours. If there are clients for one cohort more than this number, no round
        has to wait for clients.
        """
        over = self._back(hours)[1:]
        opened = np.arange(self.starts.size)
        return int((opened - np.searchsorted(over, self.starts, 'right')).max())

    def participation(self, hours: float) -> Participation:
        """The schema of a run with these rounds whose clients had a timer. Both limits are exact.

        The assumptions are those of `most_participations`.
        """
        following = self._following(hours)[:-1]
        first = np.flatnonzero(following < self.starts.size)
        separation = int((following[first] - first).min()) if first.size else self.starts.size
        return Participation(self.starts.size, separation, self.most_participations(hours))

    def _following(self, hours: float) -> np.ndarray:
        """The next possible round of a client of each round, int32 [rounds + 1].

        The number of rounds stands for no round, and is the last entry.
        """
        size = self.starts.size
        back = self._back(hours)
        following = np.full(size + 1, size, np.int32)
        opened = np.searchsorted(self.starts, back, 'right')
        is_back = np.flatnonzero(back < self._over)
        following[is_back] = np.maximum(opened[is_back] - 1, is_back + 1)
        return following

    def _back(self, hours: float) -> np.ndarray:
        """Moments after which clients of each round are back, int64 [rounds]."""
        _validate.number('timer_hours', hours, above=0, maximum=_MOST_HOURS)
        return self.starts + int(np.floor(hours * _MICROSECONDS))

    @property
    def _over(self) -> int:
        """The last moment at which the last round may have gone on."""
        assert self.end is not None  # Set above.
        last = int(self.starts[-1])
        return self.end if self.end > last else last + int(np.diff(self.starts).max())

    def describe(self) -> str:
        """Where the number of rounds in a window comes from, as a clause."""
        return (
            f'the starts of {self.starts.size} rounds over {self.hours:.6g} hours, every window of '
            'which is counted; the planned rounds are as frequent as those, and do not overlap'
        )

    def shortest_hours(self, offsets: np.ndarray, rounds: np.ndarray) -> float | None:
        """Least hours between the starts of two rounds of one client; None if there are no two.

        Args:
          offsets, rounds: as in `ClientRounds`.
        """
        gaps = np.diff(self.starts[rounds])
        is_same = np.ones(gaps.size, bool)
        is_same[offsets[1:-1] - 1] = False
        return float(gaps[is_same].min() / _MICROSECONDS) if is_same.any() else None
