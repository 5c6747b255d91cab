"""Settings of a study of power. No TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PowerConfig(Settings):
    """The grid of cells, and the power that is asked for."""

    epsilons: tuple[float, ...] = setting(
        (8.0,),
        'Target epsilons of a generator, comma-separated. Each has clean cells of its own.',
        above=0,
    )
    seeds: tuple[int, ...] = setting(
        (1, 2, 3, 4, 5),
        'Seeds, comma-separated. A seed decides the synthetic text, what is damaged, cohorts and '
        'initial weights; all faults and shares of a seed share its clean generators.',
        minimum=0,
    )
    power: float = setting(
        0.8, 'Probability of being found that the smallest share must reach.', above=0, below=1
    )

    def check(self) -> None:
        """Checks that the lists have entries and no doubles."""
        for name in ('epsilons', 'seeds'):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                shown = ','.join(f'{each:g}' for each in values)
                raise ArgumentError(name, shown, 'must be different values, at least one')
