"""The runs that the tests of attacks share."""

import pytest

from tests.studies import attacked_runs


@pytest.fixture(scope='session')
def overfit():
    """As `attacked_runs.overfit`."""
    return attacked_runs.overfit()


@pytest.fixture(scope='session')
def private():
    """As `attacked_runs.private`."""
    return attacked_runs.private()
