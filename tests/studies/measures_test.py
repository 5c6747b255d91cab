"""Measures of a run's files, against values computed by hand or by the library itself."""

import math

import numpy as np
import pytest

from dpfl import Participation, accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.studies import definition, measures
from tests.studies import small_study

_METRICS = """round,epsilon,seconds,loss,accuracy
1,0.5,1.0,,
2,0.6,1.0,3.0,0.10
4,0.7,1.0,2.5,0.20
6,0.8,1.0,2.0,0.40
"""


def _run(folder, mechanism, noise_multiplier=2.0, **fields):
    plan = accounting.PrivacyPlan(
        mechanism=mechanism,
        participation=Participation(6, 3, 2),
        clip_norm=0.2,
        noise_multiplier=noise_multiplier,
        clients_per_round=10,
        **fields,
    )
    folder.mkdir(exist_ok=True)
    (folder / archive.PLAN).write_text(archive.PlanRecord(plan, (1e-6,), 'pld', True).to_json())
    mechanisms.save(plan.mechanism, folder / archive.STRATEGY)
    (folder / 'metrics.csv').write_text(_METRICS)
    return folder, plan


_RESULT = {'rounds': 6, 'epsilon': 0.8, 'rho': math.inf, 'accuracy': 0.4}


@pytest.mark.parametrize(
    ('smooth', 'accuracy', 'loss'), [(1, 0.4, 2.0), (2, 0.3, 2.25), (9, 0.7 / 3, 2.5)]
)
def test_accuracy_and_loss_are_means_of_the_last_evaluations(tmp_path, smooth, accuracy, loss):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    found = measures.read(
        small_study.study(measures=('accuracy', 'loss'), smooth=smooth), folder, _RESULT
    )
    assert found.values == pytest.approx({'accuracy': accuracy, 'loss': loss})
    assert found.curve.rounds.tolist() == [2, 4, 6]
    assert found.curve.epsilon.tolist() == [0.6, 0.7, 0.8]


def test_accuracy_with_unknown_words_is_smoothed_where_there_is_one(tmp_path):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    study = small_study.study(measures=('accuracy_with_oov', 'accuracy'), smooth=2)
    with pytest.raises(ValueError, match='measures=accuracy_with_oov: is not measured'):
        measures.read(study, folder, _RESULT)
    assert measures.read(small_study.study(measures=('accuracy',)), folder, _RESULT).values
    lines = _METRICS.splitlines()
    more = ['accuracy_with_oov', '', '0.1', '0.1', '0.2']
    rows = [f'{line},{value}' for line, value in zip(lines, more, strict=True)]
    (folder / 'metrics.csv').write_text('\n'.join(rows) + '\n')
    found = measures.read(study, folder, _RESULT)
    assert found.values == pytest.approx({'accuracy_with_oov': 0.15, 'accuracy': 0.3})
    np.testing.assert_allclose(found.curve.smoothed('accuracy_with_oov'), [0.1, 0.1, 0.15])


@pytest.mark.parametrize(
    ('threshold', 'rounds', 'is_bound'), [(0.1, 2, False), (0.15, 4, False), (0.41, 7, True)]
)
def test_rounds_to_a_threshold(tmp_path, threshold, rounds, is_bound):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    study = small_study.study(measures=('rounds_to_threshold',), threshold=threshold)
    found = measures.read(study, folder, _RESULT)
    assert found.values == {'rounds_to_threshold': rounds}
    assert ('rounds_to_threshold' in found.is_bound) == is_bound


def test_loss_of_the_mechanism_and_numbers_of_the_plan(tmp_path):
    folder, plan = _run(tmp_path, mechanisms.BinaryTree(6))
    names = ('max_loss', 'rms_loss', 'noise_multiplier', 'epsilon', 'rho')
    found = measures.read(small_study.study(measures=names), folder, _RESULT)
    assert found.values['max_loss'] == plan.mechanism.max_loss(plan.participation)
    assert found.values['rms_loss'] == plan.mechanism.rms_loss(plan.participation)
    assert found.values['noise_multiplier'] == 2
    assert found.values['epsilon'] == 0.8
    assert found.values['rho'] is None  # Not finite.
    without_noise, _ = _run(tmp_path / 'other', mechanisms.Identity(6), noise_multiplier=0.0)
    # Measures of claims and orders are read too.
    claims = (definition.Claim('', 'accuracy', 'a', 'a'),)
    study = small_study.study(measures=('loss',), orders=('max_loss',), claims=claims)
    found = measures.read(study, without_noise, _RESULT)
    assert {*found.values} == {'loss', 'max_loss', 'accuracy'} and found.values['max_loss'] is None


def test_what_is_not_measured_is_refused(tmp_path):
    folder, _ = _run(tmp_path, mechanisms.BinaryTree(6))
    with pytest.raises(ValueError, match='measures=speed'):
        measures.read(small_study.study(measures=('speed',)), folder, _RESULT)
    (folder / 'metrics.csv').write_text('round,seconds\n1,2\n')
    with pytest.raises(ValueError, match='has no evaluation'):
        measures.read(small_study.study(), folder, _RESULT)
