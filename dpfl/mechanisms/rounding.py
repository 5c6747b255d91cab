"""Rounding up: float64 sums, roots and quotients that are never below the true value."""

import fractions
import math

UNIT = 2.0**-53  # Largest relative error of one operation in float64.
# Limits for entries of a strategy matrix, so that sums of their squares keep all digits.
SMALLEST, LARGEST = 1e-100, 1e100


def sum_up(value: float, terms: int) -> float:
    """Raises a computed value so that it is not below the true one.

    Args:
      value: sum, or product of sums, computed from numbers >= 0 in any order.
      terms: largest number of additions, multiplications and roots in sequence. Each lowers its
        result by a share of at most `UNIT` ([Higham02], lemma 3.1).
    """
    return value * (1 + 2 * (terms + 2) * UNIT)


def root_up(value: float) -> float:
    """Square root, rounded up to a float64."""
    root = math.sqrt(value)
    if math.isinf(root) or fractions.Fraction(root) ** 2 >= fractions.Fraction(value):
        return root
    return math.nextafter(root, math.inf)


def quotient_up(value: float, divisor: float) -> float:
    """`value / divisor`, rounded up to a float64; infinity for a divisor of 0."""
    if not divisor:
        return math.inf
    quotient = value / divisor
    if math.isinf(quotient) or (
        fractions.Fraction(quotient) * fractions.Fraction(divisor) >= fractions.Fraction(value)
    ):
        return quotient
    return math.nextafter(quotient, math.inf)


def round_down(value: float, digits: int = 4) -> str:
    """`value` >= 0 with that many significant digits, rounded down: for lower bounds."""
    if value < 1e-300:
        return '0'
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    rounded = math.floor(value / unit * (1 + 1e-12)) * unit
    return f'{rounded:.{digits}g}'


def round_up(value: float | None, digits: int = 4) -> str:
    """`value` with that many significant digits, rounded up so that it never understates.

    Example:
      >>> round_up(0.12341)
      '0.1235'
    """
    if value is None:
        return 'none'
    if value in (0, math.inf):
        return f'{value:g}'
    value = max(value, 1e-300)  # Below, the unit itself would be 0.
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    rounded = math.ceil(value / unit * (1 - 1e-12)) * unit
    return f'{rounded:.{digits}g}'


def shown_delta(delta: float) -> str:
    """`delta` with six digits, rounded up if it has more: a smaller one would promise more."""
    text = f'{delta:g}'
    return text if float(text) >= delta else round_up(delta, 6)
