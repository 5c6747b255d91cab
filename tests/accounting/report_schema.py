"""The tables of docs/reference/report_schema.md, from the schema; running this prints them."""

from collections.abc import Iterator
from typing import Any

from tests import json_schema

_HEAD = '| key | type | unit | meaning |\n|---|---|---|---|\n'


def tables() -> str:
    """Markdown: a table of the report, and one of the guarantees in it."""
    schema = json_schema.of_reports()
    parts = [_HEAD + ''.join(_rows(schema, ''))]
    for name, part in schema['$defs'].items():
        parts.append(f'### Keys of a {name}\n\n{_HEAD}' + ''.join(_rows(part, '')))
    return '\n'.join(parts)


def _rows(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get('required', ())
    for name, part in schema['properties'].items():
        key = f'`{prefix}{name}`' + ('' if name in required else ' (optional)')
        cells = (key, _kind(part), part.get('x-unit', ''), part.get('description', ''))
        yield '| ' + ' | '.join(cells) + ' |\n'
        inner = part['items'] if 'properties' in part.get('items', {}) else part
        if 'properties' in inner:
            mark = '[].' if inner is not part else '.'
            yield from _rows(inner, f'{prefix}{name}{mark}')


def _kind(part: dict[str, Any]) -> str:
    if '$ref' in part:
        return part['$ref'].rpartition('/')[2]
    if 'const' in part:
        return f'`{part["const"]}`'
    if 'enum' in part:
        return ', '.join(f'`{value}`' for value in part['enum'])
    names = part['type'] if isinstance(part['type'], list) else [part['type']]
    if names == ['array']:
        items = part['items']
        if 'prefixItems' in items:
            return 'array of pairs'
        return f'array of {_kind(items)}s' if isinstance(items.get('type'), str) else 'array'
    return ' or '.join(names)


if __name__ == '__main__':
    print(tables(), end='')
