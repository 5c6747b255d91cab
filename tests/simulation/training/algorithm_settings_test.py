"""The settings of [McMahan18], algorithm 1, from a configuration to a run and its report."""

import dataclasses
import json

import pytest

from dpfl import accounting
from dpfl.errors import ArgumentError
from dpfl.simulation import verification
from dpfl.simulation.training import (
    TrainConfig,
    train,
)
from dpfl.simulation.training.plan import build_plan
from tests.simulation.training import small_config

_CONFIG = small_config.GAUSSIAN.with_values(
    {
        'packing': 'windows',
        'client_max_tokens': 80,
        'client_min_sentences': 10,
        'estimator': 'clipped',
        'cohort_weight': 2.5,
        'example_cap': 12.0,
        'rounds': 2,
        'min_separation': 2,
        'client_batch_size': 8,
        'clip_each_batch': True,
    }
)


def _plan(**changes):
    privacy = dataclasses.replace(_CONFIG.privacy, **changes)
    return build_plan(privacy, _CONFIG.sampling, population=lambda: 16, dimension=lambda: 1000)


def test_the_plan_has_the_estimator_of_the_configuration():
    assert _plan().estimator == accounting.Estimator('clipped', 2.5, 12.0)
    # Lemma 1: 2 S / (q W_min).
    assert _plan().clip_norm / _plan().denominator == pytest.approx(2 * 0.3 / 2.5)
    fixed = _plan(estimator='fixed', cohort_weight=None)
    assert fixed.denominator == 4
    assert fixed.epsilon(1e-3) == _plan().epsilon(1e-3)
    with pytest.raises(ArgumentError, match='estimator=clipped: must be fixed with a discret'):
        _plan(secagg=True, secagg_bits=20)


@pytest.mark.tff
def test_a_run_has_it_in_its_report(tmp_path):
    result = train(_CONFIG, tmp_path / 'run', progress=False)
    assert result.report.plan.estimator == accounting.Estimator('clipped', 2.5, 12.0)
    page = (tmp_path / 'run' / 'privacy_report.md').read_text()
    assert 'number of examples over 12, which the aggregator limits to 0 .. 1' in page
    assert 'clipped denominator: McMahan et al. 2018, lemma 1' in page
    assert verification.verify(tmp_path / 'run').differences == ()
    values = json.loads((tmp_path / 'run' / 'config.json').read_text())
    assert TrainConfig.from_dict(values) == _CONFIG


def test_a_configuration_of_before_means_what_was_done_before():
    values = TrainConfig().to_dict()
    for name in ('packing', 'client_min_tokens', 'client_min_sentences'):
        del values['task']['text'][name]
    for name in ('cohort_weight', 'example_cap'):
        del values['privacy'][name]
    del values['optimization']['clip_each_batch']
    config = TrainConfig.from_dict(values)
    assert config == TrainConfig()
    assert config.task.text.packing == 'sentences' and not config.optimization.clip_each_batch
    assert config.privacy.example_cap is config.privacy.cohort_weight is None
