"""The printed yardstick."""

import json

from tests import forked_binaries, text_files


def test_table_and_json_have_the_same_measures(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 20)
    text_files.write_words(tmp_path / 'words.txt')
    flags = (f'--data_path={tmp_path}/a.jsonl', f'--vocabulary_file={tmp_path}/words.txt')
    done = forked_binaries.run('text_baselines', *flags, '--format=json')
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['counted_on'] == 'training_clients' and 'Not private' in found['not_covered']
    assert found['unigram_accuracy'] < found['bigram_accuracy']
    table = forked_binaries.run('text_baselines', *flags)
    assert found['not_covered'] in table.stdout
    (line,) = (line for line in table.stdout.splitlines() if line.split()[:1] == ['trigram'])
    measures = ('accuracy', 'accuracy_with_oov', 'loss', 'perplexity')
    assert line.split()[1:] == [f'{found[f"trigram_{name}"]:.4g}' for name in measures]


def test_bad_values_are_refused_in_one_line(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 20)
    text_files.write_words(tmp_path / 'words.txt')
    done = forked_binaries.run(
        'text_baselines',
        f'--data_path={tmp_path}/a.jsonl',
        f'--vocabulary_file={tmp_path}/words.txt',
        '--counted_on=public_text',
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith('error: --counted_on=public_text: needs')
