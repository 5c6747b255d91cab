"""exp(-x) with proven error bounds: in float64 for arrays, in integers for any number of bits."""

import fractions
import math

import numpy as np

# Bound of the relative error of `negative_exp`.
ERROR = 2.0**-36
# Largest argument of `negative_exp`.
LARGEST = 128.0

_HALVINGS = 10
_TERMS = 11


def negative_exp(x: np.ndarray) -> np.ndarray:
    """exp(-x) for float64 x within [0, LARGEST], with a relative error of at most `ERROR`.

    Only IEEE 754 additions and multiplications are used, so the bound does not depend on a math
    library. Proof: let y = x / 2^10 <= 1/8 (exact). The Taylor polynomial of degree 10 of exp(-y)
    is off by less than y^11 / 11! < 2^-58. Horner's rule adds at most 22 roundings of numbers of
    at most 1 + 1/8. So the relative error is less than 2^-47, for a value of at least 7/8. Squaring
    ten times multiplies it by 2^10 and adds less than 2^10 roundings: in all less than 2^-36.
    """
    y = np.asarray(x, np.float64) * -(2.0**-_HALVINGS)
    value = np.full_like(y, 1.0)
    for i in range(_TERMS - 1, 0, -1):
        value *= y * (1.0 / i)
        value += 1.0
    for _ in range(_HALVINGS):
        value *= value
    return value


def negative_exp_bounds(x: fractions.Fraction, bits: int) -> tuple[int, int]:
    """Integers `lower <= 2^bits exp(-x) <= upper` that differ by at most 2.

    It computes in integers only, in units of 2^-(bits + guard). Let y = x / 2^r <= 1/2. The terms
    of the Taylor series of exp(-y) decrease and alternate in sign, so the truncation error is less
    than the first omitted term. Each term is off by less than 2. Each squaring doubles the error
    and adds at most 2.

    Args:
      x: exponent, at least 0.
      bits: precision, at least 1.
    """
    if x > bits + 2:  # exp(-x) < 2^-bits.
        return 0, 1
    halvings = max(0, math.ceil(x).bit_length() + 1)
    guard = halvings + 2 * bits.bit_length() + 44
    one = 1 << (bits + guard)
    # The floor makes y too small by less than one unit, so exp(-y) too large by less than one.
    y = (x.numerator << (bits + guard)) // (x.denominator << halvings)
    total, term, count = one, one, 0
    while term:
        count += 1
        term = (term * y >> (bits + guard)) // count
        total += -term if count % 2 else term
    # Each term has two floors of its own, and at most a quarter of the error of the term before.
    # The omitted terms are less than 2, and the rounding of y changes exp(-y) by less than 1.
    error = 2 * count + 3
    for _ in range(halvings):
        # (a + e)^2 = a^2 + 2 a e + e^2 with a <= 1 and e < 2^-40, and one more for the floor.
        total = total * total >> (bits + guard)
        error = 2 * error + 2
    return max((total - error) >> guard, 0), -(-(total + error) >> guard)
