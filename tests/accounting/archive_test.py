"""Runs that were changed: journal, cohorts, plan, report, digests and files against each other."""

import dataclasses
import json
import os
import shutil
import subprocess

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.records import archive, cohorts, verification
from tests import json_values
from tests.accounting import archives

_RECORD = archives.make_record()
_OTHER_LOG = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 2], [1, 7], [4, 6]])
_INDEPENDENT = dict(mechanism=mechanisms.Identity(6), participation=Participation(6))


def test_what_was_written_is_verified(tmp_path):
    found = verification.verify(archives.write(tmp_path))
    assert found.differences == () and found.is_verified
    head = found.records.journal.released_head()
    assert found.report == _RECORD.report(archives.LOG, journal_head=head)
    assert found.content == (tmp_path / archive.REPORT).read_bytes()


@pytest.mark.parametrize(
    'changes',
    [
        dict(mechanism=mechanisms.BinaryTree(8)),
        dict(mechanism=mechanisms.Restarted(mechanisms.BinaryTree(4), (2,), 6)),
        dict(noise_multiplier=0.0),
        dict(**_INDEPENDENT, sampling=accounting.Poisson(population=10)),
    ],
)
def test_every_kind_of_run_is_verified(tmp_path, changes):
    record = archives.make_record(**changes)
    assert verification.verify(archives.write(tmp_path, record)).differences == ()


def test_a_group_took_part_in_the_earlier_runs_too(tmp_path):
    archives.write(tmp_path, archives.make_record(earlier=(_RECORD.plan,)))
    one, group = (archive.Records.read(tmp_path).report(size) for size in (None, 2))
    assert (
        group.guarantee.mu
        == pytest.approx(2 * one.guarantee.mu)
        == pytest.approx(2 * 2**0.5 * _RECORD.plan.mu)
    )


def test_a_run_that_goes_on_is_verified_as_far_as_it_came(tmp_path):
    archives.write(tmp_path, log=ParticipationLog([[0], [0], [0, 0]]))
    assert verification.verify(tmp_path).differences == ()


@pytest.mark.parametrize(
    'name',
    [archive.STRATEGY, cohorts.NAME, archive.LEDGER, archive.REPORT, archive.PLAN, archive.LOG],
)
def test_files_that_were_cut_are_found_with_new_digests(tmp_path, name):
    path = archives.write(tmp_path) / name
    content = path.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
        found = verification.verify(tmp_path)
        # JSON without its line break has the same values.
        assert found.differences or (name.endswith('.json') and length == len(content) - 1)
        assert all('\n' not in difference for difference in found.differences)


@pytest.mark.parametrize(
    'name, place, value',
    [
        (archive.REPORT, 'epsilon', 0.5),
        (archive.REPORT, 'observed.violations', ['none']),
        (archive.REPORT, 'assumptions', []),
        (archive.PLAN, 'noise_multiplier', 8.0),
        (archive.PLAN, 'noise_is_seeded', True),
        (archive.PLAN, 'clip', 1.0),
        (archive.PLAN, 'deltas', ...),
    ],
)
def test_changes_with_new_digests_are_found_by_computing_anew(tmp_path, name, place, value):
    path = archives.write(tmp_path) / name
    values = json_values.changed(json.loads(path.read_text()), place, value)
    path.write_text(json.dumps(values))
    differences = archives.with_new_digests(tmp_path)
    assert differences and all(each.startswith(f'{name}: ') for each in differences)


@pytest.mark.parametrize('name', [archive.SUMS, archive.PLAN, archive.LEDGER, archive.STRATEGY])
def test_an_unfinished_run_is_refused(tmp_path, name):
    (archives.write(tmp_path) / name).unlink()
    with pytest.raises(ValueError, match=f'must hold a finished run \\({name} is missing\\)'):
        verification.verify(tmp_path)


@pytest.mark.parametrize(
    'record, log, message',
    [
        (archives.make_record(noise_multiplier=20.0), None, 'plan.json: noise_multiplier is 20.0'),
        (archives.make_record(clip_norm=0.1), None, 'plan.json: clip_norm is 0.1'),
        (
            dataclasses.replace(_RECORD, noise_is_seeded=True),
            None,
            'plan.json: noise_is_seeded is true, computed from the journal false',
        ),
        (
            dataclasses.replace(_RECORD, noise_key_digest='0' * 64),
            None,
            'plan.json: noise_key_digest is "000',
        ),
        (
            None,
            ParticipationLog([[0, 1], [2, 3]]),
            'participation.npz: is not the one of the journal',
        ),
        (None, _OTHER_LOG, 'participation.npz: is not the one of the journal'),
    ],
)
def test_a_plan_or_a_log_that_is_not_that_of_the_journal_is_found(tmp_path, record, log, message):
    """Every table and page follows from it, and the digests are new."""
    archives.write(tmp_path)
    first, *others = archives.with_everything_computed_anew(tmp_path, record, log)
    assert first.startswith(message)
    assert any(each.startswith(archive.REPORT) for each in others)


@pytest.mark.parametrize(
    'record, log, message',
    [
        (archives.make_record(noise_multiplier=20.0), archives.LOG, 'plan.json: noise_multiplier'),
        (
            archives.make_record(mechanism=mechanisms.Blt(6, [0.9], [0.2])),
            archives.LOG,
            'ledger.jsonl: not the plan of a run (mechanism_digest',
        ),
        (_RECORD, ParticipationLog([[0, 1]]), 'cohorts.bin: has 6 rounds, ledger.jsonl has 1'),
        (_RECORD, _OTHER_LOG, 'cohorts.bin: has another cohort than ledger.jsonl in round 5'),
    ],
)
def test_the_journal_of_another_run_is_found(tmp_path, record, log, message):
    archives.write(tmp_path)
    (tmp_path / archive.LEDGER).write_bytes(archives.make_journal(record, log))
    assert message in ' '.join(archives.with_new_digests(tmp_path))


def test_more_than_the_cohorts_of_the_rounds_is_found(tmp_path):
    path = archives.write(tmp_path) / cohorts.NAME
    data = path.read_bytes()
    for more in (b'\0', data, cohorts.record(6, [9])):
        path.write_bytes(data + more)
        assert 'cohorts.bin: has ' in ' '.join(archives.with_new_digests(tmp_path))


def test_a_journal_that_was_cut_is_found(tmp_path):
    """At the end of a line, where its chain is whole."""
    archives.write_run(tmp_path)
    data = (tmp_path / archive.LEDGER).read_bytes()
    lines = data.splitlines(keepends=True)
    for count in (1, 2, 3, 8, len(lines) - 1):
        (tmp_path / archive.LEDGER).write_bytes(b''.join(lines[:count]))
        assert archives.with_new_digests(tmp_path), count


# --- Files that are added, dropped, linked, or named so that they could lead elsewhere.


@pytest.mark.parametrize('name', ['saved_model/more', 'plots/new.png', 'notes.txt', 'a\nb', 'a\\b'])
def test_a_file_that_was_added_is_named(tmp_path, name):
    path = archives.write(tmp_path) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('new')
    shown = name.replace('\n', ' ')  # Every difference is one line.
    assert verification.verify(tmp_path).differences == (
        f'{shown}: was added, SHA256SUMS does not list it',
    )
    assert archives.with_new_digests(tmp_path) == ()
    path.unlink()
    differences = verification.verify(tmp_path).differences
    assert differences == (f'{shown}: is missing, SHA256SUMS lists it',)


def test_the_list_lacks_no_file_and_names_none_twice_or_elsewhere(tmp_path):
    sums = archives.write(tmp_path) / archive.SUMS
    lines = sums.read_text().splitlines(keepends=True)
    for i in range(len(lines)):
        name = lines[i].split()[1]
        sums.write_text(''.join(lines[:i] + lines[i + 1 :]))
        assert any(name in each for each in verification.verify(tmp_path).differences), name
    outside = ['/etc/hostname', '../elsewhere', 'a/../../elsewhere', '', lines[-1].split()[1]]
    for name in outside:
        sums.write_text(''.join([f'{"0" * 64}  {name}\n', *lines]))
        number = 1 if name in outside[:-1] else len(lines) + 1
        assert verification.verify(tmp_path).differences == (
            f'SHA256SUMS: line {number} is not a digest and the name of another file',
        )


@pytest.mark.parametrize(
    'name',
    ['saved_model', 'plots', archive.PLAN, archive.SUMS, archive.LEDGER, archive.CHECKPOINTS],
)
def test_links_are_named_and_not_followed(tmp_path, name):
    directory, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
    path = archives.write(directory) / name
    if path.exists():
        path.rename(elsewhere)
    else:
        elsewhere.write_text('of another')
    path.symlink_to(elsewhere)
    found = verification.verify(directory).differences
    assert any(each.startswith(f'{name}: is a link') for each in found)
    if name != archive.SUMS:
        assert name not in {line.split()[1] for line in archive.digests(directory).splitlines()}


def test_a_pipe_is_named_and_not_read(tmp_path):
    os.mkfifo(archives.write(tmp_path) / 'pipe')
    assert verification.verify(tmp_path).differences == ('pipe: is neither a file nor a folder',)


def test_checkpoints_are_not_listed_and_may_be_deleted(tmp_path):
    archives.write(tmp_path)
    assert archive.CHECKPOINTS not in (tmp_path / archive.SUMS).read_text()
    shutil.rmtree(tmp_path / archive.CHECKPOINTS)
    assert verification.verify(tmp_path).differences == ()


def test_sha256sum_reads_the_list_whatever_the_names(tmp_path):
    archives.write(tmp_path)
    for name in ('two\nlines', 'back\\slash', 'blank  s', 'saved_model/\u2028'):
        (tmp_path / name).write_text(name)
    assert archives.with_new_digests(tmp_path) == ()
    done = subprocess.run(
        ['sha256sum', '--check', '--strict', archive.SUMS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / os.fsdecode(b'no text \xff')).write_text('')
    assert archives.with_new_digests(tmp_path) == ()
