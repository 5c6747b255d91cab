"""No change of a finished run goes unnoticed by its verification.

For each way to change a run, a copy is changed and verified as `dpfl report --run_dir` does.
Changes of a plan or a log are those of an expert: tables, report and digests are recomputed, and in
some ways journal and cohorts, too. Only an attacker who recomputes everything, including the
settings, goes unnoticed; copies kept elsewhere would reveal that.
"""

import dataclasses
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import pytest

from dpfl import ParticipationLog
from dpfl.accounting.records import archive, cohorts, journal
from dpfl.simulation import run_directory
from tests import forked_binaries

pytestmark = [pytest.mark.tff, pytest.mark.exhaustive]


def _train(folder: pathlib.Path) -> pathlib.Path:
    """Trains a small model for a few rounds; returns the directory of the run."""
    forked_binaries.run(
        'train',
        '--model=micro',
        '--vocabulary_size=40',
        '--sentence_length=5',
        '--mechanism=tree',
        '--noise_multiplier=2',
        '--delta=1e-6',
        '--accountant=analytic_gaussian',
        '--rounds=3',
        '--clients_per_round=3',
        '--population=12',
        '--min_separation=2',
        '--eval_every=3',
        '--eval_clients=2',
        '--profile',
        f'--output_dir={folder}/run',
        check=True,
    )
    return folder / 'run'


def _noticed(run: pathlib.Path) -> list[str]:
    """The problems that the verification of a run finds, a sentence each."""
    try:
        found = run_directory.verify(run)
    except ValueError as error:
        return [str(error)]
    return [*found.differences]


def _attempts(run: pathlib.Path) -> dict[str, Callable[[pathlib.Path], None]]:
    """Ways to change a run, by name. Each changes a copy of it."""
    found = {}
    for name in [archive.SUMS, *archive.listed(run)]:
        found[f'a bit of {name}'] = lambda copy, name=name: _flip(copy / name)
    for name in archive.listed(run):
        found[f'{name} deleted'] = lambda copy, name=name: (copy / name).unlink()
        found[f'{name} changed, its line dropped'] = lambda copy, name=name: _drop(copy, name)
    for name in ('notes.txt', 'plots/generated_000001.png', 'saved_model/assets/words'):
        found[f'{name} added'] = lambda copy, name=name: _add(copy, name)
    for name in ('model.npz', archive.LOG, 'plots', archive.SUMS):
        found[f'{name} replaced by a link'] = lambda copy, name=name: _link(copy, name)
    return {
        **found,
        'log cut to one round': lambda copy: _forge(copy, log=_cut(copy, 1)),
        'journal, cohorts and all tables cut to one round': lambda copy: _forge(
            copy, log=_cut(copy, 1), journal_too=True
        ),
        'another client in the log': lambda copy: _forge(copy, log=_with_another_client(copy)),
        'noise of the plan times 10': lambda copy: _forge(copy, noise_multiplier=20.0),
        'noise of the plan times 10, new journal': lambda copy: _forge(
            copy, noise_multiplier=20.0, journal_too=True
        ),
        'clip norm of the plan halved, new journal': lambda copy: _forge(
            copy, clip_norm=0.5, journal_too=True
        ),
        'another noise key, new journal': lambda copy: _forge(
            copy, journal_too=True, of_record={'noise_key_digest': 'a' * 64}
        ),
        'a line of the journal taken out': _without_a_line,
        'the end of the journal taken out': lambda copy: _without_a_line(copy, -1),
    }


def _flip(path: pathlib.Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _drop(copy: pathlib.Path, name: str) -> None:
    _flip(copy / name)
    lines = (copy / archive.SUMS).read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.split('  ', 1)[1].rstrip('\n') != name]
    (copy / archive.SUMS).write_text(''.join(kept))


def _add(copy: pathlib.Path, name: str) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text('added')


def _link(copy: pathlib.Path, name: str) -> None:
    elsewhere = copy.with_name('elsewhere')
    os.replace(copy / name, elsewhere)
    (copy / name).symlink_to(elsewhere)


def _cut(copy: pathlib.Path, rounds: int) -> ParticipationLog:
    log = ParticipationLog.load(copy / archive.LOG)
    return ParticipationLog(log.cohort(t) for t in range(rounds))


def _with_another_client(copy: pathlib.Path) -> ParticipationLog:
    log = ParticipationLog.load(copy / archive.LOG)
    cohorts = [log.cohort(t).tolist() for t in range(log.rounds)]
    cohorts[0][0] = 99
    return ParticipationLog(cohorts)


def _without_a_line(copy: pathlib.Path, place: int = 3) -> None:
    lines = (copy / archive.LEDGER).read_bytes().splitlines(keepends=True)
    del lines[place]
    (copy / archive.LEDGER).write_bytes(b''.join(lines))
    (copy / archive.SUMS).write_text(archive.digests(copy))


def _forge(
    copy: pathlib.Path,
    log: ParticipationLog | None = None,
    journal_too: bool = False,
    of_record: dict | None = None,
    **changes,
) -> None:
    """Changes log or plan, and recomputes tables, pages and digests, and the journal if asked."""
    found = archive.Records.read(copy)
    plan = dataclasses.replace(found.record.plan, **changes)
    record = dataclasses.replace(found.record, plan=plan, **(of_record or {}))
    found = dataclasses.replace(found, record=record, log=log or found.log)
    if journal_too:
        events = [
            dataclasses.replace(event, record=record.to_dict())
            if isinstance(event, journal.Built)
            else event
            for event in found.journal.events
            if getattr(event, 'round', 0) < found.log.rounds
        ]
        (copy / archive.LEDGER).write_bytes(_encoded(events))
        (copy / cohorts.NAME).write_bytes(
            b''.join(cohorts.record(t, found.log.cohort(t)) for t in range(found.log.rounds))
        )
        found = archive.Records.read(copy)
    for name, data in archive.tables(found).items():
        (copy / name).write_bytes(data)
    (copy / archive.PLAN).write_text(record.to_json())
    for name, text in run_directory.pages_of(copy, found.report()).items():
        (copy / name).write_text(text)
    (copy / archive.SUMS).write_text(archive.digests(copy))


def _encoded(events) -> bytes:
    text, head = b'', ''
    for event in events:
        line, head = journal.line(head, event)
        text += line
    return text


def _attack(run: pathlib.Path) -> dict[str, list[str]]:
    """What the verification says of each way to change a run; nothing where it notices nothing."""
    results = {}
    for name, change in _attempts(run).items():
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(shutil.copytree(run, pathlib.Path(folder, 'run')))
            change(copy)
            results[name] = [each.replace(f'{copy}', '.') for each in _noticed(copy)]
    return results


def test_every_change_is_noticed(tmp_path):
    run = _train(tmp_path)
    results = _attack(run)
    assert len(results) > 60
    assert [name for name, said in results.items() if not said] == []
    # Each is named: what is said begins with the file that was changed.
    name = 'saved_model/saved_model.pb'
    assert results[f'a bit of {name}'][0].startswith(f'{name}: its SHA-256 is not')
    assert results['log cut to one round'][0].startswith('participation.npz: is not the one')
    assert results['noise of the plan times 10'][0].startswith('plan.json: noise_multiplier is 20')
    assert 'noise_multiplier is 20.0, by config.json 2.0' in str(
        results['noise of the plan times 10, new journal']
    )
    assert _noticed(run) == []
