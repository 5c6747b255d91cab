"""Recomputes a row of published numbers and compares the result.

Rho and epsilon of production runs, of single Gaussian releases and of training on random samples,
losses of mechanisms, and parameters of BLTs. The numbers are those of [Xu23], [McMahan24] and
[Xu23-accounting]; for random samples those of [McMahan18] and [Augenstein20].
"""

import functools
from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np

from dpfl import Participation, accounting, mechanisms, strategies
from dpfl.published.tables import rows


def tree(row: rows.Row) -> dict[str, float]:
    """Tree aggregation that releases all nodes ([Xu23], [McMahan24], [Xu23-accounting])."""
    mechanism = mechanisms.BinaryTree(row.inputs['rounds'])
    plan = _plan(row, mechanism, row.inputs['noise_multiplier'])
    return _release(row, plan.rho)


def production_blt(row: rows.Row) -> dict[str, float]:
    """A production BLT of [McMahan24], appendix A, over the rounds that were run."""
    mechanism = strategies.load(f'blt_b{row.inputs["blt_appA"]}')
    mechanism = mechanism.with_rounds(row.inputs['rounds'])
    return _release(row, _plan(row, mechanism, row.inputs['sigma_abs']).rho)


def production_banded(row: rows.Row) -> dict[str, float]:
    """A production run with BandMF ([McMahan24], table 4)."""
    return _release(row, _banded_rho(row.inputs))


def tree_and_banded(row: rows.Row) -> dict[str, float]:
    """The same production run with both mechanisms ([McMahan24], section 2.3)."""
    by_tree = _plan(
        row, mechanisms.BinaryTree(row.inputs['rounds']), row.inputs['noise_multiplier']
    )
    assert by_tree.rho is not None
    return {'zcdp_treeagg': by_tree.rho, 'zcdp_bandmf': _banded_rho(row.inputs)}


def gaussian(row: rows.Row) -> dict[str, float]:
    """One Gaussian release, given by rho or by its noise multiplier alpha."""
    inputs = row.inputs
    return _release(row, inputs['rho'] if 'rho' in inputs else 1 / (2 * inputs['alpha'] ** 2))


def largest_separations(row: rows.Row) -> dict[str, float]:
    """Largest separation of a population: its size over the report goal ([Xu23], section 2.2)."""
    report_goal = row.inputs['report_goal']
    return {
        name: float(population // report_goal)
        for name, population in row.inputs['populations'].items()
    }


def _run_schema(inputs: dict) -> Participation:
    rounds = inputs['rounds'] if 'rounds' in inputs else inputs['n']
    return Participation.from_rounds_between(rounds, inputs['MinS'], inputs['MaxP'])


def _plan(
    row: rows.Row, mechanism: mechanisms.Mechanism, noise_multiplier: float
) -> accounting.PrivacyPlan:
    # Neither the clip norm nor the cohort size is part of the guarantee.
    return accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=_run_schema(row.inputs),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        clients_per_round=1,
    )


def _banded_rho(inputs: dict) -> float:
    """Rho of BandMF. The columns of the published matrices have equal norms, but not norm 1."""
    schema = _run_schema(inputs)
    if schema.min_separation >= inputs['bands']:
        # No two columns of a pattern overlap, so their norms determine the sensitivity.
        squared = float(schema.count)
    else:
        squared = _banded_strategy(inputs['n'], inputs['bands']).sensitivity_bound(schema).squared
    return inputs['column_norm_squared'] * squared / (2 * inputs['sigma_abs'] ** 2)


@functools.cache
def _banded_strategy(rounds: int, bands: int) -> mechanisms.Banded:
    return mechanisms.optimize_banded(Participation(rounds, bands), bands)


# Many runs have the same rho.
_epsilon = functools.cache(accounting.epsilon_from_rho)


def _release(row: rows.Row, rho: float | None) -> dict[str, float]:
    """Rho and epsilon, as far as they are published in the row."""
    assert rho is not None  # All these plans have noise.
    computed = {'zcdp': rho}
    if 'eps' in row.published:
        method = row.method['eps']
        if method.endswith(' of the zcdp as printed') and 'zcdp' in row.published:
            rho = rows.printed(rho, row.decimals['zcdp'], 'nearest')
        computed['eps'] = _epsilon(rho, row.inputs['delta'], method.partition(' ')[0])
    return {name: computed[name] for name in row.published}


# Training on random samples of the clients, by the moments accountant.


def poisson(row: rows.Row) -> dict[str, float]:
    """Each client takes part in each round with probability q ([McMahan18])."""
    inputs = row.inputs
    noise = dp_accounting.GaussianDpEvent(inputs['z'])
    return {
        'eps': _epsilon_of_training(dp_accounting.PoissonSampledDpEvent(inputs['q'], noise), row)
    }


def without_replacement(row: rows.Row) -> dict[str, float]:
    """Each round draws a cohort of qN of the N clients ([Augenstein20]); noise of z clip norms."""
    inputs = row.inputs
    noise = dp_accounting.GaussianDpEvent(inputs['z'])
    sample = dp_accounting.SampledWithoutReplacementDpEvent(inputs['N'], inputs['qN'], noise)
    return {
        'eps': _epsilon_of_training(sample, row),
        'delta': inputs['delta_times_N'] / inputs['N'],
    }


def _epsilon_of_training(one_round: dp_accounting.DpEvent, row: rows.Row) -> float:
    event = dp_accounting.SelfComposedDpEvent(one_round, row.inputs['rounds'])
    return accounting.epsilon_of_event(event, row.inputs['delta'], 'moments')


def full_honaker_tree(row: rows.Row) -> dict[str, float]:
    """Tree aggregation with the best decoder (table 3, TreeAgg-Full)."""
    return _losses(row, mechanisms.FullHonakerTree(row.inputs['n']))


def banded(row: rows.Row) -> dict[str, float]:
    """BandMF with `min_separation` bands (table 3)."""
    schema = _schema(row.inputs)
    return _losses(row, mechanisms.optimize_banded(schema, schema.min_separation))


def blt(row: rows.Row) -> dict[str, float]:
    """A BLT optimised for `made_for_k` participations and used with k (table 3)."""
    inputs = row.inputs
    made_for = (inputs['n'], inputs['b'], inputs['made_for_k'])
    return _losses(row, _best_blt(*made_for, inputs['buffers']))


def blt_parameters(row: rows.Row) -> dict[str, list[float]]:
    """Theta and omega of the BLT with the least MaxLoss (appendix A)."""
    inputs = row.inputs
    buffers = _published_blt(row).decay.size
    return _parameters(_best_blt(inputs['n'], inputs['b'], inputs['k'], buffers))


def parameters(row: rows.Row) -> dict[str, list[float]]:
    """Theta and omega as published."""
    return _parameters(_published_blt(row))


def _published_blt(row: rows.Row) -> mechanisms.Blt:
    mechanism = strategies.load(f'blt_b{row.inputs["b"]}')
    assert isinstance(mechanism, mechanisms.Blt)
    return mechanism


def _parameters(mechanism: mechanisms.Blt) -> dict[str, list[float]]:
    return {'decay': mechanism.decay.tolist(), 'scale': mechanism.scale.tolist()}


def _losses(row: rows.Row, mechanism: mechanisms.Mechanism) -> dict[str, float]:
    # The table prints the headings of these two columns the wrong way round.
    schema = _schema(row.inputs)
    return {'first_column': mechanism.max_loss(schema), 'second_column': mechanism.rms_loss(schema)}


def _schema(inputs: dict) -> Participation:
    return Participation(inputs['n'], inputs['b'], inputs['k'])


@functools.cache
def _best_blt(rounds: int, separation: int, participations: int, buffers: int) -> mechanisms.Blt:
    schema = Participation(rounds, separation, participations)
    return mechanisms.optimize_blt(schema, buffers, 'max')


# The calculation for each `Row.mechanism`.
_CALCULATIONS: dict[str, Callable[[rows.Row], dict[str, Any]]] = {
    'tree': tree,
    'blt': production_blt,
    'banded': production_banded,
    'tree_and_banded': tree_and_banded,
    'gaussian': gaussian,
    'launch': gaussian,
    'largest_separations': largest_separations,
    'poisson_sampled_gaussian': poisson,
    'gaussian_without_replacement': without_replacement,
    'full_honaker_tree': full_honaker_tree,
    'optimized_banded': banded,
    'optimized_blt': blt,
    'blt_parameters': blt_parameters,
}
# Parameters are printed with all digits. But the minimum of the loss is flat, and the published
# parameters minimise a loss with small penalties.
_PARAMETER_TOLERANCE = 5e-5


def compute(row: rows.Row) -> rows.Result:
    """Recomputes a row. The published numbers are only used for the comparison."""
    computed = _CALCULATIONS[row.mechanism](row)
    if row.mechanism != 'blt_parameters':
        assert isinstance(row.published, dict)  # Others than parameters are numbers.
        return rows.Result(row, row.published, computed, row.holds(computed))
    published = parameters(row)
    match = all(
        len(computed[name]) == len(wanted)
        and np.allclose(computed[name], wanted, rtol=0, atol=_PARAMETER_TOLERANCE)
        for name, wanted in published.items()
    )
    return rows.Result(row, published, computed, match if row.reproducible else None)
