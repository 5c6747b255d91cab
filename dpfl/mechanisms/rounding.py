"""Rounding up: what sums, roots and quotients of float64 need so as not to be below the truth."""

import fractions
import math

_UNIT = 2.0**-53
# Entries of a strategy matrix whose squares, and sums of them, keep all their digits.
SMALLEST, LARGEST = 1e-100, 1e100


def sum_up(value: float, terms: int) -> float:
    """A sum or product of sums that is not below the truth, for one that was computed.

    Args:
      value: computed from numbers >= 0, in any order.
      terms: additions, multiplications and roots behind it, one after the other, at most: each
        takes away at most 2^-53 of what it should give (Higham 2002, lemma 3.1).
    """
    return value * (1 + 2 * (terms + 2) * _UNIT)


def root_up(value: float) -> float:
    """Square root, the next float up where it is not one."""
    root = math.sqrt(value)
    if math.isinf(root) or fractions.Fraction(root) ** 2 >= fractions.Fraction(value):
        return root
    return math.nextafter(root, math.inf)


def quotient_up(value: float, divisor: float) -> float:
    """`value / divisor`, the next float up where it is not one; infinity for a divisor of 0."""
    if not divisor:
        return math.inf
    quotient = value / divisor
    if math.isinf(quotient) or (
        fractions.Fraction(quotient) * fractions.Fraction(divisor) >= fractions.Fraction(value)
    ):
        return quotient
    return math.nextafter(quotient, math.inf)
