"""The binary that computes the published tables: every row, and wrong numbers are found."""

import functools
import json

import pytest

from tests import forked_binaries, paths

_ROWS = {row['id']: row for row in json.loads(paths.PUBLISHED.read_text())}
_run = functools.partial(forked_binaries.run, 'reproduce_tables')
_WRONG = {
    '000-T1-de-DE': ('zcdp', 0.49),
    '000-T2-ru-RU': ('eps', 5.1),
    '002-alpha1': ('eps', 5.4),
    '001-Ttext-K763430-C1250-z1-T3000': ('eps', 1.98),
    '004-T3 sim 6': ('eps', 1e7),
    '002-launch-id-ID_OTF': ('eps', 2.73),
    '002-T4-es-ES-BLT': ('zcdp', 0.15),
    '002-T3-BLT-nbuf3-k6': ('first_column', 10.75),
    '000-text-MinS-bounds': ('max_MinS_es_ES', 648),
    '000-T1-en-US*': ('zcdp', 0.77),
}


def _is_progress(errors, rows):
    """Whether standard error has nothing but lines of progress."""
    return all(f' of {rows} rows (' in line for line in errors.splitlines())


@pytest.fixture(scope='module', name='everything')
def _everything():
    """The complete command: half a minute, most of it for two banded matrices."""
    done = _run('--format=json', check=True)
    assert _is_progress(done.stderr, 124)
    return {row['id']: row for row in json.loads(done.stdout)}


@pytest.mark.exhaustive
def test_every_row_is_there_once_in_order_and_matches_where_it_can(everything):
    assert list(everything) == list(_ROWS)
    for row in everything.values():
        assert list(row) == ['id', 'published', 'computed', 'method', 'match'] and row['method']
        assert row['match'] == (True if _ROWS[row['id']]['reproducible'] else None)
    matches = [row['match'] for row in everything.values()]
    assert (matches.count(True), matches.count(None)) == (114, 10)
    # Those that cannot match are computed all the same.
    assert everything['000-T1-en-US*']['computed']['zcdp'] == pytest.approx(24 / 98)


@pytest.mark.exhaustive
def test_wrong_published_values_are_found(tmp_path, everything):
    wrong = {
        name: {**_ROWS[name]['published'], key: value} for name, (key, value) in _WRONG.items()
    }
    rows = [{**_ROWS[name], 'published': published} for name, published in wrong.items()]
    path = tmp_path / 'wrong.json'
    path.write_text(json.dumps([*rows, _ROWS['003-colab']]))
    done = _run(f'--published={path}', '--format=json')
    assert done.returncode == 1 and _is_progress(done.stderr, len(wrong) + 1)
    *results, right = json.loads(done.stdout)
    assert right['match'] is True
    for result in results:
        # The last of the wrong ones cannot match whatever is published.
        assert result['match'] is (False if _ROWS[result['id']]['reproducible'] else None)
        assert result['published'] == wrong[result['id']]
        assert result['computed'] == everything[result['id']]['computed']


def test_one_wrong_value_is_a_failure_unless_the_row_cannot_match(tmp_path):
    for name, status in (('000-T1-de-DE', 1), ('000-T1-en-US*', 0)):
        path = tmp_path / 'wrong.json'
        path.write_text(json.dumps([{**_ROWS[name], 'published': {'zcdp': 0.77}}]))
        done = _run(f'--published={path}')
        assert done.returncode == status and ' 0.77 ' in done.stdout


@pytest.mark.standard
def test_text_and_page_of_the_rows_that_begin_so():
    text = _run('--only=000-T1').stdout
    assert '000-T1-en-US*            0.25         0.2449  cannot' in text
    assert text.endswith(
        '13 rows: 12 match (12 to the digit), 0 differ, 1 cannot be reproduced for the reason in '
        'their note.\n'
    )
    page = _run('--only=003', '--format=markdown').stdout
    assert '| 003-colab | 0.81 | 0.8061 | 8.90 | 8.8986 | yes |  |' in page
