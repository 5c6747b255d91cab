"""When rounds took place, and how many of them a timer covers at least."""

import dataclasses

import numpy as np

from dpfl import _validate, errors

_MICROSECONDS = 3_600_000_000  # In an hour.
_MOST_HOURS = 1e6


@dataclasses.dataclass(frozen=True, eq=False)
class RoundTimes:
    """The times at which the rounds of a run were opened.

    Attributes:
      starts: in microseconds since any moment, not decreasing, int64 [rounds], at least 2 rounds.
      end: when the last round had ended, in the same unit; by default when it was opened.

    Raises:
      ArgumentError: if there are fewer than two rounds, a round starts before the previous one, or
        the end is before the last start.
    """

    starts: np.ndarray
    end: int | None = None

    def __post_init__(self) -> None:
        starts = np.array(self.starts)
        if starts.ndim != 1 or starts.dtype != np.int64 or starts.size < 2:
            raise errors.ArgumentError(
                'starts', errors.NOT_SHOWN, 'must be int64 microseconds of at least two rounds'
            )
        later = np.flatnonzero(starts[1:] < starts[:-1])
        if later.size:
            raise errors.ArgumentError(
                'starts', errors.NOT_SHOWN, f'must not decrease, as after round {later[0]}'
            )
        starts.setflags(write=False)
        object.__setattr__(self, 'starts', starts)
        end = int(starts[-1]) if self.end is None else self.end
        _validate.integer('end', end, minimum=int(starts[-1]))
        object.__setattr__(self, 'end', end)

    @classmethod
    def from_hours(cls, starts: np.ndarray, end: float | None = None) -> 'RoundTimes':
        """Times from hours, float64 [rounds]; rounded down to microseconds."""
        return cls(
            np.floor(np.asarray(starts) * _MICROSECONDS).astype(np.int64),
            None if end is None else int(np.ceil(end * _MICROSECONDS)),
        )

    @property
    def hours(self) -> float:
        """Hours from the first start to the end."""
        assert self.end is not None  # Set above.
        return (self.end - int(self.starts[0])) / _MICROSECONDS

    def fewest_rounds(self, hours: float) -> int:
        """The fewest rounds that were opened in any window of so many hours within the times.

        This is the least separation that a timer ensures if rounds do not overlap and a client's
        timer restarts when it reports. A report comes after its round i was opened, so the client
        is back after starts[i] + hours. Every round that was opened up to then, except the last of
        them, is over. So the fewest rounds are counted in windows (starts[i], starts[i] + hours]:
        any other window has at least as many, or can be moved back to a start.

        Every window is counted, by one pass over the starts with two positions (the second one
        found by binary search).

        Raises:
          ArgumentError: if the times span less than one window.
        """
        _validate.number('timer_hours', hours, above=0, maximum=_MOST_HOURS)
        assert self.end is not None  # Set above.
        length = int(np.floor(hours * _MICROSECONDS))
        until = self.starts + length
        whole = np.flatnonzero(until <= self.end)
        if not whole.size:
            raise errors.ArgumentError(
                'timer_hours', hours, f'must be <= {self.hours:.6g}, the hours that the times span'
            )
        opened = np.searchsorted(self.starts, until[whole], 'right')
        return int((opened - 1 - whole).min())

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
