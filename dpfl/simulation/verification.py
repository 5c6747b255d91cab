"""Checks the directory of a finished run, with its settings, metrics and all of its pages.

`dpfl.accounting.records.verification` compares digests, plan, ledger, log and report. Here the
plan and what the report states besides are also compared with the settings of the run, metrics with
plan and ledger, and every page is computed again. No TensorFlow.
"""

import csv
import dataclasses
import io
import math
import os
import pathlib
from collections.abc import Iterator

from dpfl import _files, errors
from dpfl.accounting import running
from dpfl.accounting.records import archive, comparison
from dpfl.accounting.records import verification as verification_lib
from dpfl.accounting.records.verification import Verification
from dpfl.simulation import pages
from dpfl.simulation.training import recorded_settings

_OF_TRAINING = 'train_'


def verify(directory: str | os.PathLike[str]) -> Verification:
    """Checks the directory of a run, or of an export, which has neither settings nor ledger.

    Raises:
      ValueError: if the directory does not hold a finished run or an export.
    """
    path = pathlib.Path(directory)
    found = verification_lib.verify(path, pages.of_run)
    if found.records is None or found.records.log is None:
        return found
    differences, missing = recorded_settings.differences(path, found.records.record)
    of_metrics = _of_metrics(path, found.records)
    return dataclasses.replace(
        found,
        differences=tuple(dict.fromkeys((*found.differences, *differences, *of_metrics))),
        not_compared=(*found.not_compared, *missing),
    )


def _of_metrics(directory: pathlib.Path, records: archive.Records) -> Iterator[str]:
    """How `metrics.csv` differs from plan and ledger, a sentence each."""
    name, record = archive.METRICS, records.record
    if not (directory / name).exists():
        return
    try:
        text = _files.read_bytes(directory / name).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline='')))
        rounds = [int(row['round']) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        yield f'{name}: not the metrics of a run ({errors.shown(error)})'
        return
    done = 0 if records.log is None else records.log.rounds
    # A run that failed may have begun rounds without metrics.
    least = done if (directory / archive.MODEL).exists() else 0
    if rounds != list(range(1, len(rows) + 1)) or not least <= len(rows) <= done:
        yield f'{name}: must have a row for each round, {archive.LEDGER} has {done} rounds'
        return
    columns = [each for each in (rows[0] if rows else {}) if each and each.startswith(_OF_TRAINING)]
    if columns and not record.train_metrics_released:
        yield f'{name}: has {columns[0]}, which {archive.PLAN} does not say'
    # Earlier rounds have the epsilon of the plan before.
    first = record.extensions[-1].released if record.extensions else 0
    epsilon = running.RunningEpsilon(record.plan, record.deltas[0], record.accountant)
    for t, row in enumerate(rows[first:], first + 1):
        if not _is_number(row.get('epsilon'), epsilon.after(t)):
            yield f'{name}: epsilon after round {t} must be {epsilon.after(t)}'
            return


def _is_number(text: str | None, value: float) -> bool:
    """Whether a text is a number, up to its last digits."""
    try:
        number = float(text or math.nan)
    except ValueError:
        return False
    return number == value or comparison.is_close(number, value)
