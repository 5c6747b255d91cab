"""When a run says that it has made its model worse."""

import math

import pytest

from dpfl.simulation import metrics


@pytest.mark.parametrize(
    'losses, uniform, is_said',
    [
        ([], 4.6, False),
        ([4.6, 3.0], 4.6, False),
        ([4.6, 42.0], 4.6, True),
        ([4.6, 42.0], None, True),
        ([40.0, 42.0], 4.6, True),  # It had diverged before the first evaluation.
        ([40.0, 42.0], None, False),
        ([2.0, 4.0], 9.2, True),  # A public model was made worse.
        ([4.6, 5.0], 4.6, False),
        ([4.6, math.nan], None, True),
        ([4.6, math.inf], 4.6, True),
    ],
)
def test_a_loss_far_above_start_or_uniform_guess_is_said(losses, uniform, is_said):
    rows = [{'round': 1, 'epsilon': 1.0}, *({'round': t, 'loss': x} for t, x in enumerate(losses))]
    found = metrics.divergence(rows, uniform)
    assert (found is not None) == is_said
    if found is not None:
        assert f'ended at {losses[-1]:.3g}' in found
        assert ('uniform' in found) == (uniform is not None)
