"""The study as its users meet it: its page and numbers, resuming, and one-line errors."""

import functools
import json

import pytest

from experiments.debugging.text import findings
from tests import forked_binaries

_FLAGS = [
    '--flagfile=configs/debug_text.flags',
    '--vocabulary_size=96',
    '--rounds=2',
    '--min_separation=2',
    '--population=40',
    '--clients_per_round=4',
    '--eval_clients=2',
    '--samples=300',
    '--noise_seed=1',
    '--accountant=analytic_gaussian',
]
_run = functools.partial(forked_binaries.run, 'debug_text', *_FLAGS)


@pytest.mark.slow
@pytest.mark.tff
def test_the_study_from_start_to_end_and_once_more(tmp_path):
    done = _run('--bug_rates=0', f'--output_dir={tmp_path}')
    assert done.returncode == 0, done.stderr
    changed = _run(f'--output_dir={tmp_path}', '--resume', '--client_batch_size=8')
    assert changed.returncode == 2
    assert changed.stderr.splitlines()[-1] == (
        'error: --client_batch_size=8: must be 16, as when the run began'
    )
    # Settings can be added; models that are there are not trained again.
    model = tmp_path / 'joined_0' / 'word' / 'model.npz'
    before = model.stat().st_mtime_ns
    added = _run(f'--output_dir={tmp_path}', '--resume', '--bug_rates=0,1', '--format=json')
    assert added.returncode == 0, added.stderr
    assert model.stat().st_mtime_ns == before
    assert 'joined_0/word: is finished' in added.stderr

    study = json.loads(added.stdout)
    assert study == json.loads((tmp_path / 'study.json').read_text())
    clean, faulty = study['settings']
    assert clean['conclusion'] is None and faulty['name'] == '100%'
    assert faulty['heldout_oov_rate'] > clean['heldout_oov_rate'] + 0.05
    for setting in study['settings']:
        assert len(setting['oov_rate_by_position']) == 10
        assert len(setting['phrases']) == 10
        probabilities = [word['probability'] for word in setting['ranking']['words']]
        assert probabilities == sorted(probabilities, reverse=True)
        # After two rounds of noise that differs from run to run, samples may hold fewer words.
        assert 1 <= len(probabilities) <= 20
        epsilons = [model['epsilon'] for model in setting['models'].values()]
        assert 8 * (1 - 1e-4) < min(epsilons) and max(epsilons) <= 8
        # Two Gaussian mechanisms of equal mu, each on its own below 8 and together below 16.
        assert 8 < setting['together'] < 16
    for kind in ('word', 'char'):
        report = json.loads((tmp_path / 'joined_1' / kind / 'privacy_report.json').read_text())
        assert report['epsilon'] == faulty['models'][kind]['epsilon']

    page = (tmp_path / 'study.html').read_text()
    assert page.count('<svg') == 1 and '<script' not in page and 'src=' not in page
    assert faulty['conclusion']['verdict'] in page
    assert f'{findings.CLEAR_DIFFERENCE:.0%}' in page and 'this is a simulation' in page


@pytest.mark.parametrize(
    'flags, message',
    [
        (['--bug_rates=0.1,1'], '--bug_rates=0.1,1: must be different numbers'),
        (['--bug_rates=0,nan'], '--bug_rates=nan: must be a finite number'),
        (['--bug_rates=0,x'], '--bug_rates=0,x: must be comma-separated numbers'),
        (['--char_model=huge'], '--char_model=huge: must be one of char_cifg_256'),
        (['--word_clip_norm=0'], '--word_clip_norm=0.0: must be a finite number > 0'),
        (['--client_learning_rate=nan'], '--client_learning_rate=nan: must be a finite number > 0'),
        (['--population=4'], '--population=4: must be at least'),
        (['--samples=1'], '--samples=1: must be'),
    ],
)
def test_bad_flags_are_one_line(flags, message, tmp_path):
    done = _run(*flags, f'--output_dir={tmp_path}')
    assert done.returncode == 2 and done.stdout == ''
    assert done.stderr.startswith(f'error: {message}')
    assert len(done.stderr.splitlines()) == 1
