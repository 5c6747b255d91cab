import dataclasses
import json
import pathlib

import pytest

from dpfl import Participation, ParticipationLog, accounting, mechanisms
from dpfl.accounting import archive


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


def _write(directory: pathlib.Path, record=None, log=_LOG) -> pathlib.Path:
    record = record or _record()
    (directory / archive.PLAN).write_text(record.to_json())
    mechanisms.save(record.plan.mechanism, directory / archive.STRATEGY)
    log.save(directory / archive.LOG)
    report = record.report(log)
    (directory / archive.REPORT).write_text(report.to_json() + '\n')
    (directory / archive.PAGE).write_text(report.render())
    (directory / 'metrics.csv').write_text('round,loss\n1,2.0\n')
    (directory / archive.SUMS).write_text(archive.digests(directory))
    return directory


def test_what_was_written_is_verified(tmp_path):
    found = archive.verify(_write(tmp_path))
    assert found.differences == ()
    assert found.report == _record().report(_LOG)


@pytest.mark.parametrize('record, log', [
    (_record(mechanism=mechanisms.BinaryTree(8)), _LOG),
    (_record(mechanism=mechanisms.Restarted(mechanisms.BinaryTree(4), (2,), 6)), _LOG),
    (_record(noise_multiplier=0.0), _LOG),
    (_record(), ParticipationLog([[0], [0], [0, 0]])),
    (_record(mechanism=mechanisms.Identity(6), participation=Participation(6), sampling='poisson',
             population=10), _LOG),
])
def test_every_kind_of_run_is_verified(tmp_path, record, log):
    assert archive.verify(_write(tmp_path, record, log)).differences == ()


@pytest.mark.parametrize('name', [
    archive.PLAN, archive.STRATEGY, archive.LOG, archive.REPORT, archive.PAGE, archive.SUMS,
    'metrics.csv',
])
def test_each_flipped_bit_is_found(tmp_path, name):
    path = _write(tmp_path) / name
    content = path.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        changed = bytearray(content)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        found = archive.verify(tmp_path)
        assert found.differences, place
        assert any(name in difference for difference in found.differences), found.differences
        assert all('\n' not in difference for difference in found.differences)
    path.write_bytes(content)
    assert not archive.verify(tmp_path).differences


@pytest.mark.parametrize('name', [archive.STRATEGY, archive.LOG, archive.REPORT, archive.PLAN])
def test_truncated_files_are_found(tmp_path, name):
    path = _write(tmp_path) / name
    content = path.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        assert any(name in each for each in archive.verify(tmp_path).differences)


@pytest.mark.parametrize('name, change', [
    (archive.REPORT, lambda values: values.update(epsilon=values['epsilon'] / 2)),
    (archive.REPORT, lambda values: values['observed']['violations'].append('none')),
    (archive.REPORT, lambda values: values.update(assumptions=[])),
    (archive.PLAN, lambda values: values.update(noise_multiplier=8.0)),
    (archive.PLAN, lambda values: values.update(noise_is_seeded=True)),
])
def test_changes_with_new_digests_are_found_by_computing_anew(tmp_path, name, change):
    path = _write(tmp_path) / name
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = archive.verify(tmp_path).differences
    assert differences and all(archive.REPORT in each for each in differences)


def test_a_changed_log_with_a_new_digest_is_found(tmp_path):
    _write(tmp_path)
    ParticipationLog([[0], [0]]).save(tmp_path / archive.LOG)
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = archive.verify(tmp_path).differences
    assert 'privacy_report.json: basis is "plan", computed from plan and log "log"' in differences


def test_another_strategy_is_found(tmp_path):
    _write(tmp_path)
    mechanisms.save(mechanisms.Blt(6, [0.9], [0.2]), tmp_path / archive.STRATEGY)
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert 'mechanism_digest' in ' '.join(archive.verify(tmp_path).differences)


def test_a_last_digit_of_another_library_is_no_difference(tmp_path):
    path = _write(tmp_path) / archive.REPORT
    values = json.loads(path.read_text())
    values['epsilon'] *= 1 + 1e-12
    path.write_text(json.dumps(values))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert archive.verify(tmp_path).differences == ()


@pytest.mark.parametrize('name', [archive.SUMS, archive.PLAN, archive.LOG])
def test_an_unfinished_run_is_refused(tmp_path, name):
    (_write(tmp_path) / name).unlink()
    with pytest.raises(ValueError, match=f'must hold a finished run \\({name} is missing\\)'):
        archive.verify(tmp_path)


def test_the_digests_are_those_of_sha256sum(tmp_path):
    # The digest of 'abc' is the first example of FIPS 180-2.
    (tmp_path / 'abc').write_text('abc')
    assert archive.digests(tmp_path) == (
        'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n'
    )


def test_released_training_metrics_survive_the_file_of_the_plan(tmp_path):
    record = dataclasses.replace(_record(), train_metrics_released=True)
    directory = _write(tmp_path, record)
    assert archive.read_plan(directory).train_metrics_released
    assert archive.verify(directory).differences == ()
    assert archive.verify(directory).report.train_metrics_released
