"""What a run finds out about the clients privately before it trains, once and for all.

The guarantee of the run counts these releases. The run records each before it is made, and a run
that continues takes what was found from its records: with fresh noise it would be another release.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from dpfl.accounting import ReleaseBefore
from dpfl.errors import RunError
from dpfl.tasks.private_quantiles import QuantileRelease
from dpfl.tasks.text.private_words import WordRelease

# Names of what was found, as in `FederatedTask.found`.
WORDS, THRESHOLDS = 'words', 'thresholds'


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
      kept: what a finished run has drawn, by name.
    """

    words: WordRelease | None = None
    quantiles: QuantileRelease | None = None
    noise_seed: int | None = None
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    draw: Draw | None = None
    kept: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def releases(self) -> tuple[ReleaseBefore, ...]:
        """What the releases cost, for the plan of the run."""
        made = (self.words, self.quantiles)
        return tuple(each.before() for each in made if each is not None)

    def find(
        self,
        what: str,
        data: Iterable[np.ndarray],
        find: Callable[[np.random.Generator], Any],
    ) -> Any:
        """What one of the releases gives.

        Args:
          what: `WORDS` or `THRESHOLDS`.
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
