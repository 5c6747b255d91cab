"""The match that a text asks for: its form, and what a configuration makes of it."""

import pytest

from dpfl import Participation, accounting, errors, mechanisms
from dpfl.simulation.training import noise_matching
from dpfl.simulation.training.plan import build_plan
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.sampling_config import SamplingConfig


def _plan(match, rounds=40, **fields):
    privacy = PrivacyConfig(match=match, **{'mechanism': 'gaussian', **fields})
    sampling = SamplingConfig(rounds=rounds, min_separation=10, clients_per_round=5)
    return build_plan(privacy, sampling, population=lambda: 100, dimension=lambda: 10)


def test_text_and_what_it_says():
    request = noise_matching.parse('rmse:honaker_tree,7@2000')
    assert request.quantity == 'rmse' and request.mechanism.kind == 'honaker_tree'
    assert request.number == 7 and request.rounds == 2000
    request = noise_matching.parse('rho:banded:400@2000/400/5,1.411@1280')
    assert request.mechanism.design == Participation(2000, 400, 5)
    assert request.number == 1.411 and request.rounds == 1280
    request = noise_matching.parse('rho:1e-1')
    assert request.mechanism is None and request.number == 0.1 and request.rounds is None


def test_a_configuration_gets_the_noise_of_the_match():
    plan = _plan('rmse:honaker_tree,7@32')
    tree, own = mechanisms.HonakerTree(32), mechanisms.Identity(32)
    expected = 7 * tree.rms_error() / own.rms_error()
    assert plan.noise_multiplier == pytest.approx(expected, rel=1e-12)
    assert plan.noise_match.mechanism == 'honaker_tree' and plan.noise_match.rounds == 32
    config = PrivacyConfig(match='rmse:honaker_tree,7@32')
    assert PrivacyConfig.from_dict(config.to_dict()) == config


def test_an_optimised_mechanism_is_for_the_schema_of_the_run():
    plan = _plan('prefix_noise:blt:2,3')
    blt = mechanisms.optimize_blt(Participation(40, 10), 2)
    expected = 3 * blt.squared_error()[-1] ** 0.5 / 40**0.5
    assert plan.noise_multiplier == pytest.approx(expected, rel=1e-9)
    with_momentum = _plan('rmse:honaker_tree,7', match_momentum=0.9)
    assert with_momentum.noise_match.momentum == 0.9
    assert with_momentum.noise_multiplier != _plan('rmse:honaker_tree,7').noise_multiplier


def test_rho_of_the_run_is_the_one_that_was_asked_for():
    assert _plan('rho:0.2').rho == pytest.approx(0.2, rel=1e-12)
    plan = _plan('rho:honaker_tree,7@20')
    stopped = Participation(20, 10)
    other = accounting.PrivacyPlan(
        mechanism=mechanisms.HonakerTree(20),
        participation=stopped,
        clip_norm=1.0,
        noise_multiplier=7.0,
        clients_per_round=5,
    )
    assert plan.with_participation(stopped).rho == pytest.approx(other.rho, rel=1e-12)


@pytest.mark.parametrize(
    ('text', 'allowed'),
    [
        ('', 'must be QUANTITY:MECHANISM'),
        ('max:tree,7@4', 'rmse, prefix_noise, rho'),
        ('rmse:tree', 'must be QUANTITY:MECHANISM'),
        ('rmse:tree,-7@4', 'must be QUANTITY:MECHANISM'),
        ('rmse:tree,7@4.5', 'must be QUANTITY:MECHANISM'),
        ('rmse:tree,0@4', 'must have a finite number above 0'),
        ('rho:1e999', 'must have a finite number above 0'),
        ('rmse:magic,7@4', 'match=magic: must be one of gaussian'),
        ('rmse:best_blt:2,7@4', 'without best_'),
    ],
)
def test_bad_texts_are_refused_in_one_line(text, allowed):
    with pytest.raises(errors.ArgumentError) as refused:
        PrivacyConfig(match=text)
    assert refused.value.name == 'match' and '\n' not in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    ('fields', 'name'),
    [
        ({'match': 'rho:1', 'noise_multiplier': 1.0}, 'match'),
        ({'match': 'rho:1', 'target_epsilon': 1.0}, 'match'),
        ({'match': 'rho:1', 'match_momentum': 0.5}, 'match_momentum'),
        ({'match': None, 'noise_multiplier': 1.0, 'match_momentum': 0.5}, 'match_momentum'),
        ({'match': 'rmse:tree,7@41'}, 'match'),
        ({'match': 'rmse:tree,7@0'}, 'match'),
        ({'match': 'rmse:banded:3@20/10,7@30'}, 'match'),
        ({'match': 'rmse:tree,7', 'mechanism': 'none'}, 'match'),
        ({'match': 'rmse:tree,7', 'adaptive_clip': True, 'count_stddev': 9.0}, 'adaptive_clip'),
        ({'match': 'rmse:tree,7', 'estimator': 'clipped'}, 'estimator'),
    ],
)
def test_contradictions_are_refused(fields, name):
    with pytest.raises(errors.ArgumentError) as refused:
        _plan(**fields)
    assert refused.value.name == name and '\n' not in str(refused.value)
