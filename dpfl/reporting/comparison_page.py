"""The readable page of a comparison of two privacy reports, in Markdown."""

from collections.abc import Iterable, Sequence
from typing import Any

from dpfl import errors
from dpfl.accounting.reports.two_reports import SIDES
from dpfl.mechanisms import rounding

# Characters of a value in a table.
_MOST_CHARACTERS = 60


def render(values: dict[str, Any]) -> str:
    """The page for the JSON values of a comparison."""
    one, other = (errors.shown(name) for name in values['reports'])
    is_comparable = values['comparable']
    sections = [
        '# Comparison of two privacy reports',
        f'First: {one}\nSecond: {other}',
        f'**{values["statement"]}**',
        *([] if is_comparable else [_bullets(values['obstacles'])]),
        *_section('Why', _bullets(values['reasons'])),
        *_section('Before choosing', _bullets(values['notes'])),
        '## Guarantees' if is_comparable else '## Guarantees (not to be compared)',
        _guarantees(values),
        '## Parameters that differ',
        _parameters(values['parameters']),
        *_lists('Assumptions', values['assumptions']),
        *_lists('Not covered', values['not_covered']),
        'All numbers follow from the plans and limits in the two reports. Whether the runs kept '
        'them is checked by `dpfl report --run_dir`.',
    ]
    return '\n\n'.join(sections) + '\n'


def _bullets(items: Iterable[str]) -> str:
    return '\n'.join(f'- {item}' for item in items)


def _section(title: str, body: str) -> list[str]:
    return [f'## {title}', body] if body else []


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [('', *SIDES), ('---',) * 3, *rows]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)


def _guarantees(values: dict[str, Any]) -> str:
    rows = [
        (label, *(rounding.round_up(values[name][side]) for side in SIDES))
        for label, name in (('rho (zCDP)', 'rho'), ('mu (Gaussian DP)', 'mu'))
    ]
    rows += [
        (
            f'epsilon at delta = {rounding.shown_delta(row["delta"])}',
            *(rounding.round_up(row[side]) for side in SIDES),
        )
        for row in values['epsilon']
    ]
    rows.append(
        (
            'advantage of a membership test',
            *(
                f'{min(1.0, float(rounding.round_up(values["advantage"][side]))):.4g}'
                for side in SIDES
            ),
        )
    )
    if any(values['selection'].values()):
        rows.append(('selected from', *(_shown(values['selection'][side]) for side in SIDES)))
    return _table(rows)


def _parameters(values: dict[str, dict[str, Any]]) -> str:
    rows = [
        (name.replace('_', ' '), *(_shown(pair[side]) for side in SIDES))
        for name, pair in values.items()
        if pair['differs']
    ]
    return _table(rows) if rows else 'None.'


def _shown(value: Any) -> str:
    if value is None:
        return 'none'
    if isinstance(value, float):
        return f'{value:.6g}'
    return errors.shown(value, _MOST_CHARACTERS)


def _lists(title: str, only: dict[str, list[str]]) -> list[str]:
    return [
        text
        for side in SIDES
        for text in _section(f'{title} of the {side} only', _bullets(only[side]))
    ]
