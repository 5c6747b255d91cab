"""Overlaps and numbers of seen clients, against every choice of cohorts."""

import collections
import itertools

import numpy as np
import pytest

from dpfl import ParticipationLog
from dpfl.accounting.evidence import overlaps


def _every_choice(clients, sizes):
    return itertools.product(*(itertools.combinations(range(clients), size) for size in sizes))


def _check_tails(values, tails):
    """Both tails are those of equally likely values."""
    for value in range(min(values) - 1, max(values) + 2):
        lower, upper = tails(value)
        assert lower == pytest.approx(np.mean([each <= value for each in values]), abs=1e-8)
        assert upper == pytest.approx(np.mean([each >= value for each in values]), abs=1e-8)


@pytest.mark.parametrize('clients, sizes', [(5, (2, 3, 2, 1)), (4, (4, 2, 0, 3)), (3, (1, 0, 0))])
@pytest.mark.parametrize('lag', [1, 2])
def test_tails_of_overlaps(clients, sizes, lag):
    logs = [ParticipationLog(cohorts) for cohorts in _every_choice(clients, sizes)]
    key = overlaps.pairs(logs[0], lag, lambda _: clients)
    values = [overlaps.shared(log, lag) for log in logs]
    assert overlaps.mean(key) == pytest.approx(np.mean(values))
    _check_tails(values, lambda value: overlaps.tails(value, key))


@pytest.mark.parametrize('clients, sizes', [(5, (2, 3, 2, 1)), (4, (4, 2, 0, 3)), (6, (1, 2, 2))])
def test_tails_of_seen_clients(clients, sizes):
    values = [len(set().union(*cohorts)) for cohorts in _every_choice(clients, sizes)]
    _check_tails(values, lambda value: overlaps.seen_tails(value, clients, np.array(sizes)))


def test_chernoff_bounds_are_above_the_exact_tails(monkeypatch):
    sizes, log = np.array([60, 70, 80, 90]), ParticipationLog([range(n) for n in (60, 70, 80, 90)])
    key = overlaps.pairs(log, 1, lambda _: 400)
    cases = [
        (lambda value: overlaps.tails(value, key), range(20, 80, 5)),
        (lambda value: overlaps.seen_tails(value, 400, sizes), range(190, 280, 5)),
    ]
    exact = [[tails(value) for value in values] for tails, values in cases]
    monkeypatch.setattr(overlaps, '_MOST_LAWS', 0)
    monkeypatch.setattr(overlaps, '_MOST_STEPS', 0)
    for (tails, values), expected in zip(cases, exact, strict=True):
        bounds = np.array([tails(value) for value in values])
        assert (bounds >= expected).all()
        assert bounds.min() < 1e-3


def test_shared_clients_by_their_definition():
    rng = np.random.default_rng(3)
    log = ParticipationLog(np.flatnonzero(rng.random(20) < 0.4) for _ in range(15))
    for lag in range(1, 6):
        expected = sum(
            np.intersect1d(log.cohort(t), log.cohort(t + lag)).size for t in range(15 - lag)
        )
        assert overlaps.shared(log, lag) == expected
    cyclic = ParticipationLog(np.arange(t % 3, 30, 3)[rng.random(10) < 0.5] for t in range(15))
    assert overlaps.shared(cyclic, 6, step=3) == overlaps.shared(cyclic, 6)
    assert overlaps.shared(ParticipationLog([[]]), 1) == 0


def test_one_chance_for_each_pair_of_sizes():
    log = ParticipationLog([[1, 2], [3], [4, 5], [6]])
    counts = collections.Counter({(9, 2, 1): 2, (9, 1, 2): 1})
    assert overlaps.pairs(log, 1, lambda _: 9) == counts
