"""The study of data as they are, with a model of one's own; generators are not trained here."""

import types

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.inspection.images import runs, settings, study
from dpfl.inspection.images.config import PrimaryConfig, StudyConfig
from dpfl.simulation.training import (
    EvaluationConfig,
    GanConfig,
    GanOptimizationConfig,
    PrivacyConfig,
    SamplingConfig,
)
from dpfl.tasks.images import classifiers

_BASE = GanConfig(
    privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=1.0),
    sampling=SamplingConfig(rounds=2, population=40, clients_per_round=2),
    optimization=GanOptimizationConfig(model='tiny'),
    evaluation=EvaluationConfig(eval_clients=1),
)


def _study(directory, seed=1, resume=False, **values):
    model = directory / 'model'
    model.mkdir(exist_ok=True)
    weights = classifiers.initial_weights(classifiers.PRESETS['tiny'], seed)
    np.savez(model / 'model.npz', **{str(i): weight for i, weight in enumerate(weights)})
    config = StudyConfig(
        primary=PrimaryConfig(primary_model=str(model), primary_clients=12),
        samples=40,
        realistic_population=40_000,
        **values,
    )
    return study.Study(config=config, base=_BASE, directory=directory / 'study', resume=resume)


def test_ones_own_model_on_data_as_they_are(tmp_path, monkeypatch):
    trained = {}

    def train(training, config, directory, *, samples, not_covered, **others):
        """The images that a perfect generator would make."""
        trained[training.name] = not_covered
        pixels = np.concatenate([training.pixels(i, 10) for i in range(2)])
        return runs.Trained(np.concatenate([pixels] * 2)[:samples], types.SimpleNamespace(), 1.0)

    monkeypatch.setattr(runs, 'train', train)
    described, results = _study(tmp_path).run()
    names = ['public', 'public_again', 'everyone', 'high_accuracy', 'low_accuracy']
    assert [each.subpopulation for each in results] == names
    assert list(trained) == [f'as_is/{name}' for name in names]
    # Nobody was selected for the first three.
    assert [bool(trained[f'as_is/{name}']) for name in names] == [False] * 3 + [True] * 2
    assert [len(each.guarantees) for each in results] == [0, 0, 2, 2, 2]
    assert results[2].clients == 40
    assert abs(results[0].clients - results[1].clients) <= 1
    # All are compared with the same public images, and no image of a client is shown.
    assert all(
        each.real is results[0].real or (each.real == results[0].real).all() for each in results
    )
    summary, page = study.write(tmp_path / 'study', described, results)
    assert set(summary['diagnoses']) == {'as_is'} and summary['fault_is_visible'] is False
    sheets = [path.name for path in (tmp_path / 'study' / 'sheets').iterdir()]
    assert len(sheets) == 5 and all(name.startswith('generated_') for name in sheets)
    # The features of a model with random weights tell no image from another.
    assert 'Cannot tell: inverted' in page.read_text()
    # Another model at the same path is another study.
    with pytest.raises(ArgumentError, match='as in the study in') as raised:
        _study(tmp_path, seed=2, resume=True).run()
    assert raised.value.name == 'primary_model'


def test_generators_that_have_learned_nothing_show_no_absence_of_a_fault(tmp_path, monkeypatch):
    noise = np.random.default_rng(3).random((40, 28, 28)).astype(np.float32) ** 0.3

    def train(training, config, directory, **others):
        return runs.Trained(noise, types.SimpleNamespace(), 1.0)

    monkeypatch.setattr(runs, 'train', train)
    summary, page = study.write(tmp_path / 'study', *_study(tmp_path).run())
    verdicts = summary['diagnoses']['as_is']['verdicts']
    assert {each['verdict'] for each in verdicts.values()} == {'cannot tell'}
    assert 'No fault is seen' not in page.read_text() and 'class="yes"' not in page.read_text()


def test_a_fix_needs_a_fault(tmp_path):
    with pytest.raises(ArgumentError, match='must name a fault for compare=fix'):
        _study(tmp_path, compare='fix').run()


def test_public_images_are_dealt_out_once():
    labels = np.arange(200, dtype=np.int32)
    images = settings.PublicImages(np.zeros([200, 28, 28], np.float32), labels)
    first, second = images.halves()
    dealt = [images.examples(int(i))[1] for half in (first, second) for i in half.clients]
    assert sorted(np.concatenate(dealt)) == labels.tolist()
    assert images.examples(1, 3)[1].tolist() == [64, 65, 66]
