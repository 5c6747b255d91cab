"""Estimates from few samples in all tests of samplings."""

import pytest

from dpfl.accounting.sampling import monte_carlo


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch):
    monkeypatch.setattr(monte_carlo, 'MOST_SAMPLES', 20_000)
