"""The schema of privacy reports, and every report that tests make compared with it."""

import functools
import json
from typing import Any

import jsonschema

from dpfl import accounting
from dpfl.accounting.sampling import kinds


@functools.cache
def _validator(_kinds: tuple[str, ...]) -> jsonschema.Draft202012Validator:
    schema = accounting.report_schema() | {'additionalProperties': False}
    return jsonschema.Draft202012Validator(schema)


def require_report(values: Any) -> None:
    """Raises AssertionError, with the place, unless the values are those of a privacy report."""
    for error in _validator(kinds.names()).iter_errors(values):
        raise AssertionError(f'{error.json_path}: {error.message}')


def check_every_report() -> None:
    """From now on, compares every report that this process makes with the schema."""
    made = accounting.PrivacyReport.to_dict

    @functools.wraps(made)
    def checked(report: accounting.PrivacyReport) -> dict[str, Any]:
        values = made(report)
        # Tuples are arrays in JSON.
        require_report(json.loads(json.dumps(values)))
        return values

    accounting.PrivacyReport.to_dict = checked  # type: ignore[method-assign]
