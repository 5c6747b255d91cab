"""All figures by name."""

from dpfl.published.figures import (
    extensions,
    gboard,
    private_gan,
    production,
    sampled_training,
    separations,
)
from dpfl.published.figures.drawn import Recipe

RECIPES = (
    Recipe(
        '000/fig4', 'rho of tree aggregation against report goal and separation', gboard.figure4
    ),
    Recipe('001/table1', 'epsilon against rounds', sampled_training.table1),
    Recipe('001/table2', 'epsilon against rounds at delta 1e-9', sampled_training.table2),
    Recipe('002/fig1', 'time to optimise BandMF and BLT', extensions.figure1, is_kept=False),
    Recipe('002/fig2', 'RMS loss against separation, 2 and 5 participations', separations.figure2),
    Recipe('002/fig3', 'RMS loss against separation, 3 participations', separations.figure3),
    Recipe('002/fig4', 'RMS loss against separation, n / b participations', separations.figure4),
    Recipe('002/fig5', 'RMS loss against rounds executed', extensions.figure5),
    Recipe('002/fig6', 'RMS loss of BLT, BandToep, BandFHU', separations.figure6),
    Recipe('002/fig8', 'rho against report goal and separation', production.figure8),
    Recipe('002/fig9', 'rho against rounds', production.figure9),
    Recipe('002/fig10', 'coefficients of the production BLTs', production.figure10),
    Recipe('002/fig12', 'max loss against separation', separations.figure12),
    Recipe('004/table3', 'epsilon against the size of a subpopulation', private_gan.table3),
    Recipe('004/table5', 'epsilon of the language models against rounds', private_gan.table5),
    Recipe('004/table13', 'epsilon, selection by example', private_gan.table13),
)
