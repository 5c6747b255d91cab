"""Error bars of a study end where its measures do."""

import math

import numpy as np
import pytest

from dpfl.studies import figure, statistics


@pytest.mark.parametrize(
    'measure, mean, half, below, above',
    [
        ('accuracy', 0.1, 0.5, 0.1, 0.5),
        ('accuracy_with_oov', 0.9, 0.5, 0.5, 0.1),
        ('loss', 1.0, 2.0, 1.0, 2.0),
        ('difference', 1.0, 2.0, 2.0, 2.0),
        ('accuracy', 0.1, None, 0.0, 0.0),
    ],
)
def test_bars_do_not_reach_beyond_what_is_possible(measure, mean, half, below, above):
    # Two seeds give an interval of t with one degree of freedom, 12.7 standard errors wide.
    bars = figure._bars(measure, [statistics.Interval(mean, half, 2)])
    np.testing.assert_allclose(bars, [[below], [above]], atol=1e-12)


def test_a_band_of_accuracies_is_between_0_and_1():
    assert figure._possible('accuracy_top3') == (0, 1)
    assert figure._possible('epsilon') == (0, math.inf)
