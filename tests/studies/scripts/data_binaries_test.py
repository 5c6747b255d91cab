"""The binaries that describe text and make files of it: tables, JSON and plots."""

import json

import pytest
from pyarrow import parquet

from tests import forked_binaries, text_files
from tests.tasks.text.messages import repositories

pytestmark = pytest.mark.standard


def _run(binary, *flags, **environment):
    done = forked_binaries.run(binary, *flags, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_words_of_a_file_and_a_plot(tmp_path):
    text_files.write_clients(tmp_path / 'data.jsonl', clients=60, sentences=3)
    flags = (f'--data_path={tmp_path}/data.jsonl', '--heads=5,20', '--repeats=1', '--epsilons=2,60')
    plot = tmp_path / 'plot.png'
    found = json.loads(
        _run('studies.compare_vocabularies', *flags, f'--plot={plot}', '--format=json')
    )
    exact, noisy, less_noisy = found['rows']
    assert [row['epsilon'] for row in found['rows']] == [0.0, 2.0, 60.0]
    assert exact['words'] == 31 and exact['recall_20'] == 1.0
    assert noisy['recall_5'] < less_noisy['recall_5']
    assert plot.read_bytes().startswith(b'\x89PNG')
    table = _run('studies.compare_vocabularies', *flags)
    assert 'without noise' in table and 'Not private' in table


def test_repositories_are_made_a_file_and_counted(tmp_path):
    path, cache = repositories.of_authors(tmp_path / 'a', 5), str(tmp_path / 'cache')
    flags = (f'--data_path={path}', f'--output={tmp_path}/out.parquet')
    made = json.loads(_run('studies.make_dataset', *flags, '--format=json', DPFL_CACHE_DIR=cache))
    rows = parquet.read_table(tmp_path / 'out.parquet').num_rows
    assert made['clients'] == made['history']['authors'] == 5
    assert made['kept']['sentences'] == rows > 0 and made['history']['commits'] == 20
    table = _run('studies.make_dataset', *flags, '--from=git', DPFL_CACHE_DIR=cache)
    cells = dict(line.split(maxsplit=1) for line in table.splitlines()[:3])
    assert cells == {'clients': '5', 'sources': 'a', 'commits': '20'}


def test_the_yardstick_of_a_text_has_the_same_measures_in_table_and_json(tmp_path):
    text_files.write_clients(tmp_path / 'a.jsonl', 20)
    text_files.write_words(tmp_path / 'words.txt')
    flags = (f'--data_path={tmp_path}/a.jsonl', f'--vocabulary_file={tmp_path}/words.txt')
    found = json.loads(_run('studies.text_baselines', *flags, '--format=json'))
    assert found['counted_on'] == 'training_clients' and 'Not private' in found['not_covered']
    assert found['unigram_accuracy'] < found['bigram_accuracy']
    table = _run('studies.text_baselines', *flags)
    assert found['not_covered'] in table
    (line,) = (line for line in table.splitlines() if line.split()[:1] == ['trigram'])
    measures = ('accuracy', 'accuracy_with_oov', 'loss', 'perplexity')
    assert line.split()[1:] == [f'{found[f"trigram_{name}"]:.4g}' for name in measures]
