"""Runs on selected clients and sentences."""

import json

import numpy as np
import pytest

from dpfl.accounting.records import archive
from dpfl.simulation import training
from dpfl.simulation.training.plan import build_plan
from tests.simulation.training import small_config


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
