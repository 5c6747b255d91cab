import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting.records import archive, ledger_lines, verification


def _record(**changes):
    fields = dict(
        mechanism=mechanisms.Blt(6, [0.9, 0.4], [0.2, 0.3]),
        participation=Participation(6, 2, 3),
        clip_norm=0.5,
        noise_multiplier=4.0,
        clients_per_round=2,
    )
    plan = accounting.PrivacyPlan(**{**fields, **changes})
    accountant = 'rdp' if plan.sampling == 'poisson' else 'analytic_gaussian'
    return archive.PlanRecord(plan, (1e-6, 1e-10), accountant, noise_is_seeded=False)


_LOG = ParticipationLog([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [4, 6]])


def _ledger(record, log) -> bytes:
    text, chain = ledger_lines.first_line(record.digest())
    for t in range(log.rounds):
        entry = ledger_lines.Entry(
            ledger_lines.cohort_digest(log.cohort(t)), 'm' * 64, f'{t:064}', 'd' * 64
        )
        line, chain = ledger_lines.line(chain, t, entry)
        text += line
    return text


def write(directory: pathlib.Path, record=None, log=_LOG) -> pathlib.Path:
    record = record or _record()
    (directory / archive.PLAN).write_text(record.to_json())
    mechanisms.save(record.plan.mechanism, directory / archive.STRATEGY)
    log.save(directory / archive.LOG)
    (directory / archive.LEDGER).write_bytes(_ledger(record, log))
    report = record.report(log)
    (directory / archive.REPORT).write_text(report.to_json() + '\n')
    (directory / archive.PAGE).write_text(report.render())
    (directory / 'metrics.csv').write_text('round,loss\n1,2.0\n')
    (directory / 'saved_model' / 'variables').mkdir(parents=True)
    (directory / 'saved_model' / 'variables' / 'data').write_text('weights')
    (directory / archive.CHECKPOINTS).mkdir()
    (directory / archive.CHECKPOINTS / 'data.key').write_text('secret')
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return directory


def test_what_was_written_is_verified(tmp_path):
    found = verification.verify(write(tmp_path))
    assert found.differences == ()
    assert found.report == _record().report(_LOG)


@pytest.mark.parametrize(
    'record, log',
    [
        (_record(mechanism=mechanisms.BinaryTree(8)), _LOG),
        (_record(mechanism=mechanisms.Restarted(mechanisms.BinaryTree(4), (2,), 6)), _LOG),
        (_record(noise_multiplier=0.0), _LOG),
        (_record(), ParticipationLog([[0], [0], [0, 0]])),
        (
            _record(
                mechanism=mechanisms.Identity(6),
                participation=Participation(6),
                sampling='poisson',
                population=10,
            ),
            _LOG,
        ),
    ],
)
def test_every_kind_of_run_is_verified(tmp_path, record, log):
    assert verification.verify(write(tmp_path, record, log)).differences == ()


@pytest.mark.parametrize(
    'name',
    [
        archive.PLAN,
        archive.STRATEGY,
        archive.LOG,
        archive.REPORT,
        archive.PAGE,
        archive.SUMS,
        archive.LEDGER,
        'metrics.csv',
        'saved_model/variables/data',
    ],
)
def test_each_flipped_bit_is_found(tmp_path, name):
    path = write(tmp_path) / name
    content = path.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        found = verification.verify(tmp_path)
        assert found.differences, place
        assert any(name in difference for difference in found.differences), found.differences
        assert all('\n' not in difference for difference in found.differences)
    path.write_bytes(content)
    assert not verification.verify(tmp_path).differences


@pytest.mark.parametrize('name', [archive.STRATEGY, archive.LOG, archive.REPORT, archive.PLAN])
def test_truncated_files_are_found(tmp_path, name):
    path = write(tmp_path) / name
    content = path.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert any(name in each for each in verification.verify(tmp_path).differences)


@pytest.mark.parametrize(
    'name, change',
    [
        (archive.REPORT, lambda values: values.update(epsilon=values['epsilon'] / 2)),
        (archive.REPORT, lambda values: values['observed']['violations'].append('none')),
        (archive.REPORT, lambda values: values.update(assumptions=[])),
        (archive.PLAN, lambda values: values.update(noise_multiplier=8.0)),
        (archive.PLAN, lambda values: values.update(noise_is_seeded=True)),
    ],
)
def test_changes_with_new_digests_are_found_by_computing_anew(tmp_path, name, change):
    path = write(tmp_path) / name
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = verification.verify(tmp_path).differences
    assert differences and all(
        archive.REPORT in each or name == archive.PLAN in each for each in differences
    )


def test_a_changed_log_with_a_new_digest_is_found(tmp_path):
    write(tmp_path)
    ParticipationLog([[0], [0]]).save(tmp_path / archive.LOG)
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = verification.verify(tmp_path).differences
    assert 'privacy_report.json: basis is "plan", computed from plan and log "log"' in differences


def test_another_strategy_is_found(tmp_path):
    write(tmp_path)
    mechanisms.save(mechanisms.Blt(6, [0.9], [0.2]), tmp_path / archive.STRATEGY)
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert 'mechanism_digest' in ' '.join(verification.verify(tmp_path).differences)


def test_a_last_digit_of_another_library_is_no_difference(tmp_path):
    path = write(tmp_path) / archive.REPORT
    values = json.loads(path.read_text())
    values['epsilon'] *= 1 + 1e-12
    path.write_text(json.dumps(values))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert verification.verify(tmp_path).differences == ()


@pytest.mark.parametrize('name', [archive.SUMS, archive.PLAN, archive.LOG, archive.LEDGER])
def test_an_unfinished_run_is_refused(tmp_path, name):
    (write(tmp_path) / name).unlink()
    with pytest.raises(ValueError, match=f'must hold a finished run \\({name} is missing\\)'):
        verification.verify(tmp_path)


def test_the_digests_are_those_of_sha256sum(tmp_path):
    # The digest of 'abc' is the first example of FIPS 180-2.
    (tmp_path / 'abc').write_text('abc')
    assert archive.digests(tmp_path) == (
        'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n'
    )


def _with_new_digests(directory):
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return verification.verify(directory).differences


def _with_everything_computed_anew(directory, record, log=_LOG):
    """As whoever forges a run would: the ledger alone is as it was."""
    (directory / archive.PLAN).write_text(record.to_json())
    log.save(directory / archive.LOG)
    report = record.report(log)
    (directory / archive.REPORT).write_text(report.to_json() + '\n')
    (directory / archive.PAGE).write_text(report.render())
    return _with_new_digests(directory)


@pytest.mark.parametrize('changes', [dict(noise_multiplier=20.0), dict(clip_norm=0.1)])
def test_a_plan_that_is_not_that_of_the_ledger_is_found(tmp_path, changes):
    write(tmp_path)
    assert _with_everything_computed_anew(tmp_path, _record(**changes)) == (
        'plan.json: is not the plan with which ledger.jsonl begins: it was changed',
    )


def test_a_simulation_does_not_become_a_run(tmp_path):
    write(tmp_path, dataclasses.replace(_record(), noise_is_seeded=True))
    differences = _with_everything_computed_anew(tmp_path, _record())
    assert differences and differences[0].startswith('plan.json: is not the plan')


@pytest.mark.parametrize(
    'cohorts, message',
    [
        ([[0, 1], [2, 3]], 'has 2 rounds, ledger.jsonl has 6'),
        (
            [[0, 1], [2, 3], [4, 5], [0, 2], [1, 7], [4, 6]],
            'has another cohort than ledger.jsonl in round 4',
        ),
    ],
)
def test_a_log_that_is_not_that_of_the_ledger_is_found(tmp_path, cohorts, message):
    write(tmp_path)
    found = _with_everything_computed_anew(tmp_path, _record(), ParticipationLog(cohorts))
    assert f'participation.npz: {message}' in found


def test_a_ledger_that_was_cut_is_found(tmp_path):
    write(tmp_path)
    data = (tmp_path / archive.LEDGER).read_bytes()
    (tmp_path / archive.LEDGER).write_bytes(b''.join(data.splitlines(keepends=True)[:4]))
    assert 'participation.npz: has 6 rounds, ledger.jsonl has 3' in _with_new_digests(tmp_path)
    for cut in (1, 70):
        (tmp_path / archive.LEDGER).write_bytes(data[:-cut])
        assert 'ledger.jsonl: ends with a line that was cut off' in _with_new_digests(tmp_path)
    (tmp_path / archive.LEDGER).write_bytes(data[:40] + b'?' + data[41:])
    assert 'ledger.jsonl: line 1 is damaged' in _with_new_digests(tmp_path)


@pytest.mark.parametrize('name', ['saved_model/more', 'plots/new.png', 'notes.txt', 'a\nb', 'a\\b'])
def test_a_file_that_was_added_is_named(tmp_path, name):
    path = write(tmp_path) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('new')
    shown = name.replace('\n', ' ')  # Every difference is one line.
    assert verification.verify(tmp_path).differences == (
        f'{shown}: was added, SHA256SUMS does not list it',
    )
    assert _with_new_digests(tmp_path) == ()
    path.unlink()
    differences = verification.verify(tmp_path).differences
    assert differences == (f'{shown}: is missing, SHA256SUMS lists it',)


def test_a_line_that_was_dropped_is_found(tmp_path):
    sums = write(tmp_path) / archive.SUMS
    lines = sums.read_text().splitlines(keepends=True)
    for i in range(len(lines)):
        name = lines[i].split()[1]
        sums.write_text(''.join(lines[:i] + lines[i + 1 :]))
        assert any(name in each for each in verification.verify(tmp_path).differences), name
    sums.write_text(''.join([*lines, lines[0]]))
    assert 'line 9 is not a digest and the name of another file' in str(
        verification.verify(tmp_path).differences
    )


@pytest.mark.parametrize(
    'name',
    [
        'model.npz',
        'saved_model',
        'plots',
        archive.LOG,
        archive.PLAN,
        archive.SUMS,
        archive.LEDGER,
        archive.CHECKPOINTS,
    ],
)
def test_links_are_named_and_not_followed(tmp_path, name):
    directory, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
    directory.mkdir()
    path = write(directory) / name
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
    os.mkfifo(write(tmp_path) / 'pipe')
    assert verification.verify(tmp_path).differences == ('pipe: is neither a file nor a folder',)


@pytest.mark.parametrize('name', ['/etc/hostname', '../elsewhere', 'a/../../elsewhere', ''])
def test_names_outside_of_the_directory_are_refused(tmp_path, name):
    sums = write(tmp_path) / archive.SUMS
    sums.write_text(f'{"0" * 64}  {name}\n' + sums.read_text())
    assert verification.verify(tmp_path).differences == (
        'SHA256SUMS: line 1 is not a digest and the name of another file',
    )


def test_checkpoints_are_not_listed_and_may_be_deleted(tmp_path):
    write(tmp_path)
    assert archive.CHECKPOINTS not in (tmp_path / archive.SUMS).read_text()
    shutil.rmtree(tmp_path / archive.CHECKPOINTS)
    assert verification.verify(tmp_path).differences == ()


def test_sha256sum_reads_the_list(tmp_path):
    write(tmp_path)
    for name in ('two\nlines', 'back\\slash', 'blank  s', 'saved_model/\u2028'):
        (tmp_path / name).write_text(name)
    assert _with_new_digests(tmp_path) == ()
    done = subprocess.run(
        ['sha256sum', '--check', '--strict', archive.SUMS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_no_text_is_listed(tmp_path):
    (write(tmp_path) / os.fsdecode(b'bad\xff')).write_text('')
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path), encoding='utf-8')
    assert verification.verify(tmp_path).differences == ()


def _as_written_by_82c59e2(directory):
    """A run of an older version: its digests list no folder, its ledger has no plan and no data."""
    write(directory)
    text, chain = b'', hashlib.sha256(b'dpfl ledger 1').hexdigest()
    for t in range(_LOG.rounds):
        entry = ledger_lines.Entry(ledger_lines.cohort_digest(_LOG.cohort(t)), 'm', f'{t}')
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
    return write(directory)


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


def test_released_training_metrics_survive_the_file_of_the_plan(tmp_path):
    record = dataclasses.replace(_record(), train_metrics_released=True)
    directory = write(tmp_path, record)
    assert archive.read_plan(directory).train_metrics_released
    assert verification.verify(directory).differences == ()
    assert verification.verify(directory).report.train_metrics_released


def _as_written_with_text_version_1(directory):
    """A run of the version before the sentences of reports changed."""
    report = json.loads((directory / archive.REPORT).read_text())
    del report['text_version']
    report['assumptions'] = ['The words were others.', *report['assumptions']]
    (directory / archive.REPORT).write_text(json.dumps(report))
    (directory / archive.PAGE).write_text('# Other words')
    return directory


def test_a_report_with_older_words_is_verified_by_its_numbers(tmp_path):
    directory = _as_written_with_text_version_1(write(tmp_path))
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
        {'text_version': 3},
        {'text_version': '1'},
        {'later': 1},
    ],
)
def test_other_changes_of_a_report_with_older_words_are_found(tmp_path, changes):
    path = _as_written_with_text_version_1(write(tmp_path)) / archive.REPORT
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    (name,) = changes
    assert any(f'{name} is' in each for each in verification.verify(tmp_path).differences)


@pytest.mark.parametrize('version', [3, '2', None, True])
def test_the_text_version_of_a_report_cannot_be_another_one(tmp_path, version):
    path = write(tmp_path) / archive.REPORT
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, 'text_version': version, 'assumptions': []}))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = ' '.join(verification.verify(tmp_path).differences)
    assert 'text_version is' in differences and 'assumptions is' in differences
