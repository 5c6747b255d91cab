"""All figures by name."""

from experiments.figures import (
    gboard,
    sampled_training,
)
from experiments.figures.drawn import Recipe

RECIPES = (
    Recipe(
        '000/fig4', 'rho of tree aggregation against report goal and separation', gboard.figure4
    ),
    Recipe('001/table1', 'epsilon against rounds', sampled_training.table1),
    Recipe('001/table2', 'epsilon against rounds at delta 1e-9', sampled_training.table2),
)
