"""The JSON Schema of privacy reports, made from the classes that reports consist of.

Types of fields and properties give the types, bounds and units of values, their docstrings the
descriptions. A field or a setting that is added to a class is in the schema.
"""

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from dpfl import _json, _validate
from dpfl.accounting.plan import LEFT_OUT, PrivacyPlan
from dpfl.accounting.reports import inputs, report
from dpfl.accounting.reports.report import PrivacyReport
from dpfl.accounting.reports.two_reports import Composition
from dpfl.accounting.sampling import kinds

_SIMPLE = {bool: 'boolean', int: 'integer', float: 'number', str: 'string', type(None): 'null'}
_BOUNDS = {
    'minimum': 'minimum',
    'above': 'exclusiveMinimum',
    'below': 'exclusiveMaximum',
    'maximum': 'maximum',
    'unit': 'x-unit',
    'choices': 'enum',
}
# An entry of `Attributes` in a docstring: names, and the text up to the next entry.
_ENTRY = re.compile(r'^  (\w[\w, ]*): (.*(?:\n    .*)*)', re.MULTILINE)


def of_reports() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of privacy reports: types, units and meanings of all keys.

    Example:
      >>> schema = accounting.report_schema()
      >>> schema['properties']['epsilon']['x-unit'], schema['properties']['delta']['description']
      ('nats', 'The first of `deltas`.')
    """
    settings, required = _settings()
    parts = (
        _by_paths(PrivacyReport, report.PATHS_OF_PLAN),
        _object(settings, required),
        _by_paths(PrivacyReport, report.PATHS_OF_GUARANTEE),
        _object(
            {
                name: _attribute(PrivacyReport, name, is_given=name not in report.WRITTEN)
                for name in inputs.OF_RUN
            },
            report.WRITTEN,
        ),
        _by_paths(PrivacyReport, report.PATHS),
        _object({'composition': _of_type(Composition)}, ()),
    )
    schema = _object(
        {key: value for part in parts for key, value in part['properties'].items()},
        [name for part in parts for name in part['required']],
    )
    # Later versions may add keys.
    del schema['additionalProperties']
    return {
        '$schema': 'https://json-schema.org/draft/2020-12/schema',
        '$id': f'urn:dpfl:privacy_report:{report.SCHEMA_VERSION}',
        'title': 'Privacy report of dpfl',
        'description': 'JSON form of a privacy report: `privacy_report.json`, or what '
        '`dpfl report_privacy --format=json` writes. A key that is not required is missing if it '
        'would say nothing.',
        **schema,
    }


def _object(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {
        'type': 'object',
        'additionalProperties': False,
        'properties': dict(properties),
        'required': list(required),
    }


def _settings() -> tuple[dict[str, Any], list[str]]:
    """The settings of samplings, and which of them every plan has: null without sampling."""
    properties = {
        name: _attribute(kind, name)
        for kind in reversed(kinds.KINDS.values())
        for name in kinds.settings(kind)
    }
    always = list(kinds.settings_of(None))
    nullable = {name: _or_null(properties[name]) for name in always}
    return {**properties, **nullable}, always


def _plan() -> dict[str, Any]:
    """A plan has digests in place of mechanisms, and settings beside the name of its sampling."""
    settings, always = _settings()
    names = [field.name for field in dataclasses.fields(PrivacyPlan)]
    properties = {
        name: _attribute(PrivacyPlan, name)
        for name in names
        if name not in ('mechanism', 'sampling', 'earlier')
    }
    earlier = {'type': 'array', 'items': {'type': 'object'}}
    properties |= {
        'mechanism_digest': _attribute(PrivacyReport, 'mechanism_digest'),
        'sampling': _attribute(PrivacyPlan, 'sampling_name'),
        'earlier': {**earlier, 'description': _described(PrivacyPlan)['earlier']},
        **settings,
    }
    written = [name for name in properties if name not in (*LEFT_OUT, *settings)]
    return _object(properties, [*written, *always])


def _by_paths(kind: type, paths: _json.Paths, *, are_given: bool = False) -> dict[str, Any]:
    """The object of `_json.by_paths` for an instance of a class; without None if `are_given`."""
    properties = {}
    for key, path in paths.items():
        name, is_required = key.removesuffix('?'), not key.endswith('?')
        if isinstance(path, str):
            properties[name] = _attribute(kind, path, is_given=are_given or not is_required)
        else:
            condition, inner = path
            described = {'description': _attribute(kind, condition)['description']}
            properties[name] = {**_by_paths(kind, inner, are_given=True), **described}
            if is_required:
                properties[name] = _or_null(properties[name])
    return _object(properties, [key for key in paths if not key.endswith('?')])


def _attribute(kind: Any, path: str, *, is_given: bool = False) -> dict[str, Any]:
    """The value of an attribute, described by its docstring; without None if `is_given`."""
    *owners, name = path.split('.')
    for owner in owners:
        hint = _hint(kind, owner)
        kind = typing.get_args(hint)[0] if _validate.is_union(hint) else hint
    hint = _hint(kind, name)
    if is_given and type(None) in typing.get_args(hint):
        hint = typing.get_args(hint)[0]
    text = _described(kind).get(name) or inspect.getdoc(_function(kind, name)) or ''
    text = re.sub(r'\bNone\b', 'null', ' '.join(text.split('\n\n')[0].split()))
    return {**_of_type(hint), 'description': text}


def _hint(kind: Any, name: str) -> Any:
    """The type of a field or of a property."""
    for field in dataclasses.fields(kind):
        if field.name == name:
            return field.type
    return _function(kind, name).__annotations__['return']


def _function(kind: Any, name: str) -> Any:
    member = inspect.getattr_static(kind, name)
    return member.func if isinstance(member, functools.cached_property) else member.fget


@functools.cache
def _described(kind: Any) -> dict[str, str]:
    """The entries of `Attributes` in the docstrings of a class and its bases, by name."""
    entries: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        _, _, attributes = (inspect.getdoc(owner) or '').partition('\nAttributes:\n')
        for names, text in _ENTRY.findall(attributes.partition('\n\n')[0]):
            entries |= dict.fromkeys(names.split(', '), ' '.join(text.split()))
    return entries


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, 'type': _types(schema, {'type': 'null'})}


def _types(*schemas: dict[str, Any]) -> list[str]:
    """The types of all, once each."""
    types: dict[str, None] = {}
    for schema in schemas:
        kind = schema['type']
        types |= dict.fromkeys([kind] if isinstance(kind, str) else kind)
    return [*types]


def _of_type(hint: Any) -> dict[str, Any]:
    """The values of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if _validate.is_union(hint):
        first, *others = (_of_type(option) for option in arguments)
        return {**first, 'type': _types(first, *others)}
    if origin is Annotated:
        kind, limits = arguments
        values = {key: _json.plain(getattr(limits, name)) for name, key in _BOUNDS.items()}
        schema = _of_type(kind)
        schema |= {key: value for key, value in values.items() if value not in (None, '', [])}
        return _or_null(schema) if limits.has_infinity else schema
    if origin is Literal:
        return {'const': arguments[0]}
    if origin in (list, tuple) and (origin is list or arguments[-1] is ...):
        return {'type': 'array', 'items': _of_type(arguments[0])}
    if origin is tuple:
        count = {'minItems': len(arguments), 'maxItems': len(arguments)}
        return {'type': 'array', 'prefixItems': [_of_type(entry) for entry in arguments], **count}
    if origin in (dict, Mapping):
        return {'type': 'object', 'additionalProperties': _of_type(arguments[1])}
    if hint in _SIMPLE or hint is None:
        return {'type': _SIMPLE[hint or type(None)]}
    if hint is PrivacyPlan:
        return _plan()
    if issubclass(hint, _json.JsonPaths):
        return _by_paths(hint, hint.json_paths)
    if dataclasses.is_dataclass(hint):
        names = [field.name for field in dataclasses.fields(hint)]
        return _object({name: _attribute(hint, name) for name in names}, names)
    return {'type': 'object'}
