"""The schema of privacy reports, and every report that tests make compared with it."""

import functools
import json
from typing import Any

import jsonschema

from dpfl import accounting
from tests import paths


@functools.cache
def of_reports() -> dict[str, Any]:
    """The schema of privacy reports, as it is shipped."""
    path = paths.ROOT / 'dpfl' / 'accounting' / 'reports' / 'privacy_report.schema.json'
    return json.loads(path.read_text())


def _complete(schema: Any) -> Any:
    """The schema where an object has no key that is not described."""
    if isinstance(schema, list):
        return [_complete(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {'additionalProperties': False} if 'properties' in schema else {}
    return {name: _complete(part) for name, part in schema.items()} | closed


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_complete(of_reports()))


def require_report(values: Any) -> None:
    """Raises AssertionError, with the place, unless the values are those of a privacy report."""
    for error in _validator().iter_errors(values):
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
