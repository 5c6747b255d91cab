"""Logs that break a plan's sampling are refuted, honest ones are not."""

import numpy as np
import pytest

from dpfl.accounting.evidence import refutation
from tests.accounting.evidence.dishonest_logs import CASES

_DISHONEST = [
    (case, name)
    for case, cases in CASES.items()
    for name in cases.dishonest
    if name not in cases.weak
]


@pytest.mark.parametrize('case, name', _DISHONEST)
def test_dishonest_logs_are_refuted(case, name):
    cases = CASES[case]
    for seed in range(2):
        log = cases.dishonest[name](np.random.default_rng(seed))
        assert refutation.refutations(cases.plan, log)


@pytest.mark.parametrize('case', CASES)
def test_honest_logs_are_not_refuted(case):
    for seed in range(20):
        log = CASES[case].honest(seed)
        assert refutation.refutations(CASES[case].plan, log) == ()
