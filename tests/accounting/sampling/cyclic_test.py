"""Tests of cyclic Poisson sampling: exact curves, groups, and what is refused."""

import dp_accounting
import numpy as np
import pytest

from dpfl import Participation, accounting, errors, mechanisms, planning
from dpfl.accounting.sampling import independent_cohorts
from tests import mechanism_cases, sampling_oracles
from tests.accounting import plans
from tests.sizes import standard

_DELTA = 1e-5


def _banded(rounds, bands, norms=None):
    """Entries of both signs and columns of different norms, or of the given ones."""
    generator = np.random.default_rng([rounds, bands])
    matrix = np.tril(generator.normal(size=(rounds, rounds))) + 2 * np.eye(rounds)
    matrix = np.abs(np.diag(np.diag(matrix))) + np.tril(matrix, -1)
    matrix = np.triu(matrix, 1 - bands)
    if norms is not None:
        matrix *= np.asarray(norms) / np.linalg.norm(matrix, axis=0)
    return mechanisms.Banded.from_matrix(matrix, bands)


def _plan(mechanism, groups=3, probability=0.2):
    return plans.sampled(
        'cyclic_poisson',
        mechanism=mechanism,
        participation=Participation(mechanism.rounds),
        noise_multiplier=2.0,
        clients_per_round=round(1000 * probability),
        population=1000 * groups,
        groups=groups,
    )


def _exact(matrix, groups, probability, stddev=2.0, points=60):
    """delta(epsilon) of the worst group by brute force."""
    rounds = len(matrix)
    curves = [
        sampling_oracles.curve_of_patterns(
            matrix,
            sampling_oracles.cyclic_patterns(rounds, groups, group, probability),
            stddev,
            points,
        )
        for group in range(min(groups, rounds))
    ]
    return lambda epsilon: max(curve(epsilon) for curve in curves)


@pytest.mark.parametrize(
    'mechanism, groups, probability',
    [
        standard(_banded(4, 2), 3, 0.5),
        (_banded(6, 3), 3, 1.0),
        (mechanisms.BandedToeplitz(4, [1.0, -0.8]), 2, 0.3),
        (mechanisms.Blt(4, [0.9], [0.4]), 4, 0.2),
        standard(_banded(5, 3), 3, 0.1),
        standard(mechanisms.Restarted(mechanisms.Blt(3, [0.9], [0.4]), (2,), 5), 3, 0.2),
        standard(mechanisms.Identity(4), 2, 0.2),
        standard(mechanisms.BandedToeplitz(6, [1.0, 0.5, 0.375]), 3, 0.3),
    ],
)
def test_epsilon_is_that_of_the_exact_curve(mechanism, groups, probability):
    plan = _plan(mechanism, groups, probability)
    exact = _exact(mechanism.strategy_matrix(), groups, probability)
    epsilon = plan.epsilon(_DELTA, 'pld')
    assert exact(epsilon) <= _DELTA < exact(0.999 * epsilon)
    for accountant in ('rdp', 'moments'):
        assert plan.epsilon(_DELTA, accountant) >= epsilon * (1 - 1e-4)


@pytest.mark.standard
def test_three_turns_by_integration_in_three_dimensions():
    mechanism = _banded(6, 2, norms=[1, 1, 0.7, 1.5, 1, 0.2])
    exact = _exact(mechanism.strategy_matrix(), 2, 0.4, points=24)
    epsilon = _plan(mechanism, 2, 0.4).epsilon(1e-3)
    assert exact(epsilon) <= 1e-3 < exact(0.999 * epsilon)


def test_the_worst_of_groups_that_do_not_dominate_each_other():
    # Group 0 has one heavy turn, group 1 three lighter ones.
    norms = np.array([2.0, 1.2, 0.3, 1.2, 0.3, 1.2])
    mechanism = _banded(6, 2, norms)
    worst = independent_cohorts.worst_groups(mechanism, 2)
    assert [[count for _, count in turns] for turns in worst] in ([[1, 2], [3]], [[3], [1, 2]])
    plan = _plan(mechanism, 2)
    alone = [
        accounting.epsilon_of_event(
            dp_accounting.ComposedDpEvent(
                [plans.poisson_event(0.2, 2.0 / norm) for norm in norms[group::2]]
            ),
            _DELTA,
            'rdp',
        )
        for group in range(2)
    ]
    assert plan.epsilon(_DELTA, 'rdp') == pytest.approx(max(alone), rel=1e-6)
    assert plan.sensitivity == pytest.approx(2.0, rel=1e-12) and plan.sensitivity >= 2.0
    # For composition one event stands for both groups.
    assert independent_cohorts.every_group(mechanism, 2) == tuple(
        (pytest.approx(norm), count) for norm, count in ((2.0, 1), (1.2, 2))
    )
    assert accounting.epsilon_of_event(plan.dp_event(), _DELTA, 'rdp') > max(alone)


def _dominates(turns, norms):
    """Whether turns are as many as the norms, and each at least as large."""
    counted = np.repeat([norm for norm, _ in turns], [count for _, count in turns])
    return counted.size >= norms.size and (counted[: norms.size] >= norms * (1 - 1e-12)).all()


@pytest.mark.parametrize('rounds, groups', [(400, 7), (300, 290), (64, 2)])
def test_many_different_norms_are_rounded_up_by_little(rounds, groups):
    norms = np.random.default_rng(rounds).uniform(0.9, 1.1, rounds)
    mechanism = _banded(rounds, 2, norms)
    worst = independent_cohorts.worst_groups(mechanism, groups)
    assert len(worst) <= 8 and len({norm for turns in worst for norm, _ in turns}) <= 16
    for group in range(min(groups, rounds)):
        own = np.sort(norms[group::groups])[::-1]
        assert any(_dominates(turns, own) for turns in worst)
    largest = max(turns[0][0] for turns in worst)
    assert largest == pytest.approx(norms.max(), rel=1e-12) and largest >= norms.max()


def test_bands_of_every_mechanism_are_those_of_its_matrix():
    for make in mechanism_cases.FACTORIES.values():
        mechanism = make(11)
        try:
            bands = independent_cohorts.bands(mechanism, 'cyclic_poisson')
        except errors.ArgumentError as error:
            assert mechanism.forest() is not None or 'tree' in mechanism.name, error
            continue
        assert not np.tril(mechanism.strategy_matrix(), -bands).any()


def test_a_plan_for_a_larger_population_keeps_its_groups():
    plan = plans.sampled('cyclic_poisson', clients_per_round=2)
    found = planning.scaled(plan, 20, population=6000)
    assert (found.sampling.groups, found.population, found.noise_multiplier) == (3, 6000, 40.0)
    assert found.epsilon(_DELTA, 'rdp') < plan.epsilon(_DELTA, 'rdp') / 5
    with pytest.raises(ValueError, match='population=50: must be at least 60, 3 groups'):
        planning.scaled(plan, 20, population=50)


@pytest.mark.parametrize('rounds, groups', [(7, 3), (6, 3), (2, 5), (50, 1)])
def test_turns_of_groups(rounds, groups):
    (turns,) = independent_cohorts.worst_groups(mechanisms.Identity(rounds), groups)
    assert turns == ((1.0, -(-rounds // groups)),)
    plan = _plan(mechanisms.Identity(rounds), groups)
    repeated = plans.poisson_event(0.2, 2.0, turns[0][1])
    assert plan.epsilon(_DELTA) == accounting.epsilon_of_event(repeated, _DELTA)
