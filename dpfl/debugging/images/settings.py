"""What the study compares: subpopulations of clients and public images, in one state or two."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.debugging.images import learned, subpopulations
from dpfl.debugging.images.subpopulations import Subpopulation
from dpfl.simulation.training import GanConfig
from dpfl.simulation.training.sampling_config import required
from dpfl.tasks import federated_task
from dpfl.tasks.images import image_batches

BUG, FIXED, AS_IS = 'bug', 'fixed', 'as_is'
EVERYONE, PUBLIC, PUBLIC_AGAIN = 'everyone', 'public', 'public_again'
# Public images of one client of the generators for comparison.
_PUBLIC_EACH = 64
# Public images that generated ones are compared with, and those that stand for one client.
_REFERENCE, _OF_A_CLIENT = 600, 16


@dataclasses.dataclass(frozen=True)
class Training:
    """What one GAN is trained on.

    Attributes:
      state: 'bug', 'fixed' or 'as_is'.
      data: All clients, in this state.
      chosen: Clients or examples that take part.
    """

    state: str
    data: Any
    chosen: Subpopulation

    @property
    def name(self) -> str:
        """Name of the training and of its directory."""
        return f'{self.state}/{self.chosen.name}'

    def pixels(self, position: int, limit: int | None = None) -> np.ndarray:
        """The first `limit` images that take part, of the client at a position."""
        is_whole = self.chosen.masks is None
        pixels, _ = self.data.examples(
            int(self.chosen.clients[position]), limit if is_whole else None
        )
        return self.chosen.chosen(position, pixels)[:limit]

    def client_batches(
        self, position: int, batch_size: int, epochs: int = 1, max_batches: int | None = None
    ) -> list[collections.OrderedDict]:
        """Batches of the client at a position. The labels are 0 and not used."""

        def examples(position: int, limit: int | None) -> federated_task.Examples:
            pixels = self.pixels(position, limit)
            return image_batches.named(pixels, np.zeros(len(pixels), np.int32))

        return federated_task.client_batches(examples, position, batch_size, epochs, max_batches)


@dataclasses.dataclass(frozen=True)
class PublicImages:
    """Public images, those of held-out clients, dealt out to clients in their order.

    Attributes:
      pixels: The images, float32 [n, 28, 28].
      labels: Their classes, int32 [n].
    """

    pixels: np.ndarray
    labels: np.ndarray

    def examples(self, client: int, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The examples of a client, as `examples` of a task."""
        part = slice(client * _PUBLIC_EACH, (client + 1) * _PUBLIC_EACH)
        return self.pixels[part][:limit], self.labels[part][:limit]

    def sample(self) -> np.ndarray:
        """Some images of all, to compare generated ones with."""
        return self.pixels[:: len(self.pixels) // _REFERENCE + 1]

    def effects(self, infer: learned.Infer) -> Mapping[str, float]:
        """By fault, by how much it raises its trait; `infer` as for `traits.measure`."""
        return learned.effects(self.sample(), self.pixels[:_OF_A_CLIENT], infer)

    def halves(self) -> tuple[Subpopulation, Subpopulation]:
        """Every other client, and the others."""
        clients = np.arange(-(-len(self.labels) // _PUBLIC_EACH))
        return (
            Subpopulation(PUBLIC, clients[::2]),
            Subpopulation(PUBLIC_AGAIN, clients[1::2]),
        )


def select(
    selection: str, verdicts: subpopulations.Verdicts, limits: subpopulations.Thresholds
) -> tuple[Subpopulation, Subpopulation]:
    """The two subpopulations: where the primary model does well, and where it does badly.

    Args:
      selection: 'client' ([Augenstein20], appendix C.3) or 'example' (appendix C.4).
      verdicts: Which examples of the population the primary model gets right.
      limits: Thresholds for the selection by client.
    """
    if selection == 'client':
        return subpopulations.by_client(verdicts, limits)
    return subpopulations.by_example(verdicts)


def plan(training: Training, config: GanConfig) -> accounting.PrivacyPlan:
    """The privacy plan of a GAN: random cohorts of fixed size and independent noise.

    Source: [Augenstein20], algorithm 1.

    Raises:
      ArgumentError: If a value is out of range, or fewer clients were selected than a cohort has.
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
        sampling=accounting.WithoutReplacement(population=len(training.chosen)),
        adjacency=config.privacy.adjacency,
    )
