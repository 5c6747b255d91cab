"""Noise that matches another mechanism, against decoders and plans that are written out."""

import math

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import noise_match
from tests.accounting import plans

_SCHEMA = Participation(24, 6, 3)
_BLT = mechanisms.Blt(24, [0.9, 0.4], [0.2, 0.3])
_TREE = mechanisms.HonakerTree(24)


def _plan(mechanism=_BLT, schema=_SCHEMA, noise_multiplier=0.0, **fields):
    fields |= dict(mechanism=mechanism, participation=schema, clients_per_round=10)
    return plans.plan(noise_multiplier=noise_multiplier, **fields)


def _stddevs(mechanism, momentum):
    """Standard deviations of the models after each round for unit noise, by the dense matrices."""
    models = np.zeros((24, 24))
    for column in range(24):  # Momentum SGD on a unit update in one round.
        velocity = model = 0.0
        for row in range(column, 24):
            velocity = momentum * velocity + (row == column)
            model += velocity
            models[row, column] = model
    return np.linalg.norm(models @ np.linalg.inv(mechanism.strategy_matrix()), axis=1)


@pytest.mark.parametrize('rounds, momentum', [(1, 0.0), (13, 0.0), (13, 0.9), (24, 0.9)])
def test_the_noise_of_prefix_sums_and_models_is_that_of_the_other_mechanism(rounds, momentum):
    for quantity, summary in (
        ('rmse', lambda each: math.sqrt((each[:rounds] ** 2).mean())),
        ('prefix_noise', lambda each: each[rounds - 1]),
    ):
        match = noise_match.reference(
            _plan(),
            _TREE.with_rounds(rounds) if not momentum else _TREE,
            7.0,
            quantity=quantity,
            rounds=rounds,
            momentum=momentum,
        )
        plan = noise_match.matched(_plan(), match)
        wanted = 7 * summary(_stddevs(_TREE, momentum))
        assert match.value == pytest.approx(wanted, rel=1e-9)
        found = plan.noise_multiplier * summary(_stddevs(_BLT, momentum))
        assert found == pytest.approx(wanted, rel=1e-9)
        assert plan.noise_match == match


@pytest.mark.parametrize(
    'rounds, fields', [(1, {}), (13, {'adjacency': 'replace_one'}), (24, {'noise': 'hardened'})]
)
def test_rho_is_that_of_the_other_mechanism_and_never_above(rounds, fields):
    silent = _plan(**fields)
    match = noise_match.reference(
        silent, _TREE.with_rounds(rounds), 7.0, quantity='rho', rounds=rounds
    )
    stopped = Participation(rounds, 6, 3)
    other = _plan(_TREE.with_rounds(rounds), stopped, noise_multiplier=7.0, **fields)
    assert match.value == other.rho
    plan = noise_match.matched(silent, match)
    reached = plan.with_participation(stopped).rho
    assert reached <= match.value and reached == pytest.approx(match.value, rel=1e-6)


def test_a_mechanism_matches_itself():
    for quantity in ('rmse', 'prefix_noise', 'rho'):
        match = noise_match.reference(_plan(), _BLT, 3.0, quantity=quantity, rounds=24)
        found = noise_match.matched(_plan(), match).noise_multiplier
        assert found == pytest.approx(3.0, rel=1e-12)
    plan = noise_match.matched(_plan(), accounting.NoiseMatch('rho', 24, 0.2))
    assert plan.rho <= 0.2 and plan.rho == pytest.approx(0.2, rel=1e-12)


def test_the_report_says_how_the_noise_was_matched():
    match = noise_match.reference(_plan(), _TREE, 7.0, quantity='rmse', rounds=24)
    plan = noise_match.matched(_plan(), match)
    report = plans.report(plan)
    assert report.to_dict()['plan']['noise_match'] == match.to_dict()
    page = report.render()
    assert (
        f'noise multiplier: {plan.noise_multiplier:g} (standard deviation / clip norm). It' in page
    )
    assert f'over the first 24 rounds is {match.value:.6g} clip norms' in page
    assert f'honaker_tree (SHA-256 {_TREE.digest()}) and noise multiplier 7.' in page
    again = accounting.PrivacyReport.from_json(report.to_json())
    assert again.plan.noise_match == match
    plain = plans.report(_plan(noise_multiplier=1.0))
    assert 'noise_match' not in plain.to_dict()['plan'] and 'chosen' not in plain.render()
