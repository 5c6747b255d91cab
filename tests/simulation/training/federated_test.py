"""Runs as calls: the bits of the binary's, any number of them in a process, and resumable."""

import dataclasses
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import ParticipationLog
from dpfl.cli.command import command_line
from dpfl.cli.results import report_files
from dpfl.errors import ArgumentError
from dpfl.simulation import run_directory
from dpfl.simulation.training import train
from dpfl.tasks import own_data
from dpfl.tasks.config import TaskConfig
from tests import binaries, forked_binaries, runs
from tests.accounting import archives
from tests.simulation import toy_experiment
from tests.simulation.training import small_config
from tests.sizes import trains

_CONFIG = small_config.BLT
_SAME = ('model.npz', 'participation.npz', 'plan.json', 'config.json')


@trains
def test_a_call_and_the_binary_leave_the_same_bits(tmp_path):
    path = small_config.finished().directory
    # A process of its own: a fork has the threads of another process.
    done = binaries.run('train', *small_config.flags(), f'--output_dir={tmp_path}/run')
    assert done.returncode == 0, done.stderr
    for name in _SAME:
        assert (path / name).read_bytes() == (tmp_path / 'run' / name).read_bytes(), name
    assert runs.report(path) == runs.report(tmp_path / 'run')
    forked_binaries.run('report_privacy', f'--run_dir={path}', check=True)


@trains
def test_the_result_has_what_the_directory_has(tmp_path):
    result, path = small_config.finished(), small_config.copied(tmp_path / 'run')
    assert result.metrics['round'].tolist() == [1, 2, 3, 4]
    for name in ('loss', 'perplexity', 'accuracy_top5_with_oov', 'accuracy_q50'):
        assert np.isnan(result.metrics[name]).tolist() == [True, False, True, False], name
        assert result.last[name] == result.metrics[name][-1]
    with np.load(path / 'model.npz') as arrays:
        for number, weight in enumerate(result.weights):
            np.testing.assert_array_equal(weight, arrays[str(number)])
    # What changes no bit may change.
    config = _CONFIG.with_values({'checkpoint_every': 1, 'keep_checkpoints': 2})
    again = train(config, path, resume=True)
    assert again.last == result.last and again.report.to_json() == result.report.to_json()
    assert again.reference_accuracies == result.reference_accuracies != {}


@trains
@pytest.mark.usefixtures('own_run')
def test_more_runs_in_one_process_leave_nothing_behind(tmp_path):
    first = small_config.finished()
    threads = {thread.name for thread in threading.enumerate()}
    context = tff.framework.get_context_stack().current
    again = train(_CONFIG, tmp_path / 'again', progress=False)
    assert runs.differences(first.directory, tmp_path / 'again') == []
    for mine, same in zip(first.weights, again.weights, strict=True):
        np.testing.assert_array_equal(mine, same)
    assert {thread.name for thread in threading.enumerate()} <= threads
    assert tff.framework.get_context_stack().current is context


_OWN = dataclasses.replace(
    _CONFIG.with_values({'clients_per_round': 3, 'population': None, 'min_separation': 2}),
    task=TaskConfig(),
)


@pytest.fixture(scope='module', name='own_run')
def _own_run(tmp_path_factory):
    """The directory of two rounds of a task of one's own."""
    path = tmp_path_factory.mktemp('own') / 'run'
    train(_OWN.with_values({'rounds': 2}), path, task=_own_task())
    return path


@pytest.fixture(scope='module', name='function_run')
def _function_run(tmp_path_factory):
    """As `own_run`, of client functions: the task has no digests of its data."""
    path = tmp_path_factory.mktemp('functions') / 'run'
    report = train(_OWN.with_values({'rounds': 2}), path, task=_client_functions()).report
    assert any('the data of this task have no digest' in text for text in report.also_not_covered)
    return path


def _client_functions(changed=None):
    """The task without digests of its data, and with other data of a client."""
    task = _own_task()

    def client_batches(client, *how):
        batches = task.client_batches(client, *how)
        if client != changed:
            return batches
        return [tf.nest.map_structure(lambda leaf: leaf[:1], batch) for batch in batches]

    return dataclasses.replace(task, client_batches=client_batches, in_memory={}, fingerprints={})


@trains
def test_a_run_and_a_continued_copy_of_it_have_no_joint_guarantee(function_run, tmp_path):
    longer = _OWN.with_values({'rounds': 3})
    one, other = (shutil.copytree(function_run, tmp_path / name) for name in ('one', 'other'))
    first = train(longer, one, task=_client_functions(), resume=True)
    log = ParticipationLog.load(one / 'participation.npz')
    *before, last = (set(log.cohort(t).tolist()) for t in range(3))
    # No check can see other data of a client that took part in no round so far.
    number = min(last.difference(*before))
    second = train(longer, other, task=_client_functions(number), resume=True)
    assert any((a != b).any() for a, b in zip(first.weights, second.weights, strict=True))
    for copy in (one, other):
        found = run_directory.verify(copy)
        assert found.differences == ()
        digest = found.report.noise_key_digest
        assert len(digest) == 64 and digest == first.report.noise_key_digest
    with pytest.raises(command_line.UsageError, match='has the noise key of report 1') as error:
        report_files.together(first.report, [str(other)])
    assert '\n' not in str(error.value)
    # Another key in plan and report does not agree with the journal.
    for name in ('plan.json', 'privacy_report.json'):
        text = (other / name).read_text().replace(digest, 'a' * 64)
        (other / name).write_text(text)
    found = ' '.join(archives.with_new_digests(other))
    assert 'plan.json: noise_key_digest is' in found
    assert 'privacy_report.json: noise_key_digest is' in found


@trains
def test_a_run_continues_with_the_data_and_the_digests_with_which_it_began(
    own_run, function_run, tmp_path
):
    longer = _OWN.with_values({'rounds': 4})
    for path, task, what in (
        (own_run, _own_task(lambda clients, heldout: (clients[::-1], heldout, 0)), 'clients'),
        (own_run, _own_task(lambda clients, heldout: (clients, heldout * 2, 0)), 'heldout'),
        (own_run, _own_task(lambda clients, heldout: (clients, heldout, 1)), 'order_seed'),
        (own_run, _client_functions(), 'clients'),
        (function_run, _own_task(), 'clients'),
    ):
        before = (path / 'ledger.jsonl').read_bytes()
        with pytest.raises(ArgumentError, match=f'{what}: must be the same'):
            train(longer, path, task=task, resume=True)
        assert (path / 'ledger.jsonl').read_bytes() == before
    # A table that is lost is written again: the journal has the digests.
    lost = shutil.copytree(own_run, tmp_path / 'lost')
    (lost / 'data.json').unlink()
    train(longer, lost, task=_own_task(), resume=True)
    assert run_directory.verify(lost).is_verified


def _own_task(change=lambda clients, heldout: (clients, heldout, 0)):
    clients = [toy_experiment.rows(client)[0] for client in range(12)]
    clients, heldout, seed = change(clients, [toy_experiment.rows(1000)[0]])
    return own_data.from_arrays(toy_experiment.model(), clients, heldout, seed=seed)


def test_a_run_goes_on_or_is_overwritten_and_not_both(tmp_path):
    with pytest.raises(ArgumentError, match='resume=True: cannot be combined with overwrite'):
        train(_CONFIG, tmp_path, resume=True, overwrite=True)
