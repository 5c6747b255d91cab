"""Recomputes a row of published numbers and compares the result."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dpfl import errors
from dpfl.published.tables import losses, releases, rows

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
    'full_honaker_tree': losses.full_honaker_tree,
    'optimized_banded': losses.banded,
    'optimized_blt': losses.blt,
    'blt_parameters': losses.blt_parameters,
}
# Additions to the note of a row, for some `Row.mechanism`.
_FINDINGS: dict[str, Callable[[rows.Row, dict[str, Any]], str]] = {
    'tree': releases.with_exact_rho,
    'launch': releases.which_rho,
    'gaussian_without_replacement': releases.with_half_the_noise,
    'blt_parameters': losses.at_published_parameters,
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
            published = losses.parameters(row)
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
