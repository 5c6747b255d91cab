"""All figures by name."""

from experiments.figures import (
    gboard,
    private_gan,
    sampled_training,
)
from experiments.figures.drawn import Recipe

RECIPES = (
    Recipe(
        '000/fig4', 'rho of tree aggregation against report goal and separation', gboard.figure4
    ),
    Recipe('001/table1', 'epsilon against rounds', sampled_training.table1),
    Recipe('001/table2', 'epsilon against rounds at delta 1e-9', sampled_training.table2),
    Recipe('004/table3', 'epsilon against the size of a subpopulation', private_gan.table3),
    Recipe('004/table5', 'epsilon of the language models against rounds', private_gan.table5),
    Recipe('004/table13', 'epsilon, selection by example', private_gan.table13),
)
