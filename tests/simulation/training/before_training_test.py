"""Runs that find words privately before training, and runs on selected text."""

import functools
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
from dpfl.simulation.training import execution, prepared_task, run_data, train
from dpfl.simulation.training.plan import build_plan
from dpfl.tasks.before_training import WordRelease
from dpfl.tasks.config import TextConfig
from tests import text_files
from tests.repository import threat_model
from tests.simulation.training import small_config
from tests.sizes import trains

pytestmark = pytest.mark.usefixtures('undrawn')

_ONE_ROUND = {'rounds': 1, 'min_separation': 1}
_WORDS = WordRelease.of_guarantee(30.0, 1e-3, words_per_client=20)


@pytest.fixture(scope='module', name='config')
def _config(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'data.jsonl'
    text_files.write_clients(path, clients=90, sentences=4)
    changes = {**small_config.PRIVATE_WORDS, **_ONE_ROUND, 'data_path': str(path)}
    return small_config.GAUSSIAN.with_values(changes)


def _report(path):
    return json.loads((path / archive.REPORT).read_text())


@trains
def test_the_guarantee_counts_the_words(config):
    run = small_config.finished(config)
    words = json.loads((run.directory / archive.BEFORE).read_text())['words']
    assert len(words) > 12 and set(words) <= {f'wa{chr(97 + i)}' for i in range(26)} | {'.'} | {
        f'wb{chr(97 + i)}' for i in range(4)
    }
    # Who opens the finished run has the words of its model, not all that were found.
    kept = prepared_task.of_run(config, kept=prepared_task.recorded(run.directory))
    opened = config.task.open(config.seed, lambda text: None, kept)
    assert list(opened.load().language_model[1]) == words[:12]
    # The guarantee is that of the rounds together with the draw.
    plan, before = run.report.plan, _WORDS.before()
    assert plan.before == (before,)
    alone = plan.sensitivity / plan.noise_multiplier
    assert plan.mu == pytest.approx(math.hypot(alone, 1 / before.noise_multiplier))
    values = _report(run.directory)
    assert values['epsilon'] == plan.epsilon(1e-3) > 30
    assert not any('vocabulary: it was counted' in each for each in values['not_covered'])
    assert json.loads((run.directory / 'data.json').read_text())['vocabulary'] == {
        'words': 12,
        'from': 'vocabulary_found_privately',
    }


@trains
def test_clients_without_selected_text_take_part_with_an_update_of_zero(tmp_path):
    """A selection that nobody meets leaves the noise alone; the guarantee and the log stay."""
    config = small_config.BLT.with_values(_ONE_ROUND)
    none = config.with_values({'select_clients': ('sentences>1000000',)})
    training = ((none, 'one'), (none.with_values({'client_learning_rate': 3.0}), 'other'))
    weights = [train(each, tmp_path / name).weights for each, name in training]
    for left, right in zip(*weights, strict=True):
        np.testing.assert_array_equal(left, right)
    report = _report(tmp_path / 'one')
    plan = build_plan(config.privacy, config.sampling, population=None, dimension=None)
    assert report['rho'] == plan.rho and report['observed']['clients'] == 4
    assert any('on clients with sentences>1000000' in each for each in report['remarks'])


@trains
def test_a_model_of_an_earlier_run_selects(tmp_path):
    short = small_config.BLT.with_values(_ONE_ROUND)
    first = small_config.finished(short)
    config = short.with_values(
        {'select_clients': ('loss>0',), 'selection_model': str(first.directory)}
    )
    train(config, tmp_path / 'run')
    not_covered = _report(tmp_path / 'run')['not_covered']
    assert any(each.startswith('The model that selects') for each in not_covered)
    larger = config.with_values({'vocabulary_size': 41})
    with pytest.raises(ValueError, match='selection_model.*another vocabulary'):
        train(larger, tmp_path / 'other')


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
    for recorded, other in ((values, values | {'clients': [1, 3]}), ({}, values)):
        with pytest.raises(ValueError, match='must '):
            run_data.require(recorded, other)


# --- A draw is made once, and is on record before anybody sees its result.


@trains
def test_a_run_that_goes_on_keeps_its_words(config, tmp_path, monkeypatch):
    path = small_config.copied(tmp_path / 'run', config)
    longer = config.with_values({'rounds': 2})
    assert threat_model.readers(path)[archive.BEFORE] == 'everyone'
    text = (path / archive.BEFORE).read_text()
    monkeypatch.setattr(WordRelease, 'find', lambda *_: pytest.fail('drawn twice'))
    (path / archive.BEFORE).unlink()  # The journal has them.
    train(longer, path, resume=True)
    assert (path / archive.BEFORE).read_text() == text
    other = longer.with_values({'vocabulary_epsilon': 31.0, 'rounds': 3})
    with pytest.raises(ArgumentError, match='vocabulary_epsilon=31.0: must be 30.0'):
        train(other, path, resume=True)


def _interrupted(config, path, monkeypatch, owner, name, **options):
    """A run that is interrupted when a function is called."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(owner, name, mock.Mock(side_effect=KeyboardInterrupt))
        train(config, path, **options)


@trains
def test_a_run_that_ends_after_the_draw_has_it_and_draws_it_once(config, tmp_path, monkeypatch):
    path, drawn, find = tmp_path / 'run', [], WordRelease.find

    def finding(*arguments):
        drawn.append(find(*arguments))
        return drawn[-1]

    monkeypatch.setattr(WordRelease, 'find', finding)
    _interrupted(config, path, monkeypatch, execution.Run, 'experiment')
    assert archive.read_journal(path).state.drawn['words'].result == drawn[0]
    with pytest.raises(ArgumentError, match='must not hold an earlier run'):
        train(config, path)
    with pytest.raises(ArgumentError, match='vocabulary_epsilon=1.0: must be 30.0, with'):
        other = config.with_values({'vocabulary_epsilon': 1.0})
        train(other, path, resume=True)
    # Settings on which no draw depends may change until the first round.
    other = config.with_values({'clip_norm': 0.25, 'vocabulary_size': 9})
    result = train(other, path, resume=True)
    assert len(drawn) == 1 and result.report.plan.clip_norm == 0.25
    assert result.report.plan.before == (_WORDS.before(),)
    assert run_directory.verify(path).is_verified


@trains
def test_a_draw_counts_without_its_result_and_without_its_flag(config, tmp_path, monkeypatch):
    path, words = tmp_path / 'run', tmp_path / 'words.txt'
    # After the intent, before the result.
    _interrupted(config, path, monkeypatch, WordRelease, 'find')
    (event,) = archive.read_journal(path).of_kind(journal.Drew)
    assert event.result is None
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
        train(without, path, resume=True)
    # The same draw has the same noise; with other data it would be another release.
    _interrupted(config, again, monkeypatch, execution.Run, 'experiment', resume=True)
    first = archive.read_journal(again).state.drawn['words']
    assert first.intent == event.intent and first.result


def test_one_draw_has_one_noise_and_another_intent_another(tmp_path):
    directory = run_directory.RunDirectory(tmp_path / 'run')
    normal = np.random.Generator.standard_normal
    with directory.in_use():
        begin = functools.partial(directory.begin, {}, {})
        draw = functools.partial(prepared_task.draw, directory, begin)
        release = {'release': {'name': 'a', 'noise_multiplier': 1.0}}

        def drawn(what, data, **intent):
            noise = draw(what, release | intent, [np.array(data)], normal, None)
            again = draw(what, release | intent, [np.array(data)], pytest.fail, None)
            assert noise == again
            return noise

        assert len({drawn('a', 1), drawn('b', 1), drawn('c', 2), drawn('d', 1, delta=1)}) == 4
        with pytest.raises(errors.RunError, match='a were drawn from other data of the clients'):
            draw('a', release, [np.array(2)], normal, None)
        with pytest.raises(ArgumentError, match='delta=2: must be 1, with which d were drawn'):
            draw('d', release | {'delta': 2}, [np.array(1)], normal, None)
        seeded = [draw(f'words{i}', release, [np.array(1)], normal, i) for i in (3, 4)]
    assert seeded[0] != seeded[1]
    with run_directory.RunDirectory(tmp_path / 'run', resume=True).in_use():
        pass
