import numpy as np

from dpfl.mechanisms import workload


def _models(updates, rates, beta):
    """SGD with momentum, step by step."""
    model = velocity = 0.0
    models = []
    for update, rate in zip(updates, rates, strict=True):
        velocity = beta * velocity + update
        model += rate * velocity
        models.append(model)
    return models


def test_workloads_are_sgd_with_momentum():
    rng = np.random.default_rng(0)
    updates, rates = rng.normal(size=8), rng.uniform(0.1, 1, size=8)
    schedule = workload.learning_rate_schedule(rates, beta=0.7)
    np.testing.assert_allclose(schedule @ updates, _models(updates, rates, 0.7))
    constant = workload.matrix(workload.momentum(8, 0.7), 8)
    np.testing.assert_allclose(constant @ updates, _models(updates, np.ones(8), 0.7))
    prefix = workload.matrix(None, 8)
    np.testing.assert_allclose(prefix @ updates, np.cumsum(updates))
