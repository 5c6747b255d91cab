"""Runs that were changed: plan, log, ledger, report and digests against each other."""

import dataclasses
import json

import pytest

from dpfl import Participation, ParticipationLog, mechanisms
from dpfl.accounting.records import archive, verification
from tests.accounting import archives


def test_what_was_written_is_verified(tmp_path):
    found = verification.verify(archives.write(tmp_path))
    assert found.differences == ()
    assert found.report == archives.make_record().report(archives.LOG)


@pytest.mark.parametrize(
    'record, log',
    [
        (archives.make_record(mechanism=mechanisms.BinaryTree(8)), archives.LOG),
        (
            archives.make_record(mechanism=mechanisms.Restarted(mechanisms.BinaryTree(4), (2,), 6)),
            archives.LOG,
        ),
        (archives.make_record(noise_multiplier=0.0), archives.LOG),
        (archives.make_record(), ParticipationLog([[0], [0], [0, 0]])),
        (
            archives.make_record(
                mechanism=mechanisms.Identity(6),
                participation=Participation(6),
                sampling='poisson',
                population=10,
            ),
            archives.LOG,
        ),
    ],
)
def test_every_kind_of_run_is_verified(tmp_path, record, log):
    assert verification.verify(archives.write(tmp_path, record, log)).differences == ()


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
    path = archives.write(tmp_path) / name
    content = path.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 12)):
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
    path = archives.write(tmp_path) / name
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
    path = archives.write(tmp_path) / name
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = verification.verify(tmp_path).differences
    assert differences and all(
        each.startswith((archive.REPORT, archive.PAGE, name)) for each in differences
    )


def test_a_changed_log_with_a_new_digest_is_found(tmp_path):
    archives.write(tmp_path)
    ParticipationLog([[0], [0]]).save(tmp_path / archive.LOG)
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    differences = verification.verify(tmp_path).differences
    assert 'privacy_report.json: basis is "plan", computed from plan and log "log"' in differences


def test_another_strategy_is_found(tmp_path):
    archives.write(tmp_path)
    mechanisms.save(mechanisms.Blt(6, [0.9], [0.2]), tmp_path / archive.STRATEGY)
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert 'mechanism_digest' in ' '.join(verification.verify(tmp_path).differences)


def test_a_last_digit_of_another_library_is_no_difference(tmp_path):
    path = archives.write(tmp_path) / archive.REPORT
    values = json.loads(path.read_text())
    values['epsilon'] *= 1 + 1e-12
    path.write_text(json.dumps(values))
    (tmp_path / archive.SUMS).write_text(archive.digests(tmp_path))
    assert verification.verify(tmp_path).differences == ()


@pytest.mark.parametrize('name', [archive.SUMS, archive.PLAN, archive.LOG, archive.LEDGER])
def test_an_unfinished_run_is_refused(tmp_path, name):
    (archives.write(tmp_path) / name).unlink()
    with pytest.raises(ValueError, match=f'must hold a finished run \\({name} is missing\\)'):
        verification.verify(tmp_path)


def test_the_digests_are_those_of_sha256sum(tmp_path):
    # The digest of 'abc' is the first example of FIPS 180-2.
    (tmp_path / 'abc').write_text('abc')
    assert archive.digests(tmp_path) == (
        'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n'
    )


@pytest.mark.parametrize('changes', [dict(noise_multiplier=20.0), dict(clip_norm=0.1)])
def test_a_plan_that_is_not_that_of_the_ledger_is_found(tmp_path, changes):
    archives.write(tmp_path)
    assert archives.with_everything_computed_anew(tmp_path, archives.make_record(**changes)) == (
        'plan.json: is not the plan with which ledger.jsonl begins: it was changed',
    )


def test_a_simulation_does_not_become_a_run(tmp_path):
    archives.write(tmp_path, dataclasses.replace(archives.make_record(), noise_is_seeded=True))
    differences = archives.with_everything_computed_anew(tmp_path, archives.make_record())
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
    archives.write(tmp_path)
    found = archives.with_everything_computed_anew(
        tmp_path, archives.make_record(), ParticipationLog(cohorts)
    )
    assert f'participation.npz: {message}' in found


def test_a_ledger_that_was_cut_is_found(tmp_path):
    archives.write(tmp_path)
    data = (tmp_path / archive.LEDGER).read_bytes()
    (tmp_path / archive.LEDGER).write_bytes(b''.join(data.splitlines(keepends=True)[:4]))
    assert 'participation.npz: has 6 rounds, ledger.jsonl has 3' in archives.with_new_digests(
        tmp_path
    )
    for cut in (1, 70):
        (tmp_path / archive.LEDGER).write_bytes(data[:-cut])
        assert 'ledger.jsonl: ends with a line that was cut off' in archives.with_new_digests(
            tmp_path
        )
    (tmp_path / archive.LEDGER).write_bytes(data[:40] + b'?' + data[41:])
    assert 'ledger.jsonl: line 1 is damaged' in archives.with_new_digests(tmp_path)


@pytest.mark.parametrize(
    'name, change, message',
    [
        (
            archive.REPORT,
            lambda text: text.replace('"text_version": ', '"text_version": -'),
            'text version -',
        ),
        (archive.REPORT, lambda text: text.replace('"text_version"', '"later"'), 'text version 1,'),
    ],
)
def test_what_an_older_version_wrote_is_refused_in_one_line(tmp_path, name, change, message):
    """Its words cannot be computed, and forged words could call themselves old."""
    path = archives.write(tmp_path) / name
    path.write_text(change(path.read_text()).replace('The run satisfies', 'The run is perfect:'))
    (difference,) = archives.with_new_digests(tmp_path)
    assert message in difference and 'verify the run with dpfl' in difference


def test_released_training_metrics_survive_the_file_of_the_plan(tmp_path):
    record = dataclasses.replace(archives.make_record(), train_metrics_released=True)
    directory = archives.write(tmp_path, record)
    assert archive.read_plan(directory).train_metrics_released
    assert verification.verify(directory).differences == ()
    assert verification.verify(directory).report.train_metrics_released
