"""The printed proposal runs as printed."""

import json
import shlex

import pytest

from tests import binaries, forked_binaries, text_files


@pytest.mark.tff
def test_the_command_runs_as_printed(tmp_path):
    text_files.write_clients(tmp_path / 'a b.jsonl', 40)
    text_files.write_words(tmp_path / 'words.txt')
    flags = (
        f'--data_path={tmp_path}/a b.jsonl',
        f'--vocabulary_file={tmp_path}/words.txt',
        '--model=micro',
        '--rounds=2',
    )
    done = forked_binaries.run('suggest', *flags, '--format=json')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['data']['clients_to_train_on'] == 36
    assert 'does not cover' in found['not_covered']
    assert all(each['reason'] for each in found['settings'])
    _, module, name, *arguments = shlex.split(found['command'])
    assert (module, name) == ('-m', 'experiments.train')
    *settings, directory = arguments
    assert directory == '--output_dir=runs/suggested'
    run = forked_binaries.run('train', *settings, f'--output_dir={tmp_path}/run', '--format=json')
    assert run.returncode == 0, run.stderr
    values = json.loads(run.stdout)
    assert values['rounds'] == 2 and values['unigram_accuracy'] > 0
    # The user is told if the model has learnt nothing yet, and only then.
    is_told = 'dpfl suggest proposes' in run.stderr
    assert is_told == (values['accuracy'] < values['unigram_accuracy'])


@pytest.mark.tff
def test_the_report_of_the_run_says_which_flags_were_found_on_the_data(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 40)
    text_files.write_words(tmp_path / 'words.txt')
    flagfile, directory = tmp_path / 'run.flags', tmp_path / 'run'
    done = forked_binaries.run(
        'suggest',
        f'--data_path={tmp_path}/a.jsonl',
        f'--vocabulary_file={tmp_path}/words.txt',
        '--model=micro',
        '--rounds=2',
        f'--output={flagfile}',
        '--format=json',
    )
    assert done.returncode == 0, done.stderr
    settings = json.loads(done.stdout)['settings']
    names = [each['flag'] for each in settings if each['is_from_data']]
    assert {'clip_norm', 'client_learning_rate', 'sentence_length', 'vocabulary_size'} < {*names}
    assert not {'rounds', 'mechanism', 'server_momentum', 'eval_every'} & {*names}

    flags = (f'--flagfile={flagfile}', f'--output_dir={directory}')

    def report(done):
        assert done.returncode == 0, done.stderr
        return json.loads((directory / 'privacy_report.json').read_text())

    found = report(forked_binaries.run('train', *flags))

    [line] = [each for each in found['not_covered'] if each.startswith('The choice of')]
    assert line == (
        f'The choice of {", ".join(names)}: the values were chosen by looking at the data of '
        'clients without noise.'
    )
    config = json.loads((directory / 'config.json').read_text())
    assert config['chosen_without_noise'] == names
    verified = forked_binaries.run('report_privacy', f'--run_dir={directory}')
    assert verified.returncode == 0 and line in verified.stdout, verified.stderr
    # A run does not lose the mark when it goes on.
    longer = (*flags, '--rounds=3', '--max_participations=3', '--resume')
    other = forked_binaries.run('train', *longer, '--chosen_without_noise=')
    assert other.returncode == 2 and '--chosen_without_noise=' in other.stderr
    found = report(binaries.run('train', *longer))
    assert found['rounds'] == 3 and line in found['not_covered']


@pytest.mark.tff
@pytest.mark.exhaustive
def test_a_flagfile_has_the_same_flags(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 40)
    text_files.write_words(tmp_path / 'words.txt')
    done = forked_binaries.run(
        'suggest',
        f'--data_path={tmp_path}/a.jsonl',
        f'--vocabulary_file={tmp_path}/words.txt',
        '--model=micro',
        '--target_epsilon=8',
        '--rounds=3',
        f'--output={tmp_path}/run.flags',
    )
    assert done.returncode == 0, done.stderr
    assert f'--flagfile={tmp_path}/run.flags' in done.stdout and 'Not private' in done.stdout
    lines = (tmp_path / 'run.flags').read_text().splitlines()
    assert '--mechanism=auto' in lines and '--target_epsilon=8.0' in lines
    run = forked_binaries.run(
        'train', f'--flagfile={tmp_path}/run.flags', f'--output_dir={tmp_path}/run'
    )
    assert run.returncode == 0, run.stderr


def test_bad_values_are_refused_in_one_line(tmp_path):
    done = forked_binaries.run('suggest', f'--data_path={tmp_path}/absent.jsonl')
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith('error: --vocabulary_file: must be')
