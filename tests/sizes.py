"""Tests, and cases of a test, that only the larger sizes of the tests have (CONTRIBUTING.md)."""

import pytest


def standard(*case):
    """A case that takes seconds."""
    return pytest.param(*case, marks=pytest.mark.standard)


def exhaustive(*case):
    """A case that takes longer."""
    return pytest.param(*case, marks=pytest.mark.exhaustive)


def trains(test):
    """A test that runs rounds in TFF, which takes seconds."""
    return pytest.mark.tff(pytest.mark.standard(test))


def trains_long(test):
    """The same, but it takes longer."""
    return pytest.mark.tff(pytest.mark.exhaustive(test))
