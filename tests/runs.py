"""What two runs that release the same have in common."""

import csv
import json
import pathlib
from typing import Any

from dpfl.accounting.records import archive, journal


def released(path: pathlib.Path) -> list[tuple]:
    """The plan, and of each round cohort, noise, and the model before and after it, by the journal.

    Digests of data are left out: each run has a key of its own for them.
    """
    found = archive.read_journal(path)
    left_out = ('about', 'extensions', 'noise_key_digest')
    plan = {name: value for name, value in found.state.record.items() if name not in left_out}
    after = {each.round: each.model for each in found.of_kind(journal.Released)}
    return [
        plan,
        *(
            (each.cohort, each.model, each.noise, after.get(each.round))
            for each in found.of_kind(journal.Began)
        ),
    ]


def differences(path: pathlib.Path, other: pathlib.Path) -> list[str]:
    """Names of the files in which two runs differ that should release the same."""
    compared = {
        'model.npz': pathlib.Path.read_bytes,
        'participation.npz': pathlib.Path.read_bytes,
        'privacy_report.json': lambda file: report(file.parent),
        'ledger.jsonl': lambda file: released(file.parent),
        'metrics.csv': lambda file: metrics(file.parent),
    }
    return [
        name
        for name, read in compared.items()
        if not (path / name).exists() or read(path / name) != read(other / name)
    ]


def report(path: pathlib.Path) -> dict[str, Any]:
    """The values of a run's report, but the head of its journal: digests of data are in that."""
    values = json.loads((path / 'privacy_report.json').read_text())
    del values['journal_head']
    return values


def contents(path: pathlib.Path) -> dict[pathlib.Path, bytes]:
    """The bytes of every file of a directory."""
    return {each: each.read_bytes() for each in path.rglob('*') if each.is_file()}


def metrics(path: pathlib.Path) -> list[dict[str, str]]:
    """The rows of a run's metrics, without the seconds."""
    with open(path / 'metrics.csv', newline='') as file:
        return [{**row, 'seconds': ''} for row in csv.DictReader(file)]


def begun_rounds(path: pathlib.Path) -> int:
    """Number of rounds that a run has begun, by a journal that may be about to be written."""
    ledger = path / archive.LEDGER
    return ledger.read_bytes().count(b'"event": "began"') if ledger.exists() else 0


def saved_rounds(path: pathlib.Path) -> int:
    """Number of rounds in the newest checkpoint; -1 if there is none."""
    names = (path / 'checkpoints').glob('*.checkpoint')
    return max((int(name.stem) for name in names), default=-1)
