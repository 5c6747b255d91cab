"""Runs whose vocabulary is found privately: what they keep, count and refuse."""

import json
import math
import shutil
from unittest import mock

import numpy as np
import pytest

from dpfl import errors
from dpfl.accounting.records import archive, journal
from dpfl.errors import ArgumentError
from dpfl.simulation import run_directory
from dpfl.simulation.training import dry_run, execution, federated, train
from dpfl.tasks.config import TextConfig
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
    assert len(words) > 12 and set(words) <= {f'wa{chr(97 + i)}' for i in range(26)} | {'.'} | {
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
def test_a_run_that_goes_on_keeps_its_words(config, run, tmp_path, monkeypatch):
    assert threat_model.readers(run.directory)[archive.BEFORE] == 'everyone'
    path, longer = tmp_path / 'run', config.with_values({'rounds': 2})
    shutil.copytree(run.directory, path)
    text = (path / archive.BEFORE).read_text()
    monkeypatch.setattr(WordRelease, 'find', lambda *_: pytest.fail('drawn twice'))
    (path / archive.BEFORE).unlink()  # The journal has them.
    train(longer, path, resume=True, progress=False)
    assert (path / archive.BEFORE).read_text() == text
    other = longer.with_values({'vocabulary_epsilon': 31.0, 'rounds': 3})
    with pytest.raises(ArgumentError, match='vocabulary_epsilon=31.0: must be 30.0'):
        train(other, path, resume=True, progress=False)


def _failed(config, path, **changes):
    with pytest.raises((ArgumentError, KeyboardInterrupt)) as caught:
        train(config.with_values(changes), path, progress=False)
    return str(caught.value)


@pytest.mark.parametrize(
    'changes',
    [
        {'clients_per_round': 5000},
        {'population': 100_000},
        {'min_separation': 0},
        {'secagg': True, 'secagg_bits': 2},
    ],
)
def test_what_can_be_refused_is_refused_before_the_draw(config, tmp_path, monkeypatch, changes):
    """A private vocabulary was drawn, shown and forgotten, and the next call drew again."""
    monkeypatch.setattr(WordRelease, 'find', lambda *_: pytest.fail('drawn'))
    *_, name = changes
    assert _failed(config, tmp_path / 'run', **changes).startswith(name)
    assert not (tmp_path / 'run').exists()


@pytest.mark.standard
@pytest.mark.tff
def test_a_run_that_ends_after_the_draw_has_it_and_draws_it_once(config, tmp_path, monkeypatch):
    path, drawn = tmp_path / 'run', []
    find = WordRelease.find

    def finding(*arguments):
        drawn.append(find(*arguments))
        return drawn[-1]

    monkeypatch.setattr(WordRelease, 'find', finding)
    with monkeypatch.context() as patched:
        stop = mock.Mock(side_effect=KeyboardInterrupt)
        patched.setattr(federated, 'build_experiment', stop)
        _failed(config, path)
    assert archive.read_journal(path).state.drawn['words'].result == drawn[0]
    with pytest.raises(ArgumentError, match='must not hold an earlier run'):
        train(config, path, progress=False)
    with pytest.raises(ArgumentError, match='vocabulary_rounds=1: must be 3, with which words'):
        other = config.with_values({'vocabulary_rounds': 1})
        train(other, path, resume=True, progress=False)
    # Settings on which no draw depends may change until the first round.
    other = config.with_values({'clip_norm': 0.25, 'vocabulary_size': 9})
    result = train(other, path, resume=True, progress=False)
    assert len(drawn) == 1 and result.report.plan.clip_norm == 0.25
    release = WordRelease.of_guarantee(30.0, 1e-3, words_per_client=20)
    assert result.report.plan.before == (release.before(),)
    assert run_directory.verify(path).is_verified


@pytest.mark.standard
@pytest.mark.tff
def test_a_draw_counts_without_its_result_and_without_its_flag(config, tmp_path, monkeypatch):
    path = tmp_path / 'run'
    with monkeypatch.context() as patched:
        stop = mock.Mock(side_effect=KeyboardInterrupt)
        patched.setattr(WordRelease, 'find', stop)  # After the intent, before the result.
        _failed(config, path)
    (event,) = archive.read_journal(path).of_kind(journal.Drew)
    assert event.result is None
    words = tmp_path / 'words.txt'
    words.write_text('\n'.join('abcdefghijklmnop'))
    without = config.with_values(
        {
            'vocabulary': None,
            'vocabulary_epsilon': None,
            'vocabulary_words_per_client': TextConfig().vocabulary_words_per_client,
            'vocabulary_file': str(words),
        }
    )
    again = shutil.copytree(path, tmp_path / 'again')
    with pytest.raises(errors.RunError, match='words were drawn and their result is not known'):
        train(without, path, resume=True, progress=False)
    # The same draw has the same noise; with other data it would be another release.
    train(config, again, resume=True, progress=False)
    first = archive.read_journal(again).state.drawn['words']
    assert first.intent == event.intent and first.result


def test_one_draw_has_one_noise_and_another_intent_another(tmp_path):
    directory = run_directory.RunDirectory(tmp_path / 'run')
    with directory.in_use():
        run = execution.Run(directory=directory, configuration={}, settings={})
        release = {'release': {'name': 'a', 'noise_multiplier': 1.0}}

        def drawn(what, data, **intent):
            noise = run.draw(what, release | intent, [np.array(data)], _normal, None)
            again = run.draw(what, release | intent, [np.array(data)], pytest.fail, None)
            assert noise == again
            return noise

        assert len({drawn('a', 1), drawn('b', 1), drawn('c', 2), drawn('d', 1, delta=1)}) == 4
        with pytest.raises(errors.RunError, match='a were drawn from other data of the clients'):
            run.draw('a', release, [np.array(2)], _normal, None)
        with pytest.raises(ArgumentError, match='delta=2: must be 1, with which d were drawn'):
            run.draw('d', release | {'delta': 2}, [np.array(1)], _normal, None)
        seeded = [run.draw(f'words{i}', release, [np.array(1)], _normal, i) for i in (3, 4)]
    assert seeded[0] != seeded[1]
    with run_directory.RunDirectory(tmp_path / 'run', resume=True).in_use():
        pass


def _normal(noise):
    return noise.standard_normal()


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
