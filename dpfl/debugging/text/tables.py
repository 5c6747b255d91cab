"""Tables of the page, and how it writes numbers. No TensorFlow."""

from collections.abc import Sequence

from dpfl import accounting
from dpfl.debugging.differences import Difference
from dpfl.debugging.text import diagnosis, traits
from dpfl.reporting import html_parts
from dpfl.reporting.html_parts import Cell, folded, table

STYLE = (
    html_parts.STYLE
    + """
th, td { text-align: left; }
td.number { text-align: right; }
.found { color: var(--bad); } .suspected, .cannot-tell { color: var(--unsure); }
.not-seen { color: var(--good); }
"""
)


def verdict(found: str) -> str:
    """A verdict in its colour."""
    return f'<span class="{found.replace(" ", "-")}">{found}</span>'


def of_traits(compared: Sequence[Difference], clear: Sequence[str]) -> str:
    """The differences of traits that are clear, and the others folded."""
    names = ['trait', 'here', 'reference', 'difference', '95% interval', 'adjusted p']
    ordered = sorted(compared, key=lambda each: each.adjusted)
    rows = {
        is_clear: [
            _trait_row(each, is_clear) for each in ordered if (each.name in clear) == is_clear
        ]
        for is_clear in (True, False)
    }
    shown = table(names, rows[True]) if rows[True] else '<p>No trait differs clearly.</p>\n'
    return shown + folded(
        f'{len(rows[False])} traits without a clear difference', table(names, rows[False])
    )


def of_words(words: Sequence[Difference]) -> str:
    """Words that differ clearly, with the shares of sentences that have them."""
    if not words:
        return '<p>No word is clearly more frequent in the one than in the other.</p>\n'
    rows = [
        [
            each.name,
            *(Cell(f'{value:.2%}') for value in (each.first, each.second)),
            Cell(f'{100 * each.value:+.2f} points'),
            Cell(f'{100 * each.low:+.2f} to {100 * each.high:+.2f}'),
        ]
        for each in words
    ]
    names = ['word', 'sentences with it here', 'in the reference', 'difference', '95% interval']
    return table(names, rows)


def measured(name: str, measure: traits.Share | traits.Mean) -> str:
    """A trait with its interval."""
    low, high = measure.interval()
    if traits.ALL[name].unit == '%':
        return f'{measure.value:.2%} ({100 * low:.2f} to {100 * high:.2f})'
    return f'{measure.value:.2f} ({low:.2f} to {high:.2f})'


def epsilon(value: float | None) -> str:
    """Epsilon, rounded up."""
    return 'infinite' if value is None else f'{accounting.round_up(value)}'


def _trait_row(each: Difference, is_clear: bool) -> list[str]:
    trait = traits.ALL[each.name]
    scale, unit = (100, 'points') if trait.unit == '%' else (1, trait.unit)
    return [
        Cell(trait.meaning, 'clear' if is_clear else ''),
        Cell(diagnosis.shown_value(each.name, each.first)),
        Cell(diagnosis.shown_value(each.name, each.second)),
        Cell(f'{scale * each.value:+.2f} {unit}'),
        Cell(f'{scale * each.low:+.2f} to {scale * each.high:+.2f}'),
        Cell('< 1e-9' if each.adjusted < 1e-9 else f'{each.adjusted:.2g}'),
    ]
