"""The server's optimizer and its schedule."""

import numpy as np
import pytest

from dpfl.simulation.training.round_config import ServerConfig


@pytest.mark.parametrize(
    'schedule, expected',
    [
        ('constant', [1, 1, 1, 1]),
        ('linear', [1, 1, 1, 1, 1, 1, 0.55, 0.1]),
        # No rate is 0, however few the rounds are.
        ('linear', [0.1]),
        ('linear', [1, 0.1]),
    ],
)
def test_learning_rates_by_hand(schedule, expected):
    config = ServerConfig(server_learning_rate=3.0, server_schedule=schedule)
    rates = config.rates(len(expected))
    np.testing.assert_allclose(rates, 3 * np.array(expected), rtol=1e-12)


def test_a_report_says_how_the_server_makes_its_steps():
    config = ServerConfig(server_momentum=0.5, server_nesterov=True, server_schedule='linear')
    assert config.describe(8).startswith(
        "The server uses SGD with Nesterov's momentum 0.5 and a learning rate with a linear "
        'cooldown over the last 2 rounds: each model is a linear function'
    )
    adam = ServerConfig(server_optimizer='adam')
    assert adam.describe(8).startswith(
        'The server uses Adam with a constant learning rate. It divides'
    )
