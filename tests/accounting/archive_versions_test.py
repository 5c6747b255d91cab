"""Runs of older versions are verified as far as they can be."""

import hashlib
import json

import pytest

from dpfl.accounting.records import archive, ledger_lines, verification
from dpfl.accounting.reports.report import TEXT_VERSION
from tests.accounting import archives


def _as_written_by_82c59e2(directory):
    """A run of an older version: its digests list no folder, its ledger has no plan and no data."""
    archives.write(directory)
    text, chain = b'', hashlib.sha256(b'dpfl ledger 1').hexdigest()
    for t in range(archives.LOG.rounds):
        entry = ledger_lines.Entry(ledger_lines.cohort_digest(archives.LOG.cohort(t)), 'm', f'{t}')
        line, chain = ledger_lines.line(chain, t, entry)
        text += line
    (directory / archive.LEDGER).write_bytes(text)
    report = json.loads((directory / archive.REPORT).read_text())
    report['not_covered'] = report['not_covered'][1:]  # The words were others.
    (directory / archive.REPORT).write_text(json.dumps(report))
    lines = archive.digests(directory).splitlines(keepends=True)
    (directory / archive.SUMS).write_text(''.join(line for line in lines if '/' not in line))
    (directory / 'profile.json').write_text('{}')
    return directory


def test_a_run_of_an_older_version_is_verified_as_far_as_it_can_be(tmp_path):
    found = verification.verify(_as_written_by_82c59e2(tmp_path))
    assert found.differences == ()
    format_note, files_note = found.notes
    assert 'ledger.jsonl has format 1' in format_note and 'not checked' in format_note
    assert files_note == (
        'not listed in SHA256SUMS and not checked: profile.json, saved_model/variables/data'
    )
    assert verification.verify(_write_in(tmp_path / 'new')).notes == ()


def _write_in(directory):
    directory.mkdir()
    return archives.write(directory)


@pytest.mark.parametrize('name', [archive.PLAN, archive.LOG, 'metrics.csv', archive.LEDGER])
def test_a_changed_run_of_an_older_version_is_found(tmp_path, name):
    path = _as_written_by_82c59e2(tmp_path) / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert any(name in each for each in verification.verify(tmp_path).differences)


def test_changed_numbers_in_a_report_of_an_older_version_are_found(tmp_path):
    path = _as_written_by_82c59e2(tmp_path) / archive.REPORT
    values = json.loads(path.read_text())
    values['epsilon'] /= 2
    path.write_text(json.dumps(values))
    lines = (tmp_path / archive.SUMS).read_text().splitlines(keepends=True)
    new = archive.digests(tmp_path).splitlines(keepends=True)
    listed = {line.split()[1] for line in lines}
    (tmp_path / archive.SUMS).write_text(''.join(x for x in new if x.split()[1] in listed))
    assert any('epsilon is ' in each for each in verification.verify(tmp_path).differences)


def _as_written_with_text_version_1(directory):
    """A run of the version before the sentences of reports changed."""
    report = json.loads((directory / archive.REPORT).read_text())
    del report['text_version']
    report['assumptions'] = ['The words were others.', *report['assumptions']]
    (directory / archive.REPORT).write_text(json.dumps(report))
    (directory / archive.PAGE).write_text('# Other words')
    return directory


def test_a_report_with_older_words_is_verified_by_its_numbers(tmp_path):
    directory = _as_written_with_text_version_1(archives.write(tmp_path))
    (directory / archive.SUMS).write_text(archive.digests(directory))
    found = verification.verify(directory)
    assert found.differences == ()
    assert found.notes == (
        'privacy_report.json has text version 1, of an older version: its words and '
        'privacy_report.md are not checked',
    )


@pytest.mark.parametrize(
    'changes',
    [
        {'epsilon': 0.1},
        {'rho': None},
        {'text_version': TEXT_VERSION + 1},
        {'text_version': '1'},
        {'later': 1},
    ],
)
def test_other_changes_of_a_report_with_older_words_are_found(tmp_path, changes):
    path = _as_written_with_text_version_1(archives.write(tmp_path)) / archive.REPORT
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    (name,) = changes
    assert any(f'{name} is' in each for each in verification.verify(tmp_path).differences)


@pytest.mark.parametrize('version', [TEXT_VERSION + 1, '2', None, True])
def test_the_text_version_of_a_report_cannot_be_another_one(tmp_path, version):
    path = archives.write(tmp_path) / archive.REPORT
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, 'text_version': version, 'assumptions': []}))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = ' '.join(verification.verify(tmp_path).differences)
    assert 'text_version is' in differences and 'assumptions is' in differences


def test_an_older_report_may_promise_less_than_is_known_now(tmp_path):
    path = _as_written_with_text_version_1(archives.write(tmp_path)) / archive.REPORT
    values = json.loads(path.read_text())
    looser = {'epsilon': values['epsilon'] * 1.5}
    guarantee = values['plan_guarantee']
    looser['plan_guarantee'] = guarantee | {
        'epsilons': [2 * each for each in guarantee['epsilons']]
    }
    path.write_text(json.dumps(values | looser))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert verification.verify(tmp_path).differences == ()
    # Of this version it is another number.
    path.write_text(json.dumps(values | looser | {'text_version': TEXT_VERSION}))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = ' '.join(verification.verify(tmp_path).differences)
    assert 'epsilon is' in differences and 'plan_guarantee.epsilons[0] is' in differences
