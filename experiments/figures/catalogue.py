"""All figures by name."""

from experiments.figures import (
    gboard,
)
from experiments.figures.drawn import Recipe

RECIPES = (
    Recipe(
        '000/fig4', 'rho of tree aggregation against report goal and separation', gboard.figure4
    ),
)
