"""The readable page of a comparison of two privacy reports, in Markdown."""

from collections.abc import Iterable
from typing import Any

from dpfl import errors
from dpfl.accounting.records import comparison
from dpfl.accounting.reports.two_reports import SIDES
from dpfl.mechanisms import rounding
from dpfl.reporting import plain_text


def render(values: dict[str, Any]) -> str:
    """The page for the JSON values of a comparison."""
    sections = [
        '# Comparison of two privacy reports',
        f'**{values["statement"]}**',
        *(
            f'{side.capitalize()}, {errors.shown(name)}: {values["statements"][side]}'
            for side, name in zip(SIDES, values['reports'], strict=True)
        ),
        *_section('Obstacles', _bullets(values['obstacles'])),
        *_section('Reasons', _bullets(values['reasons'])),
        *_section('Notes', _bullets(values['notes'])),
        *_section(
            'Epsilon, by the best accountant',
            _table(
                (f'delta = {rounding.shown_delta(row["delta"])}', *map(rounding.round_up, pair))
                for row in values['epsilon']
                if (pair := [row[side] for side in SIDES])
            ),
        ),
        *_section(
            'Parameters that differ',
            _table(
                (name.replace('_', ' '), *(comparison.short(pair[side]) for side in SIDES))
                for name, pair in values['parameters'].items()
            ),
        ),
        *(
            text
            for title, key in (('Assumptions', 'assumptions'), ('Not covered', 'not_covered'))
            for side in SIDES
            for text in _section(f'{title} of the {side} only', _bullets(values[key][side]))
        ),
        'All numbers follow from the plans and limits in the two reports. Whether the runs kept '
        'them is checked by `dpfl report --run_dir`.',
    ]
    return '\n\n'.join(sections) + '\n'


def _bullets(items: Iterable[str]) -> str:
    return '\n'.join(f'- {item}' for item in items)


def _section(title: str, body: str) -> list[str]:
    return [f'## {title}', body] if body else []


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    """A table with a column for each report; empty without rows."""
    known = list(rows)
    return plain_text.markdown(('', *SIDES), known) if known else ''
