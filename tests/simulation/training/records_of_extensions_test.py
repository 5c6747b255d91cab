"""What journal and plan keep of a run that goes on with other rounds."""

import dataclasses

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.accounting.records import archive, journal
from dpfl.accounting.reports import inputs
from dpfl.cli.results import verified_run
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import extension, program, run_directory, state
from tests.accounting import archives
from tests.simulation import toy_experiment


def test_what_begins_like_another_mechanism():
    blt = mechanisms.Blt(6, [0.9], [0.2])
    assert mechanisms.Blt(9, [0.9], [0.2]).begins_like(blt, 6)
    assert not mechanisms.Blt(9, [0.9], [0.3]).begins_like(blt, 6)
    assert not mechanisms.BinaryTree(9).begins_like(blt, 6)
    assert not blt.begins_like(mechanisms.Blt(9, [0.9], [0.2]), 7)
    tree = mechanisms.BinaryTree
    short = mechanisms.Restarted.every(tree(6), 1, 3)
    assert mechanisms.Restarted.every(tree(9), 1, 3).begins_like(short, 6)
    assert not mechanisms.Restarted.every(tree(9), 1, 4).begins_like(short, 6)
    full = mechanisms.FullHonakerTree
    assert full(4).begins_like(full(4), 4) and not full(8).begins_like(full(4), 4)


def test_past_noise_in_another_place_is_refused():
    plan, saved = archives.make_record().plan, [np.zeros(1), np.zeros(2)]
    state.require_places(saved, {'a': saved[0], 'b': saved[1]}, plan)
    with pytest.raises(RunError, match='past noise of 2 copies of the model would be kept in'):
        state.require_places(saved, {'a': saved[0]}, plan)


@pytest.mark.parametrize(
    'changes', [{'released': 6}, {'rounds': 5}, {'rounds': 4}, {'switched': True}]
)
def test_no_journal_and_no_plan_has_an_extension_of_nothing(changes):
    fields = {'released': 2, 'planned': 5, 'rounds': 6, **changes}
    others = {'record': {}, 'configuration': {}, 'settings': None, 'files': {}}
    with pytest.raises((ArgumentError, TypeError)):
        journal.Extended(**fields, **others)
    with pytest.raises(ArgumentError, match='rounds=|extensions: has another matrix, which commit'):
        inputs.read({'extensions': [fields]}, ())


@pytest.mark.usefixtures('undrawn')
def test_a_longer_run_with_other_cohorts_is_refused(tmp_path):
    experiment = toy_experiment.in_numpy()
    directory = run_directory.RunDirectory(tmp_path)
    program.run_training(experiment, directory)
    sampler = dataclasses.replace(experiment.sampler, seed=1)
    other = dataclasses.replace(experiment, sampler=sampler)
    with directory.in_use(), pytest.raises(RunError, match='round 1 had another cohort'):
        extension.commit(other, directory, None, settings=None, files={})


@pytest.mark.usefixtures('undrawn')
@pytest.mark.parametrize('how', ['finished', 'stopped', 'extended'])
def test_tables_and_pages_are_written_again_to_the_same_bytes(tmp_path, monkeypatch, how):
    directory = run_directory.RunDirectory(tmp_path, resume=True)
    experiment = toy_experiment.in_numpy()

    def stop():
        raise KeyError('stopped')

    if how == 'stopped':
        with pytest.raises(KeyError):
            program.run_training(toy_experiment.failing(experiment, 2, stop), directory)
    else:
        program.run_training(experiment, directory)
    if how == 'extended':
        _extend(directory, monkeypatch)
    begun = {'finished': 4, 'stopped': 2, 'extended': 6}[how]
    assert archive.read_journal(tmp_path).state.begun == begun
    tables = run_directory.tables(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in tables}
    assert {'SHA256SUMS', 'plan.json', 'metrics.csv', 'privacy_report.html'} < {*before}
    for name in before:
        (tmp_path / name).unlink()
    verified_run.write_pages(str(tmp_path))
    assert {
        name: (tmp_path / name).read_bytes() for name in run_directory.tables(tmp_path)
    } == before


def _extend(directory, monkeypatch):
    # Past noise of this process is nowhere.
    restore = lambda saved, template, plan: state.restore(saved, template)  # noqa: E731
    monkeypatch.setattr(state, 'restore_longer', restore)
    longer = toy_experiment.in_numpy(rounds=6)
    with directory.in_use():
        saved = program.start(directory, pytest.fail)
        extension.commit(longer, directory, saved.state, settings=None, files={})
        program.run_training(longer, directory, saved=saved)


@pytest.mark.usefixtures('undrawn')
@pytest.mark.parametrize('t', [1, 3, 5])
def test_epsilon_of_each_round_is_that_of_the_plan_in_force(tmp_path, monkeypatch, t):
    directory = run_directory.RunDirectory(tmp_path, resume=True)
    program.run_training(toy_experiment.in_numpy(), directory)
    _extend(directory, monkeypatch)
    assert not _about_epsilon(tmp_path)
    events = archive.read_journal(tmp_path).events
    forged = [
        dataclasses.replace(each, metrics={**each.metrics, 'epsilon': 0.01})
        if isinstance(each, journal.Released) and each.round == t
        else each
        for each in events
    ]
    (tmp_path / archive.LEDGER).write_bytes(archives.encoded(forged))
    assert _about_epsilon(tmp_path) == [f'metrics.csv: epsilon after round {t + 1} must be']


def _about_epsilon(path):
    found = run_directory.verify(path).differences
    return [each.rpartition(' ')[0] for each in found if 'epsilon after round' in each]
