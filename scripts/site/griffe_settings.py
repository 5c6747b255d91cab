"""Docstrings of settings, for mkdocstrings: their help texts."""

import ast
from typing import Any

import griffe


class HelpTexts(griffe.Extension):
    """The extension; mkdocs.yml names it."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Takes the help text of a field that `setting` makes as its docstring."""
        call = getattr(node, 'value', None)
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith('setting'):
            return
        named = [each.value for each in call.keywords if each.arg == 'help']
        for value in [*call.args[1:2], *named]:
            if isinstance(value, ast.Constant):
                attr.docstring = griffe.Docstring(value.value, parent=attr)
