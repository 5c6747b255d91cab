"""What the study compares: with the bug and after the fix, two subpopulations each."""

import collections
import dataclasses
from typing import Any

import numpy as np

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training.sampling_config import required
from dpfl.tasks.images import image_batches, image_selection

BUG, FIXED = 'bug', 'fixed'
# Clients of the comparison with real images, and images of each.
_REAL_CLIENTS, _REAL_EACH = 150, 4


@dataclasses.dataclass(frozen=True)
class Training:
    """What one GAN is trained on.

    Attributes:
      state: 'bug' or 'fixed'.
      data: the clients, on whose devices the bug is, or is not.
      chosen: who takes part.
    """

    state: str
    data: Any
    chosen: image_selection.Subpopulation

    @property
    def name(self) -> str:
        """Also the name of its directory."""
        return f'{self.state}/{self.chosen.name}'

    def pixels(self, position: int, limit: int | None = None) -> np.ndarray:
        """The images of the client at a position that take part, the first ones."""
        is_whole = self.chosen.masks is None
        pixels, _ = self.data.examples(
            int(self.chosen.clients[position]), limit if is_whole else None
        )
        return self.chosen.chosen(position, pixels)[:limit]

    def client_batches(
        self, position: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """Batches of the client at a position; labels are not used, and 0."""
        limit = image_batches.examples_needed(batch_size, max_batches)
        pixels = self.pixels(position, limit)
        labels = np.zeros(len(pixels), np.int32)
        return image_batches.batches(pixels, labels, batch_size, epochs, max_batches)

    def real_pixels(self) -> np.ndarray:
        """Some of the images that it is trained on, of many clients: for a simulation only."""
        positions = np.linspace(0, len(self.chosen) - 1, min(_REAL_CLIENTS, len(self.chosen)))
        return np.concatenate(
            [self.pixels(position, _REAL_EACH) for position in positions.astype(int).tolist()]
        )


def select(
    selection: str, verdicts: image_selection.Verdicts, limits: image_selection.Thresholds
) -> tuple[image_selection.Subpopulation, image_selection.Subpopulation]:
    """The two subpopulations: on whom the primary model does well, and on whom it does not.

    Args:
      selection: 'client' (document 004, appendix C.3) or 'example' (appendix C.4).
      verdicts: of the population.
      limits: for the selection by client.
    """
    if selection == 'client':
        return image_selection.by_client(verdicts, limits)
    return image_selection.by_example(verdicts)


def plan(training: Training, config: GanConfig) -> accounting.PrivacyPlan:
    """The privacy plan of a GAN: cohorts of fixed size at random, independent noise (algorithm 1).

    Raises:
      ArgumentError: if a value is out of its range, or fewer clients were selected than a cohort
        has.
    """
    cohort = config.sampling.clients_per_round
    if len(training.chosen) < cohort:
        raise errors.ArgumentError(
            'clients_per_round',
            cohort,
            f'must be at most {len(training.chosen)}, the clients of {training.name}; otherwise '
            'nothing can be trained there',
        )
    rounds = required(config.sampling, 'rounds')
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(rounds),
        participation=Participation(rounds=rounds),
        clip_norm=config.privacy.clip_norm,
        noise_multiplier=required(config.privacy, 'noise_multiplier'),
        clients_per_round=cohort,
        sampling='without_replacement',
        population=len(training.chosen),
        adjacency=config.privacy.adjacency,
    )
