"""The table of words that are found privately, as its users meet it."""

import json

import pytest

from tests import forked_binaries, text_files

_SMALL = ('--heads=5,20', '--repeats=1', '--epsilons=2,60')


def test_the_words_of_a_file_and_a_plot(tmp_path):
    text_files.write_clients(tmp_path / 'data.jsonl', clients=60, sentences=3)
    data, plot = f'--data_path={tmp_path}/data.jsonl', tmp_path / 'plot.png'
    done = forked_binaries.run(
        'compare_vocabularies', data, f'--plot={plot}', '--format=json', *_SMALL
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)['rows']
    assert [row['epsilon'] for row in rows] == [0.0, 2.0, 60.0]
    assert rows[0]['words'] == 31 and rows[0]['recall_20'] == 1.0
    assert rows[1]['recall_5'] < rows[2]['recall_5']
    assert plot.read_bytes().startswith(b'\x89PNG')
    table = forked_binaries.run('compare_vocabularies', data, *_SMALL).stdout
    assert 'without noise' in table and 'Not private' in table


@pytest.mark.parametrize(
    'flags, message',
    [
        (('--epsilons=0',), '--epsilons=0'),
        (('--task=synthetic_text', '--zipf_clients=0'), '--zipf_clients=0'),
        (('--choice=any',), '--choice=any'),
        ((), '--data_path: must be given'),
    ],
)
def test_bad_flags_are_one_line(flags, message):
    done = forked_binaries.run('compare_vocabularies', *flags)
    assert done.returncode == 2 and message in done.stderr.strip().split('\n')[-1]
