"""The five lines at the end of a run."""

import numpy as np
import pytest

from dpfl.accounting.records import archive
from dpfl.cli.results import train_command
from dpfl.simulation import run_directory
from dpfl.simulation.training import TrainResult
from tests.accounting import archives

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
    'name, accuracy, references, learnt, what_next',
    [
        ('good', 0.2, _TEXT, 'Learned: accuracy 0.2 on held-out clients; always', 'export_run'),
        ('good', 0.1, _TEXT, 'Not learned: accuracy 0.1 on held-out clients; ', 'rounds'),
        ('good', 0.01, {'uniform_accuracy': 0.02}, 'Not learned: accuracy 0.01 on', 'rounds'),
        ('good', None, {}, 'Trained 6 rounds.', 'export_run'),
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
