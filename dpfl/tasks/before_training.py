"""Private releases about the clients that a run makes once, before it trains.

The guarantee of the run counts these releases. The run records each before it is made, and a run
that continues takes the results from its records: with fresh noise it would be another release.

Quantiles of the clients' values, found with a guarantee for every client.

Every client has one value, or none. A binary search goes through a public, ascending list of
candidates. In each step the clients with a value at or below the candidate in the middle are
counted, with Gaussian noise. docs/research/before_training.md has the guarantee.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from dpfl import _validate, errors
from dpfl.accounting import ReleaseBefore, mu_from_epsilon
from dpfl.errors import RunError
from dpfl.tasks.config import WORDS
from dpfl.tasks.text.private_words import WordRelease

NAME = 'the thresholds of the selection'
# Steps of a search, so the number of candidates is 2 to their power.
STEPS = 10
_COUNT = 2**STEPS
# Candidates by measure. Values beyond the ends count as the ends.
CANDIDATES: Mapping[str, np.ndarray] = {
    'accuracy': np.linspace(0.0, 1.0, _COUNT),
    'oov_rate': np.linspace(0.0, 1.0, _COUNT),
    'length': np.arange(_COUNT) / 8,
    'loss': np.arange(_COUNT) / 50,
    'sentences': np.round(np.geomspace(1, 1e6, _COUNT)),
}
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class QuantileRelease:
    """The noise of the searches for several quantiles.

    Attributes:
      shares: of which quantiles, by the text of the criterion; each strictly between 0 and 1.
      noise_multiplier: standard deviation of the noise of one count divided by how far one client
        moves it between zero-out neighbours.
    """

    shares: Mapping[str, float]
    noise_multiplier: float

    @classmethod
    def of_guarantee(
        cls,
        epsilon: float,
        delta: float,
        shares: Mapping[str, float],
        adjacency: str = 'zero_out',
    ) -> 'QuantileRelease':
        """The least noise with which all searches together are (`epsilon`, `delta`)-DP.

        Args:
          epsilon: above 0.
          delta: strictly between 0 and 1.
          shares: as in the class, at least one.
          adjacency: as in `PrivacyPlan`.

        Raises:
          ArgumentError: if an argument is out of its range.
        """
        if not shares:
            raise errors.ArgumentError('shares', errors.NOT_SHOWN, 'must not be empty')
        for share in shares.values():
            _validate.number('share', share, above=0, below=1)
        mu = mu_from_epsilon(epsilon, delta, 'analytic_gaussian')
        shift = 1.0 if adjacency == 'zero_out' else _replaced(shares)
        counts = STEPS * len(shares)
        return cls(shares, shift * math.sqrt(counts) / mu * (1 + _ROUNDING))

    def before(self) -> ReleaseBefore:
        """The cost of all searches together."""
        counts = STEPS * len(self.shares)
        noise = self.noise_multiplier / math.sqrt(counts) * (1 - _ROUNDING)
        return ReleaseBefore(NAME, noise, _replaced(self.shares))

    def find(
        self,
        values: Mapping[str, np.ndarray],
        candidates: Mapping[str, np.ndarray],
        noise: np.random.Generator,
    ) -> dict[str, float]:
        """The quantiles: of each the least candidate with a share of values at or below it.

        Args:
          values: of each quantile the values of the clients, float64 [clients]; not a number for a
            client without a value.
          candidates: of each quantile ascending numbers, 2**STEPS of them.
          noise: must be secret and not be used for anything else.
        """
        return {
            name: self._search(values[name], candidates[name], share, noise)
            for name, share in self.shares.items()
        }

    def _search(
        self, values: np.ndarray, candidates: np.ndarray, share: float, noise: np.random.Generator
    ) -> float:
        if candidates.shape != (_COUNT,) or (np.diff(candidates) < 0).any():
            raise errors.ArgumentError(
                'candidates', errors.NOT_SHOWN, f'must be {_COUNT} ascending numbers'
            )
        known = values[~np.isnan(values)]
        stddev = self.noise_multiplier * _norm(share)
        low, high = 0, _COUNT - 1
        for _ in range(STEPS):
            middle = (low + high) // 2
            # A client adds 1 - share at or below the candidate, -share above it.
            count = np.count_nonzero(known <= candidates[middle]) - share * known.size
            if count + stddev * noise.standard_normal() >= 0:
                high = middle
            else:
                low = middle + 1
        return float(candidates[high])


def _norm(share: float) -> float:
    """The most that one client adds to a count."""
    return max(share, 1 - share)


def _replaced(shares: Mapping[str, float]) -> float:
    """How far replacing a client moves a count, in units of a client's largest contribution.

    A client contributes -share, 0 or 1 - share, so any two of these are at most 1 apart.
    """
    return min(2.0, max(1 / _norm(share) for share in shares.values()) * (1 + _ROUNDING))


class Draw(Protocol):
    """Makes a draw and records it: `execution.Run.draw`."""

    def __call__(
        self,
        what: str,
        intent: Mapping[str, Any],
        data: Iterable[np.ndarray],
        find: Callable[[np.random.Generator], Any],
        noise_seed: int | None,
    ) -> Any: ...


@dataclasses.dataclass(frozen=True)
class BeforeTraining:
    """The releases before training, and how they are made.

    Attributes:
      words: finds the vocabulary; None if it is given.
      quantiles: finds the thresholds of the selection; None if they are given.
      noise_seed: makes the noise repeatable, and the run a simulation; None for noise from the
        keys of the run.
      settings: the settings on which each of them depends, by its name.
      draw: makes a draw; None where nothing may be released.
      kept: results of the draws of a finished run, by name.
    """

    words: WordRelease | None = None
    quantiles: QuantileRelease | None = None
    noise_seed: int | None = None
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    draw: Draw | None = None
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def releases(self) -> tuple[ReleaseBefore, ...]:
        """The costs of the releases, for the plan of the run."""
        made = (self.words, self.quantiles)
        return tuple(release.before() for release in made if release is not None)

    def find(
        self,
        what: str,
        data: Iterable[np.ndarray],
        find: Callable[[np.random.Generator], Any],
    ) -> Any:
        """The result of one of the releases.

        Args:
          what: `config.WORDS` or `selection_config.THRESHOLDS`.
          data: arrays from which it is made.
          find: makes it from a source of noise.

        Raises:
          RunError: where nothing may be released, and nothing was drawn.
        """
        if what in self.kept:
            return self.kept[what]
        if self.draw is None:
            raise RunError(f'{what} are drawn by a training run only, whose guarantee counts them')
        release = self.words if what == WORDS else self.quantiles
        assert release is not None
        intent = {**self.settings.get(what, {}), 'release': release.before().to_dict()}
        return self.draw(what, intent, data, find, self.noise_seed)
