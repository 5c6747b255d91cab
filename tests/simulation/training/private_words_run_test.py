"""Runs whose vocabulary is found privately: what they keep, count and refuse."""

import json
import math
import shutil

import pytest

from dpfl.accounting.records import archive
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import outputs, verification
from dpfl.simulation.training import before_training, dry_run, train
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.text.private_words import WordRelease
from tests import text_files
from tests.repository import threat_model
from tests.simulation.training import small_config

_CHANGES = {
    'task': 'user_text',
    'vocabulary': 'private',
    'vocabulary_epsilon': 30.0,
    'vocabulary_words_per_client': 20,
    'vocabulary_size': 12,
    'population': None,
    'rounds': 1,
    'min_separation': 1,
}


@pytest.fixture(scope='module', name='config')
def _config(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'data.jsonl'
    text_files.write_clients(path, clients=90, sentences=4)
    return small_config.GAUSSIAN.with_values({**_CHANGES, 'data_path': str(path)})


@pytest.fixture(scope='module', name='run')
def _run(config, tmp_path_factory):
    path = tmp_path_factory.mktemp('runs') / 'run'
    return train(config, path, progress=False)


def _words(path):
    return json.loads((path / archive.BEFORE).read_text())['words']


@pytest.mark.standard
@pytest.mark.tff
def test_the_guarantee_counts_the_words(run):
    words = _words(run.directory)
    assert len(words) == 12 and set(words) <= {f'wa{chr(97 + i)}' for i in range(26)} | {'.'} | {
        f'wb{chr(97 + i)}' for i in range(4)
    }
    plan = run.report.plan
    release = WordRelease.of_guarantee(30.0, 1e-3, words_per_client=20)
    assert plan.before == (release.before(),)
    alone = plan.sensitivity / plan.noise_multiplier
    assert plan.mu == pytest.approx(math.hypot(alone, 1 / release.before().noise_multiplier))
    values = json.loads((run.directory / archive.REPORT).read_text())
    assert values['epsilon'] == plan.epsilon(1e-3) > 30
    assert not any('vocabulary: it was counted' in each for each in values['not_covered'])
    assert json.loads((run.directory / 'data.json').read_text())['vocabulary'] == {
        'words': 12,
        'from': 'vocabulary_found_privately',
    }


@pytest.mark.standard
@pytest.mark.tff
def test_another_epsilon_in_the_configuration_is_noticed(run):
    assert threat_model.readers(run.directory)[archive.BEFORE] == 'everyone'
    path = run.directory / archive.CONFIG
    text = path.read_text()
    try:
        path.write_text(text.replace('"vocabulary_epsilon": 30.0', '"vocabulary_epsilon": 3.0'))
        found = ' '.join(verification.verify(run.directory).differences)
        assert 'plan.json: before[0].noise_multiplier is' in found
    finally:
        path.write_text(text)


@pytest.mark.standard
@pytest.mark.tff
def test_a_run_that_goes_on_keeps_its_words(config, run, tmp_path, monkeypatch):
    path, longer = tmp_path / 'run', config.with_values({'rounds': 2})
    shutil.copytree(run.directory, path)
    text = (path / archive.BEFORE).read_text()
    monkeypatch.setattr(WordRelease, 'find', lambda *_: pytest.fail('drawn twice'))
    words = json.loads(text)['words']
    (path / archive.BEFORE).write_text(json.dumps({**json.loads(text), 'words': words[::-1]}))
    with pytest.raises(ArgumentError, match='must have the data and the vocabulary'):
        train(longer, path, resume=True, progress=False)
    (path / archive.BEFORE).write_text(text)
    train(longer, path, resume=True, progress=False)
    assert (path / archive.BEFORE).read_text() == text
    other = longer.with_values({'vocabulary_epsilon': 31.0})
    with pytest.raises(RunError, match='was found with other settings'):
        train(other, path, resume=True, progress=False)


@pytest.mark.standard
@pytest.mark.tff
def test_what_a_run_found_is_read_once_and_for_all(config, run, tmp_path):
    words = _words(run.directory)
    assert before_training.of_run(config, run.directory, resume=True).kept == {'words': words}
    assert before_training.of_run(config, run.directory, resume=False).kept == {}
    # A run that stopped before its first checkpoint.
    path = tmp_path / archive.BEFORE
    assert before_training.of_run(config, tmp_path, resume=True).kept == {}
    path.write_text((run.directory / archive.BEFORE).read_text())
    assert before_training.of_run(config, tmp_path, resume=True).kept == {'words': words}
    for change in (
        {'vocabulary_epsilon': 3.0},
        {'vocabulary_rounds': 1},
        {'noise_seed': None if config.noise_seed is not None else 1},
    ):
        with pytest.raises(RunError, match='was found with other settings'):
            before_training.of_run(config.with_values(change), tmp_path, resume=True)
    with pytest.raises(ArgumentError, match='before_training.json exists'):
        outputs.RunDirectory(tmp_path)
    for text in ('{"words": ["a", "a"]}', '{"words": []}', '{}', '[', '{"words": [1]}'):
        path.write_text(text)
        with pytest.raises(RunError, match='not what a run found before training'):
            before_training.of_run(config, tmp_path, resume=True)
    path.write_text(json.dumps({'words': words}))
    with pytest.raises(RunError, match='was found with other settings'):
        before_training.of_run(config, tmp_path, resume=True)
    shutil.copytree(run.directory / archive.CHECKPOINTS, tmp_path / archive.CHECKPOINTS)
    path.unlink()
    with pytest.raises(RunError, match='must exist to continue the run'):
        before_training.of_run(config, tmp_path, resume=True)


def test_noise_has_a_seed_or_comes_from_the_operating_system():
    def drawn(seed, name='words'):
        return BeforeTraining(noise_seed=seed).noise(name).standard_normal()

    assert drawn(3) == drawn(3) != drawn(4) and drawn(3) != drawn(3, 'thresholds')
    assert drawn(None) != drawn(None)


@pytest.mark.parametrize(
    'changes, message',
    [
        ({'vocabulary_epsilon': None}, 'vocabulary=private: needs vocabulary_epsilon'),
        ({'vocabulary_delta': 3e-3}, 'vocabulary_delta=0.003: must be below'),
        ({'vocabulary': 'data'}, 'vocabulary_epsilon=30.0: needs vocabulary=private'),
        ({'task': 'emnist', 'model': None}, 'vocabulary=private: needs task=stackoverflow or'),
        ({'task': 'synthetic_text'}, 'vocabulary=private: needs task=stackoverflow or'),
        ({'warm_start': 'x'}, 'warm_start=x: needs a vocabulary that is known before'),
        ({'fork_from': 'x'}, 'fork_from=x: needs a vocabulary that is known before'),
        ({'noise': 'hardened'}, 'noise=hardened: must be default with a vocabulary'),
        ({'vocabulary_epsilon': 0.1}, 'vocabulary_epsilon=0.1: found no word'),
    ],
)
def test_what_is_refused(changes, message, config, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        train(config.with_values(changes), tmp_path / 'run', progress=False)


def test_nothing_is_released_by_a_dry_run(config):
    with pytest.raises(ArgumentError, match='vocabulary=private: cannot be used in a dry run'):
        dry_run(config, progress=False)
