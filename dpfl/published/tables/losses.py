"""Losses and parameters of optimised mechanisms ([McMahan24])."""

import functools

from dpfl import Participation, mechanisms, strategies
from dpfl.published.tables import rows


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
