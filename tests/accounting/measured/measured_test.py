"""What an audit measured: its file, its section in the report, and the verification of both."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.measured.measured import Measured, Scores, mu_of, read
from tests import json_schema

_ROUNDS = 6


def _plan(**values):
    defaults = dict(
        mechanism=mechanisms.Blt(_ROUNDS, (0.9, 0.5), (0.1, 0.2)),
        participation=Participation(_ROUNDS, 3, 2),
        clip_norm=1.0,
        noise_multiplier=2.0,
        clients_per_round=4,
    )
    return accounting.PrivacyPlan(**{**defaults, **values})


def _pattern(*rows):
    pattern = np.zeros((len(rows), _ROUNDS), bool)
    for row, rounds in zip(pattern, rows, strict=True):
        row[list(rounds)] = True
    return pattern


def _scores(mean=0.5, pattern=None, count=200):
    random = np.random.default_rng(0)
    took_part = np.arange(count) % 2 == 0
    noise = random.standard_normal((2, count))
    cosines = (noise + mean * took_part) / 100
    rounds = np.full(count, 2)
    pattern = _pattern((0, 3)) if pattern is None else pattern
    return Scores(took_part, rounds, *cosines, dimension=10**4, pattern=pattern)


def _measured(plan=None, **values):
    return Measured.of(_scores(**values), plan or _plan(), 1e-6, 'pld')


def test_the_file_holds_the_scores(tmp_path):
    scores = _scores()
    (tmp_path / 'audit.npz').write_bytes(scores.to_bytes())
    loaded = Scores.load(tmp_path / 'audit.npz')
    for field in dataclasses.fields(Scores):
        assert np.array_equal(getattr(loaded, field.name), getattr(scores, field.name))
    assert read(tmp_path, _plan(), 1e-6, 'pld') == _measured()
    assert read(tmp_path / 'other', _plan(), 1e-6, 'pld') is None


@pytest.mark.parametrize(
    'change',
    [
        {'took_part': np.zeros(200)},
        {'releases': np.zeros(199)},
        {'dimension': np.array(0.5)},
        {'dimension': np.array(1)},
        {'pattern': np.zeros((1, 5), bool)},
        {'pattern': np.zeros(6)},
        {'final_model': np.full(200, 7.0)},
        {'took_part': np.ones(200, bool)},
    ],
)
def test_other_files_are_refused_by_name(tmp_path, change):
    path = tmp_path / 'audit.npz'
    scores = _scores()
    arrays = {field.name: getattr(scores, field.name) for field in dataclasses.fields(Scores)}
    np.savez(path, **{**arrays, **change})
    with pytest.raises(ValueError, match='audit.npz: not the audit of'):
        read(tmp_path, _plan(), 1e-6, 'pld')


def test_mu_of_a_pattern_is_that_of_its_columns():
    plan = _plan()
    strategy = plan.mechanism.strategy_matrix()
    expected = np.linalg.norm(strategy[:, 0] + strategy[:, 3]) / 2
    assert mu_of(plan, _pattern((0, 3))) == pytest.approx(expected, rel=1e-12)
    # This is the worst pattern; the others have less.
    assert mu_of(plan, _pattern((0, 3))) == pytest.approx(plan.mu, rel=1e-6)
    assert mu_of(plan, _pattern((2, 5))) < plan.mu


def test_claims_follow_from_the_plan():
    plan, found = _plan(), _measured()
    assert (found.mu_claimed, found.epsilon_claimed) == (plan.mu, plan.epsilon(1e-6))
    assert not found.exceeds_claim
    values = found.to_dict()
    assert values['trials'] == 200
    assert values['epsilon_estimate'] == found.releases.epsilon
    assert values['mu_lower'] == found.releases.mu_lower


def test_without_noise_nothing_is_claimed():
    found = _measured(_plan(noise_multiplier=0.0, mechanism=mechanisms.Identity(_ROUNDS)))
    assert found.epsilon_claimed == found.mu_of_canaries == math.inf
    assert found.to_dict()['epsilon_claimed'] is None
    assert not found.exceeds_claim


def test_a_claim_that_is_refuted_is_named():
    found = _measured(_plan(noise_multiplier=20.0), mean=2.0)
    assert found.exceeds_claim
    report = dataclasses.replace(
        accounting.PrivacyReport.from_plan(_plan(noise_multiplier=20.0), [1e-6]), measured=found
    )
    assert 'lower bound is above the claim' in report.render()


def test_sampled_plans_have_no_mu():
    plan = _plan(
        mechanism=mechanisms.Identity(_ROUNDS),
        participation=Participation(_ROUNDS),
        sampling='poisson',
        population=40,
    )
    scores = dataclasses.replace(_scores(), pattern=None)
    found = Measured.of(scores, plan, 1e-6, 'pld')
    assert (found.mu_claimed, found.mu_of_canaries, found.releases.mu_lower) == (None,) * 3
    assert found.releases.epsilon_lower >= 0


def test_the_report_has_a_section_that_its_json_keeps():
    plan = _plan()
    report = accounting.PrivacyReport.from_plan(plan, [1e-6], measured=_measured())
    values = json.loads(report.to_json())
    json_schema.require_report(values)
    assert values['measured'] == json.loads(json.dumps(_measured().to_dict()))
    assert accounting.PrivacyReport.from_json(report.to_json()) == report
    page = report.render()
    assert '## Measured' in page
    assert 'What an audit cannot show' in page
    # A report without an audit says nothing.
    plain = accounting.PrivacyReport.from_plan(plan, [1e-6])
    assert 'measured' not in plain.to_dict()
    assert '## Measured' not in plain.render()


@pytest.mark.parametrize(
    'name, value', [('releases', 3), ('trials', 0), ('mu_of_canaries', -1), ('delta', 2)]
)
def test_a_report_with_another_section_is_refused(name, value):
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], measured=_measured())
    values = json.loads(report.to_json())
    values['measured'][name] = value
    with pytest.raises(ValueError, match='not a privacy report'):
        accounting.PrivacyReport.from_json(json.dumps(values))


def test_a_claim_in_a_section_is_not_believed():
    report = accounting.PrivacyReport.from_plan(_plan(), [1e-6], measured=_measured())
    values = json.loads(report.to_json())
    values['measured']['epsilon_claimed'] = 0.01
    assert accounting.PrivacyReport.from_json(json.dumps(values)) == report
