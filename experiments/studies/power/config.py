"""Settings of a study of power. No TensorFlow."""

import dataclasses
from collections.abc import Sequence

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridConfig(Settings):
    """The seeds of the cells, and the power that is asked for."""

    seeds: tuple[int, ...] = setting(
        (1, 2, 3, 4, 5),
        'Seeds, comma-separated. A seed decides synthetic data, what is damaged, cohorts and '
        'initial weights; all faults and shares of a seed share its clean generators.',
        minimum=0,
    )
    power: float = setting(
        0.8, 'Probability of being found that the smallest share must reach.', above=0, below=1
    )

    def check(self) -> None:
        """Checks that the seeds are different, and at least one."""
        different('seeds', self.seeds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextGridConfig(GridConfig):
    """The grid of the cells of text; faults and shares are those of debug_text."""

    epsilons: tuple[float, ...] = setting(
        (8.0,),
        'Target epsilons of a generator, comma-separated. Each has clean cells of its own.',
        above=0,
    )

    def check(self) -> None:
        """Checks that the lists have entries and no doubles."""
        super().check()
        different('epsilons', self.epsilons)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageGridConfig(GridConfig):
    """The grid of the cells of images; faults are those of --inject, one by one."""

    noise_multipliers: tuple[float, ...] = setting(
        (0.01,),
        'Noise multipliers of a GAN, comma-separated. Each has clean cells of its own.',
        minimum=0,
    )
    inject_shares: tuple[float, ...] = setting(
        (0.1, 0.3, 0.5, 1.0), 'Shares of the devices with a fault.', above=0, maximum=1
    )

    def check(self) -> None:
        """Checks that the lists have entries and no doubles."""
        super().check()
        different('noise_multipliers', self.noise_multipliers)
        different('inject_shares', self.inject_shares)


def different(name: str, values: Sequence[float]) -> None:
    """Raises ArgumentError unless there are values, and no two are equal."""
    if not values or len(set(values)) < len(values):
        shown = ','.join(f'{each:g}' for each in values)
        raise ArgumentError(name, shown, 'must be different values, at least one')
