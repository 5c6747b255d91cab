"""The page of the study: settings side by side, the conclusion, and the privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import html
from collections.abc import Sequence

from matplotlib import figure

from dpfl import accounting
from dpfl.reporting import html_page
from experiments.debugging.text import findings

_STYLE = """
body { max-width: 70rem; }
.scroll { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.joined { background: #fde9c8; }
.found { color: #9a2a00; } .suspected { color: #7a5a00; } .not-seen { color: #2d5f2d; }
"""


def render(settings: Sequence) -> str:
    """The page as HTML.

    Args:
      settings: `results.Setting` of the study, the one without the bug first.
    """
    parts = [
        '<h1>What the models say about data that nobody may look at</h1>',
        _introduction(),
        '<h2>Conclusion</h2>',
        _conclusions(settings),
        '<h2>Unknown words by position</h2>',
        _by_position(settings),
        '<h2>Most probable unknown words</h2>',
        _rankings(settings),
        '<h2>Sentences that the word model writes</h2>',
        _phrases(settings),
        '<h2>Models and privacy</h2>',
        _models(settings),
        _privacy(settings),
    ]
    body = '\n'.join(parts)
    return html_page.document('Text debugging', body, _STYLE)


def _introduction() -> str:
    return (
        '<p>Each setting has a bug in another share of the sentences: the tokeniser makes one '
        'token of the first two words. Such a token is not in the vocabulary. A word model learns '
        'from all sentences, a character model from the words outside the vocabulary. Both are '
        'trained by federated averaging under user-level differential privacy, and people look '
        'only at what the models write (Augenstein et al. 2020, section 5).</p>'
    )


def _conclusions(settings) -> str:
    items = ''.join(
        f'<li><strong>{html.escape(each.name)} of the sentences: '
        f'<span class="{each.conclusion.verdict.replace(" ", "-")}">{each.conclusion.verdict}'
        f'</span>.</strong> {html.escape(each.conclusion.text)}</li>'
        for each in settings
        if each.conclusion is not None
    )
    return (
        f'<ul>{items}</ul>\n<p>There are two signs, each compared with the setting without the '
        'bug: (1) at the first position, the share of unknown words in '
        f"the word model's sentences is higher by at least {findings.CLEAR_DIFFERENCE:.0%} and "
        f'by at least {findings.CLEAR_DEVIATIONS:g} standard deviations of the sampled sentences '
        '(these do not include how models vary from one training to another); (2) more than '
        f'{findings.MOST:.0%} of the most probable unknown words have a space between two words, '
        'but not without the bug. Found means both signs, suspected means one of them.</p>'
    )


def _by_position(settings) -> str:
    drawn = figure.Figure(figsize=(8, 4), layout='constrained')
    axes = drawn.add_subplot(xlabel='position in the sentence', ylabel='unknown words (%)')
    for each, marker in zip(settings, _markers(len(settings)), strict=True):
        rates = [100 * rate for rate in each.positions.rates]
        axes.plot(range(1, len(rates) + 1), rates, marker=marker, label=each.name)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    positions = range(1, 1 + len(settings[0].positions.rates))
    rows = [
        [
            each.name,
            *(f'{rate:.1%}' for rate in each.positions.rates),
            f'{each.positions.overall:.2%}',
            f'{each.heldout_oov_rate:.2%}',
        ]
        for each in settings
    ]
    return (
        f'<figure>{html_page.svg(drawn)}<figcaption>Share of unknown words by position, in '
        f'{settings[0].positions.words[0]:,} sentences that each word model wrote.</figcaption>'
        '</figure>\n'
        + _table(['setting', *map(str, positions), 'overall', 'held-out clients'], rows)
        + '<p>The last column is the true share in the text of held-out clients. Only a simulation '
        'can show it, and no guarantee covers it.</p>'
    )


def _markers(count: int) -> str:
    return ('os^vD*xP' * (count // 8 + 1))[:count]


def _rankings(settings) -> str:
    most = max(len(each.ranking.words) for each in settings)
    rows = []
    for i in range(most):
        row: list[str] = []
        for each in settings:
            row += _ranked(each.ranking.words[i]) if i < len(each.ranking.words) else ['', '']
        rows.append(row)
    names = [cell for each in settings for cell in (each.name, '10⁻³')]
    shares = ', '.join(
        f'{findings.joined_share(each.words):.0%} ({html.escape(each.name)})' for each in settings
    )
    missing = max(each.ranking.missing for each in settings)
    return (
        _table(names, rows)
        + f'<p>Each character model wrote {settings[0].ranking.samples:,} words. They are ranked '
        'by the joint probability of their characters (Augenstein et al. 2020, equation 1), '
        f'without the words of the vocabulary. Entries of two words: {shares}. The probability '
        f'that a ranking lacks a word because it was never drawn is at most {missing:.2g}.</p>'
    )


def _ranked(word) -> list:
    joined = findings.joined_share([word.word]) > 0
    return [
        _Cell(word.word, 'joined' if joined else ''),
        _Cell(f'{1e3 * word.probability:.2f}', 'number'),
    ]


def _phrases(settings) -> str:
    rows = zip(*(each.phrases for each in settings), strict=True)
    return _table([each.name for each in settings], [list(row) for row in rows])


def _models(settings) -> str:
    names = [
        'setting',
        'model',
        'parameters',
        'rounds',
        'clients per round',
        'mechanism',
        'clip',
        'noise multiplier',
        'loss',
        'accuracy',
        'epsilon',
    ]
    rows = [
        [
            each.name,
            kind,
            *(
                _Cell(text, 'number')
                for text in (
                    f'{model["parameters"]:,}',
                    str(model['rounds']),
                    str(model['clients_per_round']),
                )
            ),
            model['mechanism'],
            *(
                _Cell(text, 'number')
                for text in (
                    f'{model["clip_norm"]:g}',
                    f'{model["noise_multiplier"]:.4g}',
                    f'{model["loss"]:.3f}',
                    f'{model["accuracy"]:.3f}',
                    _epsilon(model['epsilon']),
                )
            ),
        ]
        for each in settings
        for kind, model in each.models.items()
    ]
    return _table(names, rows)


def _privacy(settings) -> str:
    delta = next(iter(settings[0].models.values()))['delta']
    both = ', '.join(f'{html.escape(each.name)}: {_epsilon(each.together)}' for each in settings)
    seeded = any(model['noise_is_seeded'] for each in settings for model in each.models.values())
    simulated = (
        ' The noise comes from a known seed: this is a simulation and protects nobody.'
        if seeded
        else ''
    )
    return (
        f'<p>The table has epsilon of a single model, at delta = {delta:g}. Both models of a '
        f'setting learn from the same clients; epsilon of the two together: {both}. To compare one '
        'setting with another, add the epsilons of both. Figures, rankings and sentences are made '
        'from the models and cost no further privacy. Loss and accuracy are those of held-out '
        f'clients. The privacy report of each model is in its folder.{simulated}</p>'
    )


def _epsilon(value) -> str:
    return 'infinite' if value is None else f'{accounting.round_up(value)}'


class _Cell(str):
    """Text of a cell with its CSS class."""

    kind: str

    def __new__(cls, text: str, kind: str) -> '_Cell':
        cell = super().__new__(cls, text)
        cell.kind = kind
        return cell


def _table(names, rows) -> str:
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in names)
    body = ''.join(
        '<tr>'
        + ''.join(
            f'<td class="{getattr(cell, "kind", "")}">{html.escape(cell)}</td>' for cell in row
        )
        + '</tr>\n'
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>\n'
