"""The binary that computes the published tables: every row, and a wrong number is found."""

import functools
import json
import subprocess
import sys

import pytest

from tests import forked_binaries, paths

_ROWS = {row['id']: row for row in json.loads(paths.PUBLISHED.read_text())}
_run = functools.partial(forked_binaries.run, 'reproduce_tables')


@pytest.mark.exhaustive
def test_every_row_is_there_once_in_order_and_matches_where_it_can():
    """The complete command: half a minute, most of it for two banded matrices."""
    done = _run('--format=json', check=True)
    assert all(' of 124 rows (' in line for line in done.stderr.splitlines())
    rows = json.loads(done.stdout)
    assert [row['id'] for row in rows] == list(_ROWS)
    for row in rows:
        assert list(row) == ['id', 'published', 'computed', 'method', 'match'] and row['method']
        assert row['match'] == (True if _ROWS[row['id']]['reproducible'] else None)
    matches = [row['match'] for row in rows]
    assert (matches.count(True), matches.count(None)) == (114, 10)


def _run_on(path, *flags):
    """The command with other published values: in a new process, which reads them from a file."""
    code = (
        'import pathlib, runpy, sys\n'
        'from dpfl.published.tables import rows\n'
        'rows.PUBLISHED = pathlib.Path(sys.argv.pop(1))\n'
        "runpy.run_module('experiments.reproduce_tables', run_name='__main__')"
    )
    command = [sys.executable, '-c', code, path, *flags]
    return subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)


@pytest.mark.standard
def test_one_wrong_value_is_a_failure_unless_the_row_cannot_match(tmp_path):
    path = tmp_path / 'wrong.json'
    # What cannot match is computed all the same.
    for name, status, squared in (('000-T1-de-DE', 1, 47), ('000-T1-en-US*', 0, 24)):
        path.write_text(json.dumps([{**_ROWS[name], 'published': {'zcdp': 0.77}}]))
        done = _run_on(path, '--format=json')
        [row] = json.loads(done.stdout)
        assert done.returncode == status and row['published'] == {'zcdp': 0.77}
        assert row['computed']['zcdp'] == pytest.approx(squared / 98)


def test_text_of_the_rows_that_begin_so():
    text = _run('--only=000-T1').stdout
    assert '000-T1-en-US*            0.25         0.2449  cannot' in text
    assert text.endswith(
        '13 rows: 12 match (12 to the digit), 0 differ, 1 cannot be reproduced for the reason in '
        'their note.\n'
    )
