"""The study as its users meet it: its page and numbers, resuming, and one-line errors."""

import functools
import json

import pytest

from dpfl.debugging.text import traits
from tests import forked_binaries

_FLAGS = (
    '--flagfile=configs/debug_text.flags --vocabulary_size=96 --rounds=2 --min_separation=2 '
    '--population=40 --clients_per_round=4 --eval_clients=2 --samples=300 --noise_seed=1 '
    '--accountant=analytic_gaussian'
).split()
_run = functools.partial(forked_binaries.run, 'debug_text', *_FLAGS)


@pytest.mark.exhaustive
@pytest.mark.tff
def test_the_study_from_start_to_end_and_once_more(tmp_path):
    _run('--inject=', '--inject_share=', f'--output_dir={tmp_path}', check=True)
    changed = _run(f'--output_dir={tmp_path}', '--resume', '--client_batch_size=8')
    assert changed.returncode == 2
    assert changed.stderr.splitlines()[-1] == (
        'error: --client_batch_size=8: must be 16, as when the run began'
    )
    # Cases can be added; models that are there are not trained again.
    model = tmp_path / 'as_it_is' / 'word' / 'model.npz'
    before = model.stat().st_mtime_ns
    flags = ('--resume', '--inject_share=1', '--format=json')
    added = _run(f'--output_dir={tmp_path}', *flags, check=True)
    assert model.stat().st_mtime_ns == before
    assert 'as_it_is/word: is finished' in added.stderr

    study = json.loads(added.stdout)
    assert study == json.loads((tmp_path / 'study.json').read_text())
    clean, faulty = study['cases']
    assert (clean['inject'], faulty['name']) == (None, 'joined_words, 100%')
    rates = [each['generators']['word']['heldout_oov_rate'] for each in (clean, faulty)]
    assert rates[1] > rates[0] + 0.05
    for case in study['cases']:
        word, char = (case['generators'][kind] for kind in ('word', 'char'))
        assert len(word['oov_rate_by_position']) == 10 and len(word['phrases']) == 10
        assert set(word['traits']) == set(traits.SENTENCE_NAMES)
        assert set(char['traits']) == set(traits.WORD_NAMES)
        probabilities = [each['probability'] for each in char['ranking']['words']]
        assert probabilities == sorted(probabilities, reverse=True)
        # After two rounds of noise that differs from run to run, samples may hold fewer words.
        assert 1 <= len(probabilities) <= 20
        epsilons = [each['model']['epsilon'] for each in (word, char)]
        assert 8 * (1 - 1e-4) < min(epsilons) and max(epsilons) <= 8
        # Two Gaussian mechanisms of equal mu, each on its own below 8 and together below 16.
        assert 8 < case['together'] < 16
    assert faulty['together'] < study['together'] < 2 * faulty['together']
    for kind in ('word', 'char'):
        run = tmp_path / 'as_it_is' / kind
        forked_binaries.run('report_privacy', f'--run_dir={run}', check=True)
        report = json.loads(
            (tmp_path / 'joined_words_1' / kind / 'privacy_report.json').read_text()
        )
        assert report['epsilon'] == faulty['generators'][kind]['model']['epsilon']

    *alone, compared = study['compared']
    assert [each['first'] for each in alone] == ['as it is', 'joined_words, 100%']
    assert compared['reference'] == 'as it is'
    assert len(compared['differences']) == len(traits.ALL)
    page = (tmp_path / 'study.html').read_text()
    assert page.count('<svg') == 1 and '<script' not in page and 'src=' not in page
    assert compared['verdict'] in page and 'this is a simulation' in page

    # The word model as the one that is debugged: clients for whom it does badly.
    flags = ('--inject=', '--inject_share=', '--inspect=T4,T5,T6', '--resume')
    flags += (f'--primary_model={tmp_path}/as_it_is/word', f'--output_dir={tmp_path}')
    found = forked_binaries.printed('debug_text', *_FLAGS, *flags)
    (case,) = found['cases']
    assert set(case['generators']) == {'word', 'poor', 'good'}
    assert model.stat().st_mtime_ns == before
    firsts = [each['first'] for each in found['compared']]
    assert firsts == [case['generators'][name]['of_what'] for name in ('poor', 'word')]
    # The generator is the primary model itself, to which nothing is improbable.
    assert found['ratios'][0]['private']['value'] == pytest.approx(0, abs=1e-6)
    assert found['learned'][0]['sentences'] == 300
