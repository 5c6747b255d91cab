import itertools
import tracemalloc

import numpy as np
import pytest

from dpfl import ParticipationLog, mechanisms
from dpfl.mechanisms.sensitivities import pattern_sensitivity
from tests import mechanism_cases

_ROUNDS = 14


def _random_log(rng, rounds, clients=9, repeats=False):
    """Clients with few participations and with many; ids that are far apart."""
    ids = np.sort(rng.choice(10**12, clients, replace=False))
    rates = rng.uniform(0, 0.7, clients)
    cohorts = [ids[rng.random(clients) < rates] for _ in range(rounds)]
    cohorts[0] = np.union1d(cohorts[0], ids[:1])
    if repeats:
        cohorts = [np.concatenate([cohort, cohort[:2], cohort[:1]]) for cohort in cohorts]
    return ParticipationLog(cohorts)


def _patterns(log):
    """The rounds of every client, one entry for each listing: straight from the cohorts."""
    seen = {}
    for t in range(log.rounds):
        for client in log.cohort(t).tolist():
            seen.setdefault(client, []).append(t)
    return list(seen.values())


def _brute_force(mechanism, log):
    """The worst client's sum of |G_ij|, and the largest norm that signs of its updates reach."""
    matrix = mechanism.released_until(log.rounds)
    bound = reached = 0.0
    for pattern in _patterns(log):
        columns = matrix[:, pattern]
        bound = max(bound, np.abs(columns.T @ columns).sum())
        distinct, counts = np.unique(pattern, return_counts=True)
        signs = np.array(list(itertools.product((1, -1), repeat=distinct.size))) * counts
        reached = max(reached, ((signs @ matrix[:, distinct].T) ** 2).sum(axis=1).max())
    return bound, reached


# Signs, or columns that only some decoders use, make the bound larger than what is reached.
_MAY_BE_LARGER = ('negative', 'not_monotone', 'full_honaker', 'completed')


@pytest.mark.parametrize('name', mechanism_cases.FACTORIES)
def test_is_the_worst_client_of_the_log_and_not_above_the_schema(name):
    rng = np.random.default_rng(len(name))
    mechanism = mechanism_cases.FACTORIES[name](_ROUNDS)
    is_always_exact = name == 'blt_not_monotone' or not any(map(name.count, _MAY_BE_LARGER))
    below = 0
    for rounds, repeats in itertools.product((1, 2, 7, _ROUNDS), (False, True)):
        log = _random_log(rng, rounds, repeats=repeats)
        bound, reached = _brute_force(mechanism, log)
        found = pattern_sensitivity.of_log(mechanism, log)
        assert found.squared == pytest.approx(bound, rel=1e-11)
        assert found.is_exact or not is_always_exact
        if found.is_exact:
            assert found.squared == pytest.approx(reached, rel=1e-12)
        elif mechanism.shortens:
            assert reached < bound * (1 - 1e-9)
        if not repeats:
            # Also where the schema's value is but an upper bound: both bound the sum of |G_ij|.
            schema = mechanism.sensitivity_bound(log.observed()).squared
            assert found.squared <= schema * (1 + 1e-12)
            below += found.squared < schema * (1 - 1e-9)
    assert below or name in ('gaussian', 'blt_without_buffers')


def test_signs_are_found_in_every_set_of_linked_rounds():
    def log(*pattern):
        return ParticipationLog([[7] if t in pattern else [] for t in range(4)])

    tree = np.array([[1.0, 0, 0, 0], [-0.5, 1, 0, 0], [0.0, 0.5, 1, 0], [0.5, 0, 0, 1]])
    ring = tree.copy()
    ring[3, 2] = 0.9
    for matrix, pattern, is_exact in (
        # 0 - 1 - 2 and 0 - 3: a tree of links, whose signs can always be chosen.
        (tree, (0, 1, 2, 3), True),
        # A ring with one negative link: no signs make all pairs add up.
        (ring, (0, 1, 2, 3), False),
        (ring, (0, 1), True),
    ):
        mechanism = mechanisms.Banded.from_matrix(matrix, 4)
        assert pattern_sensitivity.of_log(mechanism, log(*pattern)).is_exact == is_exact


@pytest.mark.parametrize(
    'name',
    ['blt', 'restarted_blt', 'tree', 'banded_with_negative_entries']
    + ['banded_inverse_with_negative_entries', 'tree_by_prefix_sums', 'completed_tree'],
)
def test_blocks_and_ways_of_adding_do_not_matter(name, monkeypatch):
    rng = np.random.default_rng(2)
    mechanism = mechanism_cases.FACTORIES[name](40)
    gram = mechanism.released_until(40).T @ mechanism.released_until(40)
    # At rate 1 every client is in every round: k^2 beyond 32 n, multiplied as matrices.
    for rate in (0.1, 1.0):
        log = ParticipationLog([np.flatnonzero(rng.random(50) < rate) for _ in range(40)])
        expected = pattern_sensitivity.of_log(mechanism, log)
        worst = max(np.abs(gram[np.ix_(p, p)]).sum() for p in _patterns(log))
        assert expected.squared == pytest.approx(worst, rel=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr(pattern_sensitivity, '_GRAM_ENTRIES', 7 * 40)
            patch.setattr(pattern_sensitivity, '_ENTRIES', 1)
            patch.setattr(pattern_sensitivity, '_CLIENTS', 3)
            patch.setattr(pattern_sensitivity, '_LISTINGS', 25)
            patch.setattr(pattern_sensitivity, '_has_few_pairs', lambda *_, rate=rate: rate < 1)
            blocked = pattern_sensitivity.of_log(mechanism, log)
        assert blocked.squared == pytest.approx(expected.squared, rel=1e-12)
        assert blocked.is_exact == expected.is_exact


@pytest.mark.parametrize('cohorts', [[], [[]], [[], []]])
def test_empty_logs_and_longer_ones_are_refused(cohorts):
    with pytest.raises(ValueError, match='the participation log holds no client'):
        pattern_sensitivity.of_log(mechanisms.Identity(3), ParticipationLog(cohorts))
    with pytest.raises(ValueError, match='rounds=4: must be an integer >= 1 and <= 3'):
        pattern_sensitivity.of_log(mechanisms.Identity(3), ParticipationLog([[1]] * 4))


@pytest.mark.parametrize('name', ['blt', 'tree', 'banded_toeplitz'])
def test_no_gram_matrix_is_made_of_many_rounds_or_participations(name, monkeypatch):
    monkeypatch.delattr(pattern_sensitivity, '_gram_blocks')
    rng = np.random.default_rng(5)

    def peak(rounds, clients):
        log = ParticipationLog(rng.permutation(clients)[:10] for _ in range(rounds))
        log.by_client()
        tracemalloc.start()
        pattern_sensitivity.of_log(mechanism_cases.FACTORIES[name](rounds), log)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    # Twice as many participations; then four times as many rounds with as many participations.
    assert peak(1000, 100) < 2.5 * peak(500, 100)
    assert peak(2000, 2000) < 5 * peak(500, 500)
