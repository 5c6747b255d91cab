import decimal
import math

import numpy as np
import pytest

from dpfl.published.tables import rows

_MODES = {
    'nearest': decimal.ROUND_HALF_EVEN,
    'up': decimal.ROUND_CEILING,
    'down': decimal.ROUND_FLOOR,
}


@pytest.mark.parametrize('convention', _MODES)
@pytest.mark.parametrize('decimals', [-4, 0, 2, 11])
def test_prints_as_decimal_arithmetic_does(convention, decimals):
    rng = np.random.default_rng(decimals + 10)
    for value in rng.uniform(0.5, 3000, 50) * 10.0**-decimals:
        exact = decimal.Decimal(value).scaleb(decimals).quantize(1, _MODES[convention])
        wanted = float(exact.scaleb(-decimals))
        assert rows.printed(value, decimals, convention) == wanted
        assert rows.agrees(value, wanted, decimals, convention)
        for off in (wanted - 10.0**-decimals, wanted + 10.0**-decimals):
            assert not rows.agrees(value, off, decimals, convention)


def test_what_is_printed_already_stays():
    for convention in _MODES:
        for value, decimals in ((0.89, 2), (0.1 + 0.2, 1), (4.0, 0), (9.99e6, -4), (5.85e-9, 11)):
            printed = rows.printed(value, decimals, convention)
            assert math.isclose(printed, value, rel_tol=1e-12)
            assert rows.agrees(printed, printed, decimals, convention)


def test_at_most_is_one_sided_and_what_is_not_finite_agrees_with_nothing():
    assert rows.agrees(10.7514, 10.79, 2, 'at most')
    assert rows.agrees(10.79, 10.79, 2, 'at most')
    assert not rows.agrees(10.7901, 10.79, 2, 'at most')
    assert rows.agrees(9.64, 9.33, 2, 'not compared')
    for value in (math.nan, math.inf, -math.inf):
        for convention in (*_MODES, 'at most'):
            assert not rows.agrees(value, 1.0, 2, convention)
