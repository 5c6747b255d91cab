"""Compares JSON values with a schema: the part of JSON Schema that the schemas of dpfl use.

It is stricter than the standard in two ways: a keyword that it does not know is an error, and so is
a key of an object that the schema does not describe. So the schema of what dpfl writes is complete.
"""

import functools
import json
import math
from typing import Any

from dpfl import accounting
from tests import paths

_TYPES = {
    'object': dict,
    'array': list,
    'string': str,
    'boolean': bool,
    'integer': int,
    'number': (int, float),
    'null': type(None),
}
# They say nothing about values.
_ANNOTATIONS = {'$schema', '$id', '$defs', 'title', 'description', 'x-unit'}
_KNOWN = _ANNOTATIONS | {
    '$ref', 'const', 'enum', 'type', 'minimum', 'exclusiveMinimum', 'required', 'properties',
    'additionalProperties', 'items', 'prefixItems', 'minItems', 'maxItems',
}  # fmt: skip


@functools.cache
def of_reports() -> dict[str, Any]:
    """The schema of privacy reports, as it is shipped."""
    path = paths.ROOT / 'dpfl' / 'accounting' / 'reports' / 'privacy_report.schema.json'
    return json.loads(path.read_text())


def require_report(values: Any) -> None:
    """Raises AssertionError unless the values are those of a privacy report."""
    require(values, of_reports(), of_reports())


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


def require(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = '') -> None:
    """Raises AssertionError, with the place, unless a value follows a schema.

    Args:
      value: JSON values.
      schema: which describes them.
      root: the document that the schema is part of.
      where: the place of the value, for the message.
    """
    unknown = set(schema) - _KNOWN
    assert not unknown, f'{where}: the schema has unknown keywords {unknown}'
    if '$ref' in schema:
        schema = root['$defs'][schema['$ref'].rpartition('/')[2]]
    if 'const' in schema:
        assert value == schema['const'], f'{where}: {value}'
    if 'enum' in schema:
        assert value in schema['enum'], f'{where}: {value}'
    if 'type' in schema:
        names = schema['type'] if isinstance(schema['type'], list) else [schema['type']]
        assert any(_is(value, name) for name in names), f'{where}: {value!r} is no {names}'
    if _is(value, 'number'):
        assert value >= schema.get('minimum', -math.inf), f'{where}: {value}'
        assert value > schema.get('exclusiveMinimum', -math.inf), f'{where}: {value}'
    elif isinstance(value, dict):
        _require_object(value, schema, root, where)
    elif isinstance(value, list):
        assert schema.get('minItems', 0) <= len(value) <= schema.get('maxItems', math.inf), where
        first = schema.get('prefixItems', [])
        for place, item in enumerate(value):
            own = first[place] if place < len(first) else schema.get('items', {})
            require(item, own, root, f'{where}[{place}]')


def _require_object(value: dict, schema: dict[str, Any], root: dict[str, Any], where: str) -> None:
    missing = set(schema.get('required', ())) - set(value)
    assert not missing, f'{where}: {missing} missing'
    if 'properties' not in schema:
        return
    unknown = set(value) - set(schema['properties'])
    assert not unknown, f'{where}: {unknown} not in the schema'
    for name in value:
        require(value[name], schema['properties'][name], root, f'{where}.{name}')


def _is(value: Any, name: str) -> bool:
    is_truth = isinstance(value, bool)
    return isinstance(value, _TYPES[name]) and (name == 'boolean') == is_truth
