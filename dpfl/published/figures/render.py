"""The checks of figures as a text."""

from collections.abc import Sequence

from dpfl.published.figures.checks import Check, Result
from dpfl.reporting import plain_text

_MATCH = {True: 'yes', False: 'NO', None: 'cannot'}


def text(results: Sequence[Result]) -> str:
    """A table of checks for each figure, notes of those that do not match, and a summary."""
    lines = []
    for result in results:
        lines += [f'{result.figure}: {result.title} ({result.png}, {result.data})']
        lines += [plain_text.columns([_cells(check) for check in result.checks])]
        lines += [
            f'{check.id}: {check.says} {check.note}'
            for check in result.checks
            if check.match is not True
        ]
        lines += ['']
    return '\n'.join([*lines, summary(results)])


def summary(results: Sequence[Result]) -> str:
    """How many checks match, in one line."""
    matches = [check.match for result in results for check in result.checks]
    return (
        f'{len(results)} figures, {len(matches)} checks: {matches.count(True)} match, '
        f'{matches.count(False)} differ, {matches.count(None)} cannot be compared for the reason '
        'in their note.'
    )


def _cells(check: Check) -> dict[str, str]:
    return {
        'id': check.id,
        'published': _numbers(check.published),
        'computed': _numbers(check.computed),
        'match': _MATCH[check.match],
    }


def _numbers(values) -> str:
    return ', '.join(f'{name} {value:.6g}' for name, value in values.items())
