"""Checks the directory of a finished run, with its settings and all of its pages.

`dpfl.accounting.records.verification` computes tables and report again from the journal. Here the
plan and what the report states besides are also compared with the settings of the run, epsilon of
each round with the plan, and every other page is computed again. No TensorFlow.
"""

import dataclasses
import math
import os
import pathlib
from collections.abc import Collection, Iterator

from dpfl.accounting import PrivacyReport, running
from dpfl.accounting.measured.measured import AUDIT
from dpfl.accounting.records import archive, comparison
from dpfl.accounting.records import verification as verification_lib
from dpfl.accounting.records.journal import State
from dpfl.accounting.records.verification import Verification
from dpfl.simulation import pages, run_files
from dpfl.simulation.training import recorded_settings

_OF_TRAINING = 'train_'


def verify(directory: str | os.PathLike[str]) -> Verification:
    """Checks the directory of a run, or of an export, which has neither settings nor journal.

    Raises:
      ValueError: if the directory does not hold a finished run or an export.
    """
    path = pathlib.Path(directory)
    made: dict[str, str] = {}

    def of_run(directory: pathlib.Path, report: PrivacyReport) -> dict[str, str]:
        made.update(pages.of_run(directory, report))
        return made

    found = verification_lib.verify(path, of_run)
    if found.records is None or found.records.journal is None:
        return found
    state = found.records.journal.state
    differences = recorded_settings.differences(state, found.records.record)
    of_metrics = [*_of_metrics(found.records), *_of_results(path, state)]
    if made:  # Pages in the words of an older version are refused as a whole.
        of_metrics += _of_tables(path, {*made, *archive.tables(found.records), archive.SUMS})
    return dataclasses.replace(
        found,
        differences=tuple(dict.fromkeys((*found.differences, *differences, *of_metrics))),
    )


def _of_metrics(records: archive.Records) -> Iterator[str]:
    """How the metrics of the journal differ from the plan, a sentence each."""
    assert records.journal is not None
    name, record, rows = archive.METRICS, records.record, records.journal.rows()
    columns = [each for row in rows for each in row if each.startswith(_OF_TRAINING)]
    if columns and not record.train_metrics_released:
        yield f'{name}: has {columns[0]}, which {archive.PLAN} does not say'
    # Earlier rounds have the epsilon of the plan before.
    first = record.extensions[-1].released if record.extensions else 0
    epsilon = running.RunningEpsilon(record.plan, record.deltas[0], record.accountant)
    for row in rows[first:]:
        t = int(row['round'])
        if 'epsilon' not in row and records.journal.state.settings is None:
            continue  # A loop of one's own measures nothing.
        if not _is_number(row.get('epsilon', math.nan), epsilon.after(t)):
            yield f'{name}: epsilon after round {t} must be {epsilon.after(t)}'
            return


def _of_results(directory: pathlib.Path, state: State) -> Iterator[str]:
    """Which results are there without a digest in the journal of a run that has ended."""
    known = {} if state.ended is None else state.ended.results
    for name in run_files.results(directory) if state.ended is not None else ():
        if name not in known:
            yield f'{name}: is there, and {archive.LEDGER} does not have its digest'
    if state.audited is None and (directory / AUDIT).exists():
        yield f'{AUDIT}: is there, and {archive.LEDGER} does not have its digest'


def _of_tables(directory: pathlib.Path, known: Collection[str]) -> Iterator[str]:
    """Which tables and pages are there that a run with these records does not write."""
    for name in run_files.tables(directory):
        if name not in known:
            yield f'{name}: is there, and does not follow from {archive.LEDGER}'


def _is_number(stated: float, value: float) -> bool:
    """Whether a number is the stated one, up to its last digits."""
    return stated == value or comparison.is_close(stated, value)
