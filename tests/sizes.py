"""Cases of a test that only the larger sizes of the tests have (CONTRIBUTING.md)."""

import pytest


def standard(*case):
    """A case that takes seconds."""
    return pytest.param(*case, marks=pytest.mark.standard)


def exhaustive(*case):
    """A case that takes longer."""
    return pytest.param(*case, marks=pytest.mark.exhaustive)
