"""The study of audits, tiny."""

import pytest

from benchmarks import audits


def test_a_row_has_what_was_found():
    done = []
    row, exceeded = audits.measured(audits.CASES['gaussian'](), 2, 256, lambda: done.append(1))
    exact, times, reachable, bound, normal, _ = row.split(' | ')
    assert (exact, times, exceeded, len(done)) == ('yes', '0 of 2', 0, 2)
    assert float(reachable) == pytest.approx(1.0)
    assert 0.2 < float(bound) < float(normal) < 1


@pytest.mark.slow
@pytest.mark.parametrize('name', audits.CASES)
def test_every_case_is_a_plan_with_a_claim(name):
    plan = audits.CASES[name]().plan
    assert 0.5 < plan.mu < 2.5
