import functools
import json
import math

import pytest

from tests import forked_binaries, paths

_PATH = paths.PUBLISHED
_ROWS = {row['id']: row for row in json.loads(_PATH.read_text())}
_run = functools.partial(forked_binaries.run, 'reproduce_tables')


def _is_progress(errors, rows):
    """Whether standard error has nothing but lines of progress."""
    return all(f' of {rows} rows (' in line for line in errors.splitlines())


@pytest.fixture(scope='module', name='everything')
def _everything():
    """The complete command: half a minute, most of it for two banded matrices."""
    done = _run('--format=json')
    assert done.returncode == 0, done.stderr
    assert _is_progress(done.stderr, 124)
    return {row['id']: row for row in json.loads(done.stdout)}


@pytest.mark.exhaustive
def test_every_row_is_there_once_in_order(everything):
    assert list(everything) == list(_ROWS)
    for row in everything.values():
        assert list(row) == ['id', 'published', 'computed', 'method', 'match']
        assert row['method']


@pytest.mark.exhaustive
def test_rows_match_where_they_can(everything):
    matches = [row['match'] for row in everything.values()]
    assert matches == [True if row['reproducible'] else None for row in _ROWS.values()]
    assert (matches.count(True), matches.count(None)) == (114, 10)


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', [name for name, row in _ROWS.items() if row['reproducible']])
def test_computed_numbers_are_the_published_ones(everything, name):
    row, computed = _ROWS[name], everything[name]['computed']
    assert everything[name]['published'] == row['published']
    if isinstance(row['published'], str):
        assert [len(values) for values in computed.values()] == [4, 4]
        return
    assert computed.keys() == row['published'].keys()
    for key, published in row['published'].items():
        convention = row['rounding'] if isinstance(row['rounding'], str) else row['rounding'][key]
        unit = 10.0 ** -row['decimals'][key]
        excess = (computed[key] - published) / unit
        least, greatest = {
            'nearest': (-0.5, 0.5),
            'up': (-1.0, 0.0),
            'down': (0.0, 1.0),
            'at most': (-math.inf, 0.0),
            'not compared': (0.0, math.inf),
        }[convention]
        assert least - 1e-6 <= excess <= greatest + 1e-6


@pytest.mark.exhaustive
def test_rows_that_cannot_match_are_computed_all_the_same(everything):
    computed = everything['002-T4-pt-PT-TreeAgg']['computed']
    assert computed['zcdp'] == pytest.approx(0.4388, abs=5e-5)
    assert computed['eps'] == pytest.approx(6.10, abs=5e-3)
    assert everything['000-T1-en-US*']['computed']['zcdp'] == pytest.approx(24 / 98)
    assert everything['002-T4-es-ES-BandMF']['computed']['eps'] == pytest.approx(4.58, abs=5e-3)


@pytest.mark.exhaustive
def test_banded_losses_are_the_published_ones_in_the_interchanged_columns(everything):
    losses = everything['002-T3-BandMF-342']['computed']
    assert losses['first_column'] > losses['second_column'] == pytest.approx(8.595, abs=1e-3)


_WRONG = {
    '000-T1-de-DE': ('zcdp', 0.49),
    '000-T2-ru-RU': ('eps', 5.1),
    '002-alpha1': ('eps', 5.4),
    '001-Ttext-K763430-C1250-z1-T3000': ('eps', 1.98),
    '004-T3 sim 6': ('eps', 1e7),
    '002-launch-id-ID_OTF': ('eps', 2.73),
    '002-launch-es-AR': ('zcdp', 0.393),
    '002-T4-es-ES-BLT': ('zcdp', 0.15),
    '002-T3-BLT-nbuf3-k6': ('first_column', 10.75),
    '000-text-MinS-bounds': ('max_MinS_es_ES', 648),
    '000-T1-en-US*': ('zcdp', 0.77),
}


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


def test_a_wrong_value_of_a_row_that_cannot_match_is_no_failure(tmp_path):
    path = tmp_path / 'wrong.json'
    path.write_text(json.dumps([{**_ROWS['000-T1-en-US*'], 'published': {'zcdp': 0.77}}]))
    done = _run(f'--published={path}')
    assert done.returncode == 0
    assert ' 0.77 ' in done.stdout


def test_only_rows_that_begin_so():
    done = _run('--only=000-T1-es', '--format=json')
    names = [row['id'] for row in json.loads(done.stdout)]
    assert names == [name for name in _ROWS if name.startswith('000-T1-es')]
    assert len(names) == 4


def test_text_and_page():
    text = _run('--only=000-T1').stdout
    assert '000-T1-en-US*            0.25         0.2449  cannot' in text
    assert '24/98 = 0.2449 prints 0.24' in text
    assert text.endswith(
        '13 rows: 12 match (12 to the digit), 0 differ, 1 cannot be reproduced for the reason in '
        'their note.\n'
    )
    page = _run('--only=003', '--format=markdown').stdout
    assert '| 003-colab | 0.81 | 0.8061 | 8.90 | 8.8986 | yes |  |' in page


@pytest.mark.parametrize(
    'content, flags, message',
    [
        (None, ['--only=005'], '--only=005: must be the beginning of a row id, such as 000'),
        (None, ['--format=xml'], '--format=xml: must be one of text, json, markdown'),
        (None, ['word'], 'word: is not a flag'),
        (None, ['--published=absent.json'], '--published=absent.json: cannot be read'),
        ('[{"id": "a"}]', [], 'row a: must have the fields'),
        ([{'inputs': {'rounds': 5, 'noise_multiplier': 1}}], [], 'row 000-T1-de-DE: MinS: must be'),
        ([{'mechanism': 'magic'}], [], 'row 000-T1-de-DE: mechanism=magic: must be one of'),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path, content, flags, message):
    if content is not None:
        if not isinstance(content, str):
            content = json.dumps([{**_ROWS['000-T1-de-DE'], **content[0]}])
        path = tmp_path / 'published.json'
        path.write_text(content)
        flags = [f'--published={path}']
    done = _run(*flags)
    assert (done.returncode, done.stdout) == (2, '')
    assert done.stderr.startswith('error: ') and done.stderr.count('\n') == 1
    assert message in done.stderr
