"""What two runs that release the same have in common."""

import pathlib

from dpfl.accounting.records import ledger_lines

_SAME = ('model.npz', 'participation.npz', 'privacy_report.json')


def released(path: pathlib.Path) -> list[tuple]:
    """The plan, and of each round the cohort, the model and the noise, by the ledger of a run.

    Digests of data are left out: each run has a key of its own for them.
    """
    ledger = ledger_lines.parse((path / 'ledger.jsonl').read_bytes())
    return [ledger.plan, *((each.cohort, each.model, each.noise) for each in ledger.entries)]


def differences(path: pathlib.Path, other: pathlib.Path) -> list[str]:
    """Names of the files in which two runs differ that should release the same."""
    names = [name for name in _SAME if (path / name).read_bytes() != (other / name).read_bytes()]
    return names + ['ledger.jsonl'] * (released(path) != released(other))
