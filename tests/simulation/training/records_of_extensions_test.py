"""What ledger, plan and checkpoint keep of a run that goes on with other rounds."""

import dataclasses
import json

import numpy as np
import pytest

from dpfl import mechanisms
from dpfl.accounting.records import archive, ledger_lines
from dpfl.accounting.reports import history
from dpfl.errors import ArgumentError, RunError
from dpfl.simulation import extension, ledger, outputs, program, state
from tests.accounting import archives
from tests.simulation import toy_experiment

_BLT = mechanisms.Blt(10, [0.9, 0.5], [0.1, 0.2])


def test_what_begins_like_another_mechanism():
    blt = mechanisms.Blt(6, [0.9], [0.2])
    assert mechanisms.Blt(9, [0.9], [0.2]).begins_like(blt, 6)
    assert not mechanisms.Blt(9, [0.9], [0.3]).begins_like(blt, 6)
    assert not mechanisms.BinaryTree(9).begins_like(blt, 6)
    assert not blt.begins_like(mechanisms.Blt(9, [0.9], [0.2]), 7)
    tree = mechanisms.BinaryTree
    short = mechanisms.Restarted.every(tree(6), 1, 3)
    assert mechanisms.Restarted.every(tree(9), 1, 3).begins_like(short, 6)
    assert not mechanisms.Restarted.every(tree(9), 1, 4).begins_like(short, 6)
    full = mechanisms.FullHonakerTree
    assert full(4).begins_like(full(4), 4) and not full(8).begins_like(full(4), 4)


def test_past_noise_in_another_place_is_refused():
    plan, saved = archives.make_record().plan, [np.zeros(1), np.zeros(2)]
    state.require_places(saved, {'a': saved[0], 'b': saved[1]}, plan)
    with pytest.raises(RunError, match='past noise of 2 copies of the model would be kept in'):
        state.require_places(saved, {'a': saved[0]}, plan)


def test_a_ledger_with_an_extension_is_read_back(tmp_path):
    path, plans = tmp_path / 'ledger.jsonl', ('a' * 64, 'b' * 64)
    entries = [ledger_lines.Entry(*(f'{digit}{t:063x}' for digit in 'cdef')) for t in range(3)]
    written = ledger.Ledger(path, plans[0])
    for t in range(2):
        written.record(t, entries[t])
    position = written.position(2)
    longer = ledger_lines.Extension(released=2, planned=2, rounds=5, plan=plans[1])
    written.extend(longer)
    written.record(2, entries[2])
    found = ledger.Ledger(path, plans[1])
    assert found.extensions == (longer,) and found.rounds == 3
    assert found.position(2) == position and found.position(3) == written.position(3)
    with pytest.raises(ledger.LedgerError, match='another plan, that of 5 rounds'):
        ledger.Ledger(path, plans[0])
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (lines[:3] + lines[4:], lines[:2] + lines[3:], [*lines[:4], lines[3]]):
        with pytest.raises(ledger_lines.LineError, match='is damaged'):
            ledger_lines.parse(b''.join(changed))


@pytest.mark.parametrize('changes', [{'released': 6}, {'rounds': 5}, {'rounds': 4}])
def test_no_ledger_and_no_plan_has_an_extension_of_nothing(changes):
    fields = {'released': 2, 'planned': 5, 'rounds': 6, **changes}
    text, chain = ledger_lines.first_line('a' * 64)
    for t in range(2):
        line, chain = ledger_lines.line(chain, t, ledger_lines.Entry('c', 'd', f'{t}', 'f'))
        text += line
    bad = ledger_lines.Extension(plan='b' * 64, **fields)
    with pytest.raises(ledger_lines.LineError, match='is damaged'):
        ledger_lines.parse(text + ledger_lines.extension_line(chain, bad)[0])
    with pytest.raises(ArgumentError, match='rounds='):
        archive._extensions([fields])
    good = dataclasses.replace(bad, released=2, rounds=6)
    assert ledger_lines.parse(text + ledger_lines.extension_line(chain, good)[0]).extensions


def test_a_run_that_got_another_matrix_is_refused_in_one_line(tmp_path):
    fields = {'released': 1, 'planned': 5, 'rounds': 5, 'switched': True}
    text, chain = ledger_lines.first_line('a' * 64)
    line, chain = ledger_lines.line(chain, 0, ledger_lines.Entry('c', 'd', 'e', 'f'))
    values = {'extended': 1, 'planned': 5, 'rounds': 5, 'plan': 'b' * 64, 'switched': True}
    switched, _ = ledger_lines._chained(chain, values)
    (tmp_path / archive.LEDGER).write_bytes(text + line + switched)
    with pytest.raises(ledger.LedgerError, match='another matrix, which commit .* was the last'):
        ledger.read(tmp_path / archive.LEDGER)
    with pytest.raises(ArgumentError, match='extensions: has another matrix, which commit'):
        archive._extensions([fields])


def test_a_plan_that_hides_its_extension_is_noticed(tmp_path):
    record = archives.make_record()
    directory = archives.write(tmp_path)
    extended = dataclasses.replace(record, extensions=(history.Extension(2, 4, 6),))
    values = json.loads(extended.to_json())
    assert archive.PlanRecord.from_dict(values, record.plan.mechanism) == extended
    (directory / archive.PLAN).write_text(extended.to_json())
    found = archives.with_new_digests(directory)
    assert any('has other extensions than' in line for line in found)


@pytest.mark.usefixtures('undrawn')
def test_a_longer_run_with_other_cohorts_is_refused(tmp_path):
    experiment = toy_experiment.in_numpy()
    directory = outputs.RunDirectory(tmp_path)
    program.run_training(experiment, directory)
    sampler = dataclasses.replace(experiment.sampler, seed=1)
    other = dataclasses.replace(experiment, sampler=sampler)
    with pytest.raises(RunError, match='with this plan, round 0 would have had another cohort'):
        extension.commit(other, directory, None, {})  # type: ignore[arg-type]
