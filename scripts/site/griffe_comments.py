"""Docstrings of what has none in the source, for mkdocstrings: settings and constants.

The docstring of a setting is its help text. That of a constant is the comment above it, or the
shape of its value.
"""

import ast
from typing import Any

import griffe


class Comments(griffe.Extension):
    """The extension; mkdocs.yml names it."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Adds a docstring to an attribute that has none."""
        if attr.docstring is not None or attr.name.startswith('_'):
            return
        text = _help(node) if attr.parent and attr.parent.is_class else _comment(attr)
        if text:
            attr.docstring = griffe.Docstring(text, parent=attr)


def _help(node: Any) -> str:
    """The help text of a field that is made by `setting`."""
    call = getattr(node, 'value', None)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name | ast.Attribute):
        return ''
    name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
    if name != 'setting':
        return ''
    values = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == 'help')]
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return ''


def _comment(attr: griffe.Attribute) -> str:
    """The comment right above a constant."""
    if attr.lineno is None or not isinstance(attr.filepath, list) and not attr.filepath:
        return ''
    lines = attr.lines_collection[attr.filepath][: attr.lineno - 1]
    found = []
    while lines and lines[-1].startswith('# '):
        found.append(lines.pop().removeprefix('# '))
    return '\n'.join(reversed(found))
