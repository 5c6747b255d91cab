"""The audit of a finished run that was made with --audit, as a document and as text."""

import json
import pathlib
from typing import Any

from dpfl.accounting.measured import section
from dpfl.accounting.measured.measured import Measured
from dpfl.cli.command import command_line
from dpfl.cli.results import verified_run


def audited(directory: str) -> dict[str, Any]:
    """What the audit of a run measured; verifies the run first, as `report_privacy --run_dir` does.

    Args:
      directory: of the run.

    Returns:
      A JSON object with `mu_claimed`, `mu_lower`, `epsilon_claimed`, `epsilon_lower`,
      `epsilon_estimate`, `trials` and more, as `measured` in the run's report; null is infinity,
      or that there is no mu.

    Raises:
      UsageError: If it is not the directory of a finished run, or the run had no audit.
    """
    return _measured(directory).to_dict()


def render(directory: str, form: str) -> str:
    """The same in a format, `json` or `text`."""
    found = _measured(directory)
    if form == 'json':
        return json.dumps(found.to_dict(), indent=2, allow_nan=False) + '\n'
    return f'# Audit of {directory}\n\n{section.render(found)}\n'


def refutations(directory: str) -> tuple[str, ...]:
    """What the audit of a run found against its claim."""
    return _measured(directory).refutations


def _measured(directory: str) -> Measured:
    _, report = verified_run.verify(pathlib.Path(directory))
    if report.measured is None:
        raise command_line.UsageError(
            f'--run_dir={directory}: has no audit; train --audit makes one'
        )
    return report.measured
