"""Runs with another optimizer at the server, a schedule, and other accountants."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.errors import ArgumentError
from dpfl.simulation import metrics, verification
from dpfl.simulation.training import (
    OptimizationConfig,
    PrivacyConfig,
    SamplingConfig,
    TrainConfig,
    train,
)
from dpfl.simulation.training.plan import build_plan
from tests import runs
from tests.simulation.training import small_config

_QUANTILES = [f'accuracy_q{q}' for q in (10, 25, 50, 75, 90)]
_CONFIG = small_config.GAUSSIAN.with_values(
    {
        'accountant': 'moments',
        'sampling': 'poisson',
        'min_separation': 1,
        'client_update': 'fedsgd',
        'server_optimizer': 'yogi',
        'server_learning_rate': 0.05,
        'server_schedule': 'cosine',
        'server_warmup_rounds': 1,
    }
)


class _StoppedError(Exception):
    pass


def _rows(path):
    with open(path / 'metrics.csv', newline='') as file:
        return [{**row, 'seconds': ''} for row in csv.DictReader(file)]


@pytest.fixture(scope='module', name='run')
def _run(tmp_path_factory):
    path = tmp_path_factory.mktemp('run') / 'run'
    return path, train(_CONFIG, path, progress=False)


@pytest.mark.tff
def test_the_last_line_of_the_metrics_is_the_report(run):
    path, result = run
    shown = [float(row['epsilon']) for row in _rows(path)]
    assert shown[-1] == json.loads((path / 'privacy_report.json').read_text())['epsilon']
    assert shown[-1] == result.report.plan.epsilon(1e-3, 'moments')
    assert shown == sorted(shown) and len(shown) == 4
    assert shown[-1] > 1.05 * result.report.plan.epsilon(1e-3, 'pld')


@pytest.mark.tff
def test_metrics_have_quantiles_and_top_accuracies(run):
    path, result = run
    rows = _rows(path)
    for name in ('perplexity', 'accuracy_top3', 'accuracy_top5_with_oov', *_QUANTILES):
        assert [bool(row[name]) for row in rows] == [False, True, False, True], name
    values = [result.last[name] for name in _QUANTILES]
    assert values == sorted(values)
    assert result.last['accuracy'] <= result.last['accuracy_top3'] <= result.last['accuracy_top5']
    assert result.last['perplexity'] == pytest.approx(math.exp(result.last['loss']), rel=1e-5)


@pytest.mark.tff
def test_the_report_says_what_is_assumed_of_the_optimizer(run):
    path, _ = run
    report = json.loads((path / 'privacy_report.json').read_text())
    (remark,) = report['remarks']
    assert remark.startswith('The server uses Yogi with a learning rate with 1 rounds of warm-up')
    assert remark in (path / 'privacy_report.md').read_text()
    assert verification.verify(path).differences == ()


@pytest.mark.tff
def test_an_interrupted_run_has_the_same_bits(run, tmp_path, monkeypatch):
    config = dataclasses.replace(
        _CONFIG, execution=dataclasses.replace(_CONFIG.execution, checkpoint_every=1)
    )
    path = tmp_path / 'run'
    stopped, release = [], metrics.Metrics.release

    def stop(self, number, values):
        if number == 3 and not stopped:
            stopped.append(number)
            raise _StoppedError
        release(self, number, values)

    monkeypatch.setattr(metrics.Metrics, 'release', stop)
    with pytest.raises(_StoppedError):
        train(config, path, progress=False)
    train(config, path, resume=True, progress=False)
    assert _rows(path) == _rows(run[0])
    assert runs.differences(path, run[0]) == []


def _auto(**privacy):
    return TrainConfig(
        privacy=PrivacyConfig(mechanism='auto', noise_multiplier=1.0, memory_limit=0, **privacy),
        optimization=OptimizationConfig(server_schedule='linear', server_momentum=0.5),
    )


def test_auto_optimises_for_the_models_of_the_server():
    schema = Participation(40, 10, 4)
    config = _auto(workload='server')
    workload = config.workload(40)
    found = {}
    for name, a in (('server', workload), ('prefix sums', None)):
        mechanism, candidates = mechanisms.choose(schema, 1000, 1.0, a)
        found[name] = mechanism.max_loss(schema, workload)
        assert candidates[0].loss == mechanism.max_loss(schema, a)
    assert found['server'] < 0.99 * found['prefix sums']


def test_the_plan_is_made_with_the_workload():
    asked = []

    def workload(rounds):
        asked.append(rounds)
        return np.ones(rounds)

    sampling = SamplingConfig(rounds=12, clients_per_round=3, min_separation=4)
    plan = build_plan(
        _auto(workload='server').privacy,
        sampling,
        population=lambda: 100,
        dimension=lambda: 10,
        workload=workload,
    )
    # Without memory, what can be drawn again is left, and of that the least loss.
    assert asked == [12] and plan.mechanism.name == 'banded_inverse'


def test_rates_that_do_not_fit_the_rounds_are_refused_before_anything_is_written(tmp_path):
    config = dataclasses.replace(_CONFIG, optimization=OptimizationConfig(server_warmup_rounds=9))
    with pytest.raises(ArgumentError, match='server_warmup_rounds=9: must be <= 4'):
        train(config, tmp_path / 'run', progress=False)
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
    'name, value', [('clip_quantile', 0.7), ('clip_learning_rate', 0.5), ('count_stddev', 3.0)]
)
def test_settings_of_adaptive_clipping_need_it(name, value):
    sampling = SamplingConfig(rounds=12, clients_per_round=30)
    privacy = PrivacyConfig(mechanism='gaussian', noise_multiplier=1.0, **{name: value})

    def plan(privacy):
        return build_plan(privacy, sampling, population=lambda: 100, dimension=lambda: 10)

    with pytest.raises(ArgumentError, match=f'{name}={value}: needs adaptive_clip'):
        plan(privacy)
    adaptive = plan(dataclasses.replace(privacy, adaptive_clip=True)).adaptive_clip
    assert value in (adaptive.target_quantile, adaptive.learning_rate, adaptive.count_stddev)
