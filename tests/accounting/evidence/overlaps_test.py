"""Overlaps of cohorts, numbers of seen clients, and bets on them, against every choice."""

import collections
import itertools

import numpy as np
import pytest

from dpfl import ParticipationLog
from dpfl.accounting.evidence import earlier_cohorts, laws
from tests.sizes import exhaustive, standard


def _every_choice(clients, sizes):
    return itertools.product(*(itertools.combinations(range(clients), size) for size in sizes))


def _shared(log, lag):
    """Number of clients in rounds t and t + lag, summed over t."""
    pairs = ((log.cohort(t), log.cohort(t + lag)) for t in range(log.rounds - lag))
    return sum(np.intersect1d(*pair).size for pair in pairs)


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
    key = laws.pairs(logs[0], lag, lambda _: clients)
    values = [_shared(log, lag) for log in logs]
    assert laws.mean(key) == pytest.approx(np.mean(values))
    _check_tails(values, lambda value: laws.tails(value, key))


@pytest.mark.parametrize('clients, sizes', [(5, (2, 3, 2, 1)), (4, (4, 2, 0, 3)), (6, (1, 2, 2))])
def test_tails_of_seen_clients(clients, sizes):
    values = [len(set().union(*cohorts)) for cohorts in _every_choice(clients, sizes)]
    _check_tails(values, lambda value: laws.seen_tails(value, clients, np.array(sizes)))


def test_chernoff_bounds_are_above_the_exact_tails(monkeypatch):
    sizes, log = np.array([60, 70, 80, 90]), ParticipationLog([range(n) for n in (60, 70, 80, 90)])
    key = laws.pairs(log, 1, lambda _: 400)
    cases = [
        (lambda value: laws.tails(value, key), range(20, 80, 5)),
        (lambda value: laws.seen_tails(value, 400, sizes), range(190, 280, 5)),
    ]
    exact = [[tails(value) for value in values] for tails, values in cases]
    monkeypatch.setattr(laws, '_MOST_LAWS', 0)
    monkeypatch.setattr(laws, '_MOST_STEPS', 0)
    for (tails, values), expected in zip(cases, exact, strict=True):
        bounds = np.array([tails(value) for value in values])
        assert (bounds >= expected).all()
        assert bounds.min() < 1e-3


def test_shared_clients_by_their_definition():
    rng = np.random.default_rng(3)
    for groups in (1, 3, 6):  # That take turns.
        cohorts = (np.arange(t % groups, 60, groups) for t in range(15))
        log = ParticipationLog(group[rng.random(group.size) < 0.4] for group in cohorts)
        assert laws.shared(log, groups) == _shared(log, groups) > 0
    assert laws.shared(ParticipationLog([[]]), 1) == 0


def test_one_chance_for_each_pair_of_sizes():
    log = ParticipationLog([[1, 2], [3], [4, 5], [6]])
    counts = collections.Counter({(9, 2, 1): 2, (9, 1, 2): 1})
    assert laws.pairs(log, 1, lambda _: 9) == counts


# --- Bets on overlaps with all earlier cohorts.


def _separated_log(rng, clients, rounds, apart):
    """Random cohorts of the clients that took part in none of the last apart - 1 rounds."""
    last = np.full(clients, -apart)
    cohorts = []
    for t in range(rounds):
        cohort = np.flatnonzero((last <= t - apart) & (rng.random(clients) < 0.4))
        last[cohort] = t
        cohorts.append(cohort)
    return ParticipationLog(cohorts)


@pytest.mark.parametrize('first, step, chunk', [(1, 1, 1), (3, 3, 40), (3, 1, 2**20)])
def test_clients_shared_with_all_earlier_cohorts_by_their_definition(
    monkeypatch, first, step, chunk
):
    monkeypatch.setattr(earlier_cohorts, '_CHUNK', chunk)
    rng = np.random.default_rng(4)
    draws = earlier_cohorts.Draws(np.full(20, 30), first, step)
    in_turn = (np.arange(t % step, 30, step) for t in range(20))
    log = (
        ParticipationLog(group[rng.random(group.size) < 0.4] for group in in_turn)
        if first == step
        else _separated_log(rng, 30, 20, first)
    )
    shared = earlier_cohorts.shared_clients(log.by_client(), 20, draws, 4)
    for t, k in itertools.product(range(20), range(4)):
        earlier = t - first - k * step
        cohort = log.cohort(earlier) if earlier >= 0 else []
        assert shared[t, k] == np.intersect1d(log.cohort(t), cohort).size


@pytest.mark.parametrize(
    'apart, size, seed',
    [
        (1, 1, 0),
        (2, 3, 1),
        (3, 2, 2),
        *(
            (exhaustive if case[2] else standard)(*case)
            for case in itertools.product((1, 2, 3), (1, 2, 4), range(4))
        ),
    ],
)
def test_no_bet_wins_on_average(apart, size, seed):
    """The mean over all next cohorts is at most the wealth before, and not much below it."""
    clients, rounds = 14, 9
    past = _separated_log(np.random.default_rng(seed), clients, rounds - 1, apart)
    cohorts = [past.cohort(t) for t in range(rounds - 1)]
    recent = np.concatenate([np.zeros(0, int), *cohorts[rounds - apart :]])
    free = np.setdiff1d(np.arange(clients), recent)
    numbers = [clients - sum(map(len, cohorts[max(0, t - apart + 1) : t])) for t in range(rounds)]
    draws = earlier_cohorts.Draws(np.array(numbers), first=apart, waits=apart - 1)
    quotients = []
    for cohort in itertools.combinations(free, size):
        log = ParticipationLog([*cohorts, cohort])
        bets = earlier_cohorts._Bets.of(log, draws)
        wealth = np.exp([bets.of_lags(), bets.of_pairs(), earlier_cohorts.of_frequent(log, draws)])
        quotients.append(wealth[:, -1] / wealth[:, -2])
    mean = np.mean(quotients, axis=0)
    assert (mean <= 1 + 1e-12).all()
    assert (mean >= 0.4).all()
    assert (np.ptp(quotients, axis=0)[:2] > 0).all()


def test_long_logs_compare_fewer_cohorts(monkeypatch):
    monkeypatch.setattr(earlier_cohorts, '_BUDGET', 1000)
    log = ParticipationLog([np.arange(10)] * 30)
    bets = earlier_cohorts._Bets.of(log, earlier_cohorts.Draws(np.full(30, 100)))
    assert bets.shared.shape == (30, 4)


@pytest.mark.filterwarnings('error')
def test_a_round_without_free_clients_ends_no_bet():
    """All clients wait in round 2; what later rounds show still counts."""
    cohorts = [[0, 1, 2], [3, 4, 5], [], *([[0, 1, 2], [3, 4, 5], []] * 20)]
    free = [6, 3, 0] * 21
    draws = earlier_cohorts.Draws(np.array(free), first=3, waits=2)
    assert np.isfinite(earlier_cohorts.of_frequent(ParticipationLog(cohorts), draws)).all()
    assert earlier_cohorts.test(ParticipationLog(cohorts), draws).p_value <= 1
