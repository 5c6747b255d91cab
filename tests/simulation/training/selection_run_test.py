"""Runs on selected clients and sentences."""

import json

import numpy as np
import pytest

from dpfl.accounting.records import archive
from dpfl.simulation import training
from dpfl.simulation.training import run_data
from dpfl.simulation.training.plan import build_plan
from dpfl.tasks.before_training import QuantileRelease
from tests.simulation.training import small_config


@pytest.mark.standard
@pytest.mark.tff
def test_clients_without_selected_text_take_part_with_an_update_of_zero(tmp_path):
    """A selection that nobody meets leaves the noise alone; the guarantee and the log stay."""
    none = small_config.BLT.with_values({'select_examples': ('length>99',)})
    training.train(none, tmp_path / 'one')
    training.train(none.with_values({'client_learning_rate': 3.0}), tmp_path / 'other')
    weights = [training.run_model.weights(path) for path in (tmp_path / 'one', tmp_path / 'other')]
    for left, right in zip(*weights, strict=True):
        np.testing.assert_array_equal(left, right)
    report = json.loads((tmp_path / 'one' / archive.REPORT).read_text())
    config = small_config.BLT
    plan = build_plan(config.privacy, config.sampling, population=None, dimension=None)
    assert report['rho'] == plan.rho
    assert report['observed']['clients'] == 16
    assert any('sentences with length>99 only' in each for each in report['remarks'])


@pytest.mark.standard
@pytest.mark.tff
def test_a_model_of_an_earlier_run_selects(tmp_path):
    first = tmp_path / 'first'
    training.train(small_config.BLT.with_values({'rounds': 1, 'min_separation': 1}), first)
    config = small_config.BLT.with_values(
        {'select_clients': ('loss>0',), 'selection_model': str(first)}
    )
    training.train(config, tmp_path / 'run')
    report = json.loads((tmp_path / 'run' / archive.REPORT).read_text())
    assert any(each.startswith('The model that selects') for each in report['not_covered'])
    larger = config.with_values({'vocabulary_size': 41})
    with pytest.raises(ValueError, match='selection_model.*another vocabulary'):
        training.train(larger, tmp_path / 'other')


_QUANTILE = small_config.GAUSSIAN.with_values(
    {
        'select_clients': ('length<=q0.5',),
        'select_examples': ('oov_rate<q0.9', 'length>1'),
        'selection_epsilon': 40.0,
        'rounds': 1,
        'min_separation': 1,
    }
)


@pytest.mark.standard
@pytest.mark.tff
def test_quantiles_are_found_and_counted(tmp_path):
    done = training.train(_QUANTILE, tmp_path)
    found = json.loads((tmp_path / archive.BEFORE).read_text())['thresholds']
    assert set(found) == {'select_clients:length<=q0.5', 'select_examples:oov_rate<q0.9'}
    assert 1 <= found['select_clients:length<=q0.5'] <= 6
    plan = done.report.plan
    shares = {'select_examples:oov_rate<q0.9': 0.9, 'select_clients:length<=q0.5': 0.5}
    assert plan.before == (QuantileRelease.of_guarantee(40.0, 1e-3, shares).before(),)
    alone = plan.sensitivity / plan.noise_multiplier
    assert plan.mu == pytest.approx(np.hypot(alone, 1 / plan.before[0].noise_multiplier))
    shown = ' '.join(json.loads((tmp_path / archive.REPORT).read_text())['remarks'])
    assert 'estimated privately before training: ' in shown and 'length<=q0.5: ' in shown


def test_quantiles_are_not_released_by_a_dry_run():
    with pytest.raises(ValueError, match='select_examples=oov_rate<q0.9: cannot be used in a dry'):
        training.dry_run(_QUANTILE, progress=False)


def test_digests_of_models_and_data_are_compared():
    values = {'clients': [1, 2], 'keyed_digests': {'data': 'a', 'selection_model': 'b'}}
    run_data.require(values, values)
    for changes, name in (
        ({'selection_model': 'c'}, 'selection_model: must be the model'),
        ({'selection_model': None}, 'selection_model: must be the model'),
        ({'warm_start': 'd'}, 'warm_start: must be the model'),
        ({'data': 'c'}, 'data_path: must have the data'),
    ):
        other = values | {'keyed_digests': values['keyed_digests'] | changes}
        with pytest.raises(ValueError, match=name):
            run_data.require(values, other)
    with pytest.raises(ValueError, match='data_path: must have the data'):
        run_data.require(values, values | {'clients': [1, 3]})
    with pytest.raises(ValueError, match='must be'):
        run_data.require({}, values)
