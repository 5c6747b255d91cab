"""Training on random samples of the clients: epsilon of the moments accountant (001, 004)."""

import dp_accounting

from dpfl import accounting
from experiments.tables import rows


def poisson(row: rows.Row) -> dict[str, float]:
    """Every client takes part in each round with probability q (document 001)."""
    inputs = row.inputs
    noise = dp_accounting.GaussianDpEvent(inputs['z'])
    return {'eps': _epsilon(dp_accounting.PoissonSampledDpEvent(inputs['q'], noise), row)}


def without_replacement(row: rows.Row) -> dict[str, float]:
    """A cohort of qN of the N clients in each round (document 004), z relative to the clip norm."""
    inputs = row.inputs
    sample = _sample(row, inputs['z'])
    return {'eps': _epsilon(sample, row), 'delta': inputs['delta_times_N'] / inputs['N']}


def with_half_the_noise(row: rows.Row, computed: dict) -> str:
    """Epsilon for what neighbours that replace a client can do to the sum."""
    del computed
    epsilon = _epsilon(_sample(row, row.inputs['z'] / 2), row)
    return (
        'Replacing a client moves the sum by up to twice the clip norm: with z / 2 epsilon would '
        f'be {epsilon:.4g}.'
    )


def _sample(row: rows.Row, z: float) -> dp_accounting.DpEvent:
    noise = dp_accounting.GaussianDpEvent(z)
    return dp_accounting.SampledWithoutReplacementDpEvent(row.inputs['N'], row.inputs['qN'], noise)


def _epsilon(one_round: dp_accounting.DpEvent, row: rows.Row) -> float:
    event = dp_accounting.SelfComposedDpEvent(one_round, row.inputs['rounds'])
    return accounting.epsilon_of_event(event, row.inputs['delta'], 'moments')
