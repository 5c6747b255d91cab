"""Which devices of a population check in with the server, and when."""

import math

import numpy as np

from dpfl.simulation import availability

_SECONDS = 3600  # In an hour.
# The time at which a busy device becomes free: never.
BUSY = np.iinfo(np.int32).max
# If less than this share of the candidates is ready, the ready ones are listed instead of guessed.
_FEW = 0.08
# Hours for which the rate of guesses is held constant.
_STEP = 0.5
# Limit on the guesses drawn at a time.
_MOST = 2**18
# Guesses needed to estimate the share of right ones.
_ENOUGH = 50


class CheckIns:
    """The stream of devices that check in: eligible, with an expired timer, not busy.

    Each device checks in at random times (a Poisson process), and a check-in counts if the device
    can take part at that time. So check-ins are guessed by drawing from all windows that may be
    open, and the guesses whose device cannot take part are rejected. The work is proportional to
    the cohort, not to the population. If nearly all guesses would be rejected, the ready devices
    are listed first, and guesses are drawn from the list.

    Args:
      windows: when devices are eligible.
      population: number of devices.
      pause_hours: average time from one check-in of a device to the next.
      generator: source of randomness.
    """

    def __init__(
        self,
        windows: availability.Windows,
        population: int,
        pause_hours: float,
        generator: np.random.Generator,
    ):
        self._windows = windows
        self._pause = pause_hours
        self._generator = generator
        # The time from which each device can take part again, in seconds.
        self._free_at = np.zeros(population, np.int32)
        # Estimated share of right guesses: among all windows, and within the list.
        self._share = 1.0
        self._listed_share = 0.5
        self._listed, self._listed_until = np.zeros(0, np.int64), 0.0

    def occupy(self, devices: np.ndarray) -> None:
        """Marks devices as busy: they do not check in until `free` is called."""
        self._free_at[devices] = BUSY

    def free(self, devices: np.ndarray, hours: np.ndarray | float) -> None:
        """Lets devices check in again from the given times on, rounded up to seconds.

        The clock ends after 68 years. A device with a later time never checks in again.
        """
        self._free_at[devices] = np.minimum(np.ceil(np.multiply(hours, _SECONDS)), BUSY)

    def upcoming(self, most: int, now: float) -> tuple[np.ndarray, np.ndarray, float]:
        """The next devices that check in: at most `most`, within at most half an hour from now.

        Returns:
          The devices, int64 [m]; the times of their check-ins in hours, increasing, float64 [m];
          and the time up to which the list is complete.
        """
        end = _next_multiple(now, _STEP)
        low, high = self._windows.reach(now, end)
        listed = self._ready(now) if self._share < _FEW else None
        candidates = high - low if listed is None else listed.size
        if not candidates:
            return np.zeros(0, np.int64), np.zeros(0), end
        rate = candidates / self._pause
        share = self._share if listed is None else self._listed_share
        guesses = int(min(1.1 * most / share, 1.1 * rate * (end - now), _MOST)) + _ENOUGH
        times = now + np.cumsum(self._generator.exponential(1 / rate, guesses))
        until = min(float(times[-1]), end)
        times = times[times <= until]
        picks = self._generator.integers(candidates, size=guesses)[: times.size]
        devices, able = self._able(low + picks if listed is None else listed[picks], times)
        if times.size >= _ENOUGH and listed is not None:
            self._listed_share = max(able.size / times.size, 0.01)
        elif times.size >= _ENOUGH:
            self._share = max(able.size / times.size, 0.01)
        if devices.size >= most:
            devices, able = devices[:most], able[:most]
            until = float(able[-1])
        return devices, able, until

    def _able(self, numbers: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Devices whose window is open at the given time and that are free then, each once.

        Args:
          numbers: numbers of windows, int64 [m].
          times: a time for each window, in hours, increasing, float64 [m].

        Returns:
          Devices int64 [d], and their first such times in hours, float64 [d].
        """
        devices = numbers % self._free_at.size
        free = self._free_at[devices] <= times * _SECONDS
        numbers, devices, times = numbers[free], devices[free], times[free]
        exist, opens, closes = self._windows.hours(numbers)
        devices, times = devices[exist], times[exist]
        able = np.flatnonzero((opens <= times) & (times < closes))
        first = able[np.sort(np.unique(devices[able], return_index=True)[1])]
        return devices[first], times[first]

    def _ready(self, now: float) -> np.ndarray:
        """Numbers of windows that are or become open soon, and whose devices are free by then.

        The list is reused for up to two hours. A device that is released in between without having
        taken part enters the next list.
        """
        if now >= self._listed_until:
            end = _next_multiple(now, availability.LONGEST_REACH)
            low, high = self._windows.reach(now, end)
            numbers = low + np.flatnonzero(self._free_from(low, high) <= end * _SECONDS)
            exist, opens, closes = self._windows.hours(numbers)
            self._listed = numbers[exist][(opens <= end) & (closes > now)]
            self._share = self._listed.size / (high - low)
            self._listed_until = end
        return self._listed

    def _free_from(self, low: int, high: int) -> np.ndarray:
        """Times from which the devices of the windows [low, high) can take part, in seconds."""
        size = self._free_at.size
        first, count = low % size, high - low
        rest = count - (size - first)
        parts = [self._free_at[first : first + count]]
        while rest > 0:
            parts.append(self._free_at[:rest])
            rest -= size
        return np.concatenate(parts)


def _next_multiple(hours: float, step: float) -> float:
    """The first multiple of `step` after a time."""
    return (math.floor(hours / step) + 1) * step
