"""Accounting of [Augenstein20], tables 3 and 13, as a run that trains a GAN does it."""

import json

import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting import extrapolation
from dpfl.reporting import gan_page
from dpfl.simulation.training import config
from tests import paths

_PUBLISHED = paths.PUBLISHED


def _published():
    rows = {row['id']: row for row in json.loads(_PUBLISHED.read_text())}
    for name, row in rows.items():
        if name.startswith(('004-T3 sim', '004-T13 sim')):
            marks = [] if name == '004-T3 sim 3a' else [pytest.mark.standard]
            yield pytest.param(row, rows[name.replace('sim', 'real')], id=name, marks=marks)


def _plan(row):
    inputs = row['inputs']
    return accounting.PrivacyPlan(
        mechanism=mechanisms.Identity(inputs['rounds']),
        participation=Participation(inputs['rounds']),
        clip_norm=0.1,
        noise_multiplier=inputs['z'],
        clients_per_round=inputs['qN'],
        adjacency='replace_one_half_shift',
        sampling=accounting.WithoutReplacement(population=inputs['N']),
    )


def _matches(computed, row):
    """Whether a number is the published one, rounded as that was."""
    return round(computed, row['decimals']['eps']) == row['published']['eps']


@pytest.mark.parametrize('simulation, realistic', _published())
def test_a_run_reports_the_published_numbers(simulation, realistic):
    """By the moments accountant, which is the document's; that of a run is tighter by default."""
    plan = _plan(simulation)
    delta = simulation['inputs']['delta']
    report = accounting.PrivacyReport.from_plan(plan, [delta], accountant='moments')
    assert _matches(report.guarantee.epsilons[0], simulation)
    larger = extrapolation.with_cohort_scaled(plan, 100.0, realistic['inputs']['N'])
    assert larger == _plan(realistic)
    delta = realistic['inputs']['delta']
    epsilon = larger.epsilon(delta, 'moments')
    assert _matches(epsilon, realistic)
    assert larger.epsilon(delta, 'rdp') <= epsilon
    scaled = extrapolation.ScaledUp(larger, delta, epsilon)
    page = gan_page.render(report, scaled)
    assert 'post-processing' in page and 'Clipping alone ensures two' in page
    assert accounting.round_up(epsilon) in page


def test_a_delta_of_zero_is_not_taken_for_the_default():
    with pytest.raises(ValueError, match='scaled_delta=0.0: must be'):
        config.ScaleConfig(scale=2.0, scaled_population=10**6, scaled_delta=0.0)
