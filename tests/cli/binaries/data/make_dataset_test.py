"""make_dataset: its table, its JSON, and what it refuses."""

import json

import pytest
from pyarrow import parquet

from tests import forked_binaries
from tests.tasks.text.messages import repositories


def _run(tmp_path, *flags):
    return forked_binaries.run('make_dataset', *flags, DPFL_CACHE_DIR=str(tmp_path / 'cache'))


def test_repositories_are_made_a_file_and_counted(tmp_path):
    path = repositories.of_authors(tmp_path / 'a', 5)
    flags = [f'--data_path={path}', f'--output={tmp_path}/out.parquet']
    done = _run(tmp_path, *flags, '--format=json')
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    rows = parquet.read_table(tmp_path / 'out.parquet').num_rows
    assert made['clients'] == made['history']['authors'] == 5
    assert made['kept']['sentences'] == rows > 0 and made['history']['commits'] == 20
    done = _run(tmp_path, *flags, '--from=git')
    table = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:3])
    assert table == {'clients': '5', 'sources': 'a', 'commits': '20'}
    assert 'removed trailers' in done.stdout


@pytest.mark.parametrize(
    'flags, message',
    [
        ([], '--data_path: must be given'),
        (['--data_path=x'], '--output: must be given'),
        (['--data_path=x', '--output=/none/x'], '--output=/none/x: must be in a directory'),
        (['--data_path=/none', '--output=x.parquet'], '--data_path=/none: cannot be read (No such'),
        (['--from=tar'], '--from=tar: must be one of git, mbox, jsonl'),
        (['--data_path=x', '--output=x', '--text_column=y'], '--text_column=y: needs --from=jsonl'),
        (
            ['--from=mbox', '--data_path=/dev/null', '--output=x.parquet'],
            '--data_path=/dev/null: cannot be read',
        ),
    ],
)
def test_bad_flags_are_refused_in_one_line(flags, message, tmp_path):
    done = _run(tmp_path, *flags)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f'error: {message}')
    assert len(done.stderr.splitlines()) == 1
