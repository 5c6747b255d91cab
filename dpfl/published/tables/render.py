"""Results as a text or a Markdown page: a section per document, a table per method."""

import math

from dpfl.published.tables import rows
from dpfl.reporting import plain_text

_MATCH = {True: 'yes', False: 'NO', None: 'cannot'}
_DIGITS_BEYOND = 2
_PARAMETER_DECIMALS = 4


def text(results: list[rows.Result]) -> str:
    """Tables for a terminal."""
    lines = []
    for source, groups in _sections(results):
        lines += [f'Rows {source}: {rows.SOURCES[source]}', '']
        for group in groups:
            cells, notes = _cells(group)
            lines += [group[0].row.table, *_method_lines(group), plain_text.columns(cells)]
            lines += [f'[{number}] {note}' for note, number in notes.items()] + ['']
    return '\n'.join([*lines, summary(results)])


def markdown(results: list[rows.Result]) -> str:
    """A Markdown page for a reviewer."""
    lines = ['# Published privacy and loss numbers, recomputed', '', summary(results), '']
    for source, groups in _sections(results):
        lines += [f'## Rows {source}: {rows.SOURCES[source]}', '']
        for group in groups:
            cells, notes = _cells(group)
            names = list(cells[0])
            lines += [f'### {group[0].row.table}', '']
            lines += [*(f'- {line}' for line in _method_lines(group)), '']
            lines += [_markdown_line(names), _markdown_line(['---'] * len(names))]
            lines += [_markdown_line([cell[name] for name in names]) for cell in cells] + ['']
            lines += [f'- \\[{number}\\] {_escaped(note)}' for note, number in notes.items()]
            lines += [''] if notes else []
    return '\n'.join(lines).rstrip()


def summary(results: list[rows.Result]) -> str:
    """How many rows match and how far that goes, in one line."""
    matching = [result.row for result in results if result.match]
    better = sum(row.may_be_better for row in matching)
    assumed = sum(bool(row.assumed) for row in matching)
    kinds = {
        'to the digit': len(matching) - better - assumed,
        'with one of two losses better than printed': better,
        'with an input that no document gives': assumed,
    }
    how = ', '.join(f'{count} {words}' for words, count in kinds.items() if count)
    differ = sum(result.match is False for result in results)
    return (
        f'{len(results)} rows: {len(matching)} match{f" ({how})" if matching else ""}, {differ} '
        f'differ, {len(results) - len(matching) - differ} cannot be reproduced for the reason in '
        'their note.'
    )


def _sections(results):
    """Documents in order, each with its results grouped by table and method."""
    sections: dict[str, dict[tuple, list]] = {}
    for result in results:
        groups = sections.setdefault(result.row.source, {})
        kind = result.row.table, result.row.method_text, *result.computed
        groups.setdefault(kind, []).append(result)
    for source in sorted(sections):
        yield source, list(sections[source].values())


def _method_lines(group) -> list[str]:
    return [f'{name}: {words}' for name, words in group[0].row.method.items()]


def _cells(group) -> tuple[list[dict[str, str]], dict[str, int]]:
    """The cells of each row of a group by column, and the numbers of the distinct notes."""
    notes: dict[str, int] = {}
    cells = []
    for result in group:
        line = {'id': result.row.id}
        for name, value in result.computed.items():
            decimals = result.row.decimals.get(name, _PARAMETER_DECIMALS)
            line[f'{name} published'] = _number(result.published[name], decimals)
            line[f'{name} computed'] = _number(value, decimals + _DIGITS_BEYOND)
        line['match'] = _MATCH[result.match]
        number = notes.setdefault(result.note, len(notes) + 1) if result.note else None
        line['note'] = f'[{number}]' if number else ''
        cells.append(line)
    return cells, notes


def _number(value, decimals: int) -> str:
    """A number with so many decimals, or in scientific notation with as many digits."""
    if isinstance(value, list):
        return ' '.join(_number(entry, decimals) for entry in value)
    exponent = int(f'{value:e}'.partition('e')[2]) if math.isfinite(value) else 0
    if 0 <= decimals <= 6 and exponent >= -4:
        return f'{value:.{decimals}f}'
    return f'{value:.{max(decimals + exponent, 0)}e}'


def _markdown_line(cells) -> str:
    return f'| {" | ".join(map(_escaped, cells))} |'


def _escaped(words: str) -> str:
    """The text with characters escaped that Markdown takes as markup."""
    return words.replace('|', '\\|').replace('*', '\\*').replace('_', '\\_')
