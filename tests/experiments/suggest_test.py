"""The printed proposal runs as printed, and the report of the run says what was looked at."""

import json
import shlex

import pytest

from tests import forked_binaries, text_files
from tests.tasks.text import repositories


@pytest.mark.exhaustive
@pytest.mark.tff
def test_the_command_runs_as_printed_and_its_report_names_what_was_found_on_the_data(tmp_path):
    text_files.write_clients(tmp_path / 'a b.jsonl', 40)
    text_files.write_words(tmp_path / 'words.txt')
    flagfile, directory = tmp_path / 'run.flags', f'--output_dir={tmp_path}/run'
    found = forked_binaries.printed(
        'suggest',
        f'--data_path={tmp_path}/a b.jsonl',
        f'--vocabulary_file={tmp_path}/words.txt',
        '--model=micro',
        '--rounds=2',
        f'--output={flagfile}',
    )
    assert found['data']['clients_to_train_on'] == 36
    assert 'does not cover' in found['not_covered']
    assert all(each['reason'] for each in found['settings'])
    names = [each['flag'] for each in found['settings'] if each['is_from_data']]
    assert {'clip_norm', 'client_learning_rate', 'sentence_length', 'vocabulary_size'} < {*names}
    assert not {'rounds', 'mechanism', 'server_momentum', 'eval_every'} & {*names}
    assert found['feasible'] in ('yes', 'doubtful', 'no') and found['noise_to_signal'] == 0
    assert any('most frequent word' in sentence for sentence in found['advice'])

    program, name, *settings = shlex.split(found['command'])
    assert program.endswith('dpfl') and name == 'train'
    run = forked_binaries.run('train', *settings, directory, '--format=json', check=True)
    values = json.loads(run.stdout)
    assert values['rounds'] == 2 and values['unigram_accuracy'] > 0
    assert 'feasible: ' in run.stderr  # Before the first round.

    report = json.loads((tmp_path / 'run' / 'privacy_report.json').read_text())
    [line] = [each for each in report['not_covered'] if each.startswith('The choice of')]
    assert line == (
        f'The choice of {", ".join(names)}: the values were chosen by looking at the data of '
        'clients without noise.'
    )
    config = json.loads((tmp_path / 'run' / 'config.json').read_text())
    assert config['chosen_without_noise'] == names
    # A run does not lose the mark when it goes on.
    flags = (f'--flagfile={flagfile}', directory, '--resume', '--rounds=3')
    longer = forked_binaries.run('train', *flags, '--chosen_without_noise=')
    assert longer.returncode == 2 and '--chosen_without_noise=' in longer.stderr


@pytest.mark.exhaustive
@pytest.mark.tff
def test_it_looks_at_commits(tmp_path):
    path = repositories.of_authors(tmp_path / 'a', 12)
    flags = ('--task=git_log', f'--data_path={path}', f'--vocabulary_text={path}')
    found = forked_binaries.printed(
        'suggest', *flags, '--model=micro', '--rounds=3', DPFL_CACHE_DIR=str(tmp_path / 'cache')
    )
    assert found['data']['clients_to_train_on'] == 11
    assert '--task=git_log' in found['command']
