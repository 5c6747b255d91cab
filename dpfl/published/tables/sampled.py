"""Epsilon by the moments accountant for training on random samples of the clients.

The numbers are those of [McMahan18] and [Augenstein20].
"""

import dp_accounting

from dpfl import accounting
from dpfl.published.tables import rows


def poisson(row: rows.Row) -> dict[str, float]:
    """Each client takes part in each round with probability q ([McMahan18])."""
    inputs = row.inputs
    noise = dp_accounting.GaussianDpEvent(inputs['z'])
    return {'eps': _epsilon(dp_accounting.PoissonSampledDpEvent(inputs['q'], noise), row)}


def without_replacement(row: rows.Row) -> dict[str, float]:
    """Each round draws a cohort of qN of the N clients ([Augenstein20]); noise of z clip norms."""
    inputs = row.inputs
    sample = _sample(row, inputs['z'])
    return {'eps': _epsilon(sample, row), 'delta': inputs['delta_times_N'] / inputs['N']}


def with_half_the_noise(row: rows.Row, computed: dict) -> str:
    """Sentence with epsilon for the full effect of replacing a client: two clip norms."""
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
