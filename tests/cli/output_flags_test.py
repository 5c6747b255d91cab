"""The directory of a run, and the last lines that a run prints."""

import signal
import types

import numpy as np
import pytest

from dpfl import _json
from dpfl.accounting.records import archive
from dpfl.cli.command import command_line, program
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.output_flags import RunDirectoryConfig
from dpfl.cli.results import train_command
from dpfl.runtime import signals
from dpfl.simulation import checkpoint, run_directory
from dpfl.simulation.training import TrainResult
from tests.accounting import archives


@pytest.mark.parametrize(
    'name', ['two\nlines', ' at its end ', 'a\0b', b'\xff'.decode(errors='surrogateescape')]
)
def test_names_that_no_line_of_flags_can_hold_are_refused(name):
    config = RunDirectoryConfig(output_dir=name)
    with pytest.raises(command_line.UsageError, match='must have printable characters') as caught:
        output_flags.directory(config)
    assert '\n' not in str(caught.value) and str(caught.value).isascii()


@pytest.mark.parametrize('error', [KeyboardInterrupt(), signals.Terminated(signal.SIGTERM)])
@pytest.mark.parametrize(
    ('name', 'rounds', 'said'),
    [('train', 1, '1 round is'), ('train_gan', 3, '3 rounds are'), ('train', None, None)],
)
def test_a_run_that_a_signal_ends_names_the_command_that_continues_what_it_saved(
    monkeypatch, tmp_path, name, error, rounds, said
):
    if rounds is not None:
        saved = types.SimpleNamespace(rounds=rounds)
        monkeypatch.setattr(checkpoint, 'latest', lambda *arguments: saved)
    path = tmp_path / 'a run'
    config = RunDirectoryConfig(output_dir=str(path))
    with pytest.raises(type(error)) as end, train_command.saying_what_is_saved(config, name):
        raise error
    command = program.command(name, f'--output_dir={path}', '--resume')
    assert f"{name} '--output_dir=" in command
    if rounds is None:
        assert end.value is error
    else:
        assert str(end.value) == f'{said} saved in {path}; this continues: {command}'


_TEXT = {'unigram_accuracy': 0.1, 'bigram_accuracy': 0.3}


@pytest.fixture(scope='module', name='runs')
def _runs(tmp_path_factory):
    """Finished runs: one as it should be, a simulation, and one without noise."""
    path = tmp_path_factory.mktemp('runs')
    changes = {'good': {}, 'simulation': {'noise_seed': 1}, 'silent': {'noise_multiplier': 0.0}}
    return {
        name: archives.write_run(path / name, archives.CONFIG.with_values(values))
        for name, values in changes.items()
    }


@pytest.mark.parametrize(
    ('name', 'accuracy', 'references', 'learnt', 'what_next'),
    [
        ('good', 0.2, _TEXT, 'Learned: accuracy 0.2 on held-out clients; always', 'export_run'),
        ('good', 0.1, _TEXT, 'Not learned: accuracy 0.1 on held-out clients; ', 'rounds'),
        ('good', 0.01, {'uniform_accuracy': 0.02}, 'Not learned: accuracy 0.01 on', 'rounds'),
        ('good', None, {}, 'Trained 6 rounds.', 'export_run'),
        ('good', 0.2, {}, 'Trained 6 rounds: accuracy 0.2 on held-out clients.', 'export_run'),
        ('good', 0.99, {'cannot_tell_apart': 0.5}, 'Trained 6 rounds: accuracy 0.99', 'export_run'),
        ('simulation', 0.2, _TEXT, 'Learned: ', 'is a simulation'),
        ('silent', 0.2, _TEXT, 'Learned: ', 'the same flags with noise'),
    ],
)
@pytest.mark.standard
def test_a_run_ends_with_five_lines(runs, capsys, name, accuracy, references, learnt, what_next):
    path = runs[name]
    metrics = {} if accuracy is None else {'accuracy': np.array([np.nan, accuracy])}
    report = archive.Records.read(path).report()
    train_command.print_result(TrainResult(path, report, metrics, (), references), 'text')
    first, guarantee, page, verify, last = capsys.readouterr().out.splitlines()
    assert first.startswith(learnt)
    assert guarantee == f'Guarantee: {report.to_dict()["statement"]}'
    assert page == f'Page: {path / run_directory.HTML_REPORT}'
    assert verify.startswith('Verify: ') and verify.endswith(f' report --run_dir={path}')
    assert last.startswith('Next: ') and what_next in last


@pytest.mark.standard
def test_a_run_that_diverged_has_no_loss_of_an_earlier_round(runs, capsys):
    report = archive.Records.read(runs['good']).report()
    metrics = {'round': np.array([1, 2]), 'loss': np.array([2.0, np.nan])}
    metrics['perplexity'] = np.array([8.0, np.inf])
    result = TrainResult(runs['good'], report, {**metrics, 'accuracy': np.zeros(2)}, ())
    train_command.print_result(result, 'json')
    printed = _json.loads(capsys.readouterr().out)
    assert printed['loss'] is printed['perplexity'] is None and printed['accuracy'] == 0.0
