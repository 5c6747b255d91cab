"""The benchmark of reading runs, at a size of no interest."""

import re
import subprocess
import sys

import pytest

from benchmarks import reading
from dpfl.participation import imported
from tests import paths


def test_the_log_is_one_that_can_be_read(tmp_path):
    path = tmp_path / 'log.csv'
    reading._write_log(path, 2500)
    found = imported.read_log(path)
    assert found.log.cohort_sizes.tolist() == [1000, 1000, 500]


@pytest.mark.exhaustive
def test_a_log_and_a_history_are_measured(tmp_path):
    def git(*arguments):
        subprocess.run(('git', '-C', str(tmp_path), *arguments), check=True, capture_output=True)

    author = ('-c', 'user.name=a', '-c', 'user.email=a@example.org')
    git('init')
    for text in ('first words', 'more words'):
        git(*author, 'commit', '--allow-empty', '-m', text)
    done = subprocess.run(
        [sys.executable, 'benchmarks/reading.py', '--rows=2500', f'--repository={tmp_path}'],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert re.match(r'git history: 2 commits; [\d,]+ commits a second \(', lines[0])
    assert re.match(r'CSV log, 3\d bytes a row: 2,500 rows; [\d,]+ rows a second \(', lines[1])
