"""Recomputes a row of published numbers and compares the result."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import Participation, errors, mechanisms, strategies
from dpfl.published.tables import releases, rows


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


def at_published_parameters(row: rows.Row, computed: dict) -> str:
    """Sentence with MaxLoss at the published parameters and at the computed ones."""
    schema = _schema(row.inputs)
    published = _published_blt(row)
    optimized = mechanisms.Blt(schema.rounds, computed['decay'], computed['scale'])
    return (
        f'MaxLoss is {published.with_rounds(schema.rounds).max_loss(schema):.6f} at the published '
        f'parameters, {optimized.max_loss(schema):.6f} at the computed ones.'
    )


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
    'tree': releases.tree,
    'blt': releases.blt,
    'banded': releases.banded,
    'tree_and_banded': releases.tree_and_banded,
    'gaussian': releases.gaussian,
    'launch': releases.gaussian,
    'largest_separations': releases.largest_separations,
    'poisson_sampled_gaussian': releases.poisson,
    'gaussian_without_replacement': releases.without_replacement,
    'full_honaker_tree': full_honaker_tree,
    'optimized_banded': banded,
    'optimized_blt': blt,
    'blt_parameters': blt_parameters,
}
# Additions to the note of a row, for some `Row.mechanism`.
_FINDINGS: dict[str, Callable[[rows.Row, dict[str, Any]], str]] = {
    'tree': releases.with_exact_rho,
    'launch': releases.which_rho,
    'gaussian_without_replacement': releases.with_half_the_noise,
    'blt_parameters': at_published_parameters,
}
# Parameters are printed with all digits. But the minimum of the loss is flat, and the published
# parameters minimise a loss with small penalties.
_PARAMETER_TOLERANCE = 5e-5


def compute(row: rows.Row) -> rows.Result:
    """Recomputes a row. The published numbers are only used for the comparison.

    Raises:
      ValueError: If the mechanism is unknown, or an input is missing or out of range.
    """
    if row.mechanism not in _CALCULATIONS:
        raise errors.ArgumentError(
            'mechanism', row.mechanism, f'must be one of {", ".join(_CALCULATIONS)}'
        )
    try:
        computed = _CALCULATIONS[row.mechanism](row)
        finding = _FINDINGS[row.mechanism](row, computed) if row.mechanism in _FINDINGS else ''
        published: Any = row.published
        if row.mechanism == 'blt_parameters':
            published = parameters(row)
        match = matches(row, computed, published) if row.reproducible else None
    except KeyError as error:
        raise ValueError(f'{error.args[0]}: must be given') from None
    except ZeroDivisionError:
        raise ValueError('an input is 0: must be above 0') from None
    note = ' '.join(filter(None, [row.note, finding]))
    return rows.Result(row, published, computed, match, note)


def matches(row: rows.Row, computed: dict, published: dict) -> bool:
    """Whether computed numbers agree with published ones in the digits that are printed."""
    if row.mechanism == 'blt_parameters':
        return all(_are_close(computed[name], wanted) for name, wanted in published.items())
    return all(
        rows.agrees(computed[name], wanted, row.decimals[name], row.convention(name))
        for name, wanted in published.items()
    )


def _are_close(computed: list[float], wanted: list[float]) -> bool:
    return len(computed) == len(wanted) and np.allclose(
        computed, wanted, rtol=0, atol=_PARAMETER_TOLERANCE
    )
