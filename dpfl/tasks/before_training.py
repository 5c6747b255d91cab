"""What a run finds out about the clients privately before it trains, once and for all.

The guarantee of the run counts these releases. A run that continues takes what was found from its
directory: with fresh noise it would be another release.
"""

import dataclasses
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import _random
from dpfl.accounting import ReleaseBefore
from dpfl.tasks.private_quantiles import QuantileRelease
from dpfl.tasks.text.private_words import WordRelease

# Names of what was found, as in `FederatedTask.found`.
WORDS, THRESHOLDS = 'words', 'thresholds'


@dataclasses.dataclass(frozen=True)
class BeforeTraining:
    """The releases before training, and what they found if that is known already.

    Attributes:
      words: finds the vocabulary; None if it is given.
      quantiles: finds the thresholds of the selection; None if they are given.
      noise_seed: makes the noise repeatable, and the run a simulation; None for noise from the
        operating system.
      kept: what was found when the run began, JSON values by name; empty for a new run.
    """

    words: WordRelease | None = None
    quantiles: QuantileRelease | None = None
    noise_seed: int | None = None
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def releases(self) -> tuple[ReleaseBefore, ...]:
        """What the releases cost, for the plan of the run."""
        made = (self.words, self.quantiles)
        return tuple(each.before() for each in made if each is not None)

    def noise(self, name: str) -> np.random.Generator:
        """The noise of one of the releases.

        Args:
          name: `WORDS` or `THRESHOLDS`.
        """
        if self.noise_seed is not None:
            return _random.generator(f'noise.{name}', self.noise_seed)
        return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
