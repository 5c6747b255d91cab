"""What the result of a run says about it."""

import pathlib

import numpy as np
import pytest

from dpfl.simulation.training.execution import TrainResult
from tests.accounting import plans


def _result(metrics):
    report = plans.report(plans.independent(40, clients_per_round=50))
    return TrainResult(pathlib.Path('run'), report, metrics, ())


@pytest.mark.parametrize('late, share', [(20.0, 0.6), (49.0, 0.02), (-3.0, 1.0), (60.0, 0.0)])
def test_the_share_of_clipped_updates_follows_from_the_last_noised_counts(late, share):
    counts = np.array([50.0] * 20 + [late - 5, late + 5] * 10)
    result = _result({'round': np.arange(40.0), 'clip_count': counts})
    assert result.share_clipped() == pytest.approx(share)
    assert result.summary()['share_clipped'] == result.share_clipped()


def test_nothing_is_said_of_clipped_updates_that_nobody_counts():
    result = _result({'round': np.arange(40.0)})
    assert result.share_clipped() is None
    assert 'share_clipped' not in result.summary()
