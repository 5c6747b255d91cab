"""The server's optimizer and its schedule: settings, workload, and a remark."""

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.errors import ArgumentError
from dpfl.simulation.training import PrivacyConfig, TrainConfig
from dpfl.simulation.training.round_config import ScheduleConfig, ServerConfig
from tests.simulation.training import small_config


@pytest.mark.parametrize(
    'settings, expected',
    [
        (dict(), [1, 1, 1, 1, 1, 1, 1, 1]),
        (dict(server_warmup_rounds=4), [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
        (dict(server_schedule='linear'), [1, 1, 1, 1, 1, 1, 0.55, 0.1]),
        (
            dict(server_schedule='linear', server_warmup_rounds=2),
            [0.5, 1, 1, 1, 1, 1, 0.55, 0.1],
        ),
        # Half way in the middle, and 0.45 * sqrt(1/2) above and below that in the quarters.
        (
            dict(server_schedule='cosine', server_warmup_rounds=2),
            [0.5, 1, 1, 0.55 + 0.45 * 0.5**0.5, 0.55, 0.55 - 0.45 * 0.5**0.5, 0.1],
        ),
        # No rate is 0, however few the rounds are.
        (dict(server_schedule='linear'), [0.1]),
        (dict(server_schedule='linear'), [1, 0.1]),
        (dict(server_schedule='cosine'), [1]),
        (dict(server_schedule='cosine'), [1, 0.1]),
    ],
)
def test_learning_rates_by_hand(settings, expected):
    found = ScheduleConfig(**settings).multipliers(len(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    rates = ServerConfig(server_learning_rate=3.0, **settings).rates(len(expected))
    np.testing.assert_allclose(rates, 3 * np.array(expected), rtol=1e-12)


@pytest.mark.parametrize(
    'settings, name',
    [
        (dict(server_warmup_rounds=9), 'server_warmup_rounds'),
        (dict(server_schedule='linear', server_warmup_rounds=7), 'server_warmup_rounds'),
        (dict(server_schedule='cosine', server_warmup_rounds=7), 'server_warmup_rounds'),
    ],
)
def test_schedules_that_do_not_fit_the_rounds_are_refused(settings, name):
    with pytest.raises(ArgumentError) as caught:
        ServerConfig(**settings).rates(8)
    assert caught.value.name == name


def test_workloads_are_those_of_the_optimizer():
    assert ServerConfig(server_momentum=0.0).workload(5) is None
    assert TrainConfig(privacy=PrivacyConfig(mechanism='auto')).workload(8) is None
    np.testing.assert_array_equal(
        ServerConfig(server_momentum=0.5).workload(5), mechanisms.workload.momentum(5, 0.5)
    )
    cooled = ServerConfig(server_momentum=0.5, server_schedule='linear', server_learning_rate=7.0)
    np.testing.assert_array_equal(
        cooled.workload(8),
        mechanisms.workload.learning_rate_schedule(cooled.multipliers(8), 0.5),
    )
    # What Adam does is not known beforehand: SGD with the same rates, without momentum.
    assert ServerConfig(server_optimizer='adam').workload(5) is None
    adam = ServerConfig(server_optimizer='adam', server_schedule='cosine')
    np.testing.assert_array_equal(
        adam.workload(8), mechanisms.workload.learning_rate_schedule(adam.multipliers(8))
    )


def test_a_report_says_what_is_assumed_of_the_optimizer():
    config = small_config.GAUSSIAN.with_values(
        {'server_optimizer': 'adam', 'server_learning_rate': 0.05, 'server_warmup_rounds': 1}
    )
    (remark,) = config.remarks(4)
    assert remark.startswith('The server uses Adam with a learning rate with 1 rounds of warm-up')
