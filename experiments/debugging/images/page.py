"""The page of the study: sheets of images side by side, measures, and the privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import base64
import dataclasses
import html
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from dpfl import accounting
from dpfl.reporting import contact_sheet, html_page
from dpfl.tasks.images import image_selection
from experiments.debugging.images import findings, settings

_SHEET_IMAGES, _SHEET_COLUMNS = 72, 12
_STYLE = """
body { max-width: 70rem; }
.scroll { overflow-x: auto; }
.sheets { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 0; }
img { image-rendering: pixelated; width: 100%; }
.yes { color: #2d5f2d; } .no { color: #9a2a00; }
"""
_TITLES = {
    settings.BUG: 'While some devices invert their images',
    settings.FIXED: 'After the fix',
}
_SUBPOPULATIONS = {
    'high_accuracy': 'clients on whom the classifier does well',
    'low_accuracy': 'clients on whom it does badly',
    'correct': 'examples that the classifier gets right',
    'misclassified': 'examples that it gets wrong',
}


@dataclasses.dataclass(frozen=True)
class Study:
    """What the page says about the study besides its findings.

    Attributes:
      share: Share of the devices that have the bug.
      selection: What was selected by accuracy, 'client' or 'example'.
      population: Number of clients.
      limits: Thresholds of the selection by client.
      accuracies: Accuracy on each client by state; NaN for a client without examples.
      noise_is_seeded: Whether the noise comes from a known seed.
    """

    share: float
    selection: str
    population: int
    limits: image_selection.Thresholds
    accuracies: Mapping[str, np.ndarray]
    noise_is_seeded: bool


def render(study: Study, results: Sequence[findings.Finding]) -> str:
    """The page as HTML.

    Args:
      study: What was compared.
      results: All findings, in each state the subpopulation with high accuracy first.
    """
    verdict = findings.conclude(results)
    parts = [
        '<h1>What generated images say about images that nobody may look at</h1>',
        _introduction(study),
        '<h2>Conclusion</h2>',
        _conclusion(verdict),
        *(_sheets(state, results) for state in _TITLES),
        '<h2>Numbers of the generated images</h2>',
        _numbers(results),
        '<h2>Accuracy on each client, and who was chosen</h2>',
        _population(study, results),
        '<h2>Privacy</h2>',
        _privacy(results),
        '<h2>What only a simulation can show</h2>',
        _real(results),
    ]
    body = '\n'.join(parts)
    return html_page.document('Image debugging', body, _STYLE)


def _introduction(study: Study) -> str:
    chosen = {
        'client': 'one on the clients on whom the classifier does well, one on those on whom it '
        'does badly',
        'example': 'one on the examples that the classifier gets right, one on those that it gets '
        'wrong',
    }[study.selection]
    simulated = (
        ' The noise comes from a known seed: this is a simulation and protects nobody.'
        if study.noise_is_seeded
        else ''
    )
    return (
        f'<p>A classifier of letters and digits runs on {study.population:,} devices. After an '
        f'update, {study.share:.0%} of the devices swap black and white in the images they give '
        'it. Its accuracy falls, and nobody may look at the images. So two generators are trained '
        f'by DP-FedAvg-GAN under user-level differential privacy, {chosen}, and their images are '
        'compared. After the fix, this is repeated (Augenstein et al. 2020, section 6).'
        f'{simulated}</p>'
    )


def _conclusion(verdict: findings.Verdict) -> str:
    kind = 'yes' if verdict.bug_is_visible and verdict.fix_is_visible else 'no'
    return (
        f'<p class="{kind}"><strong>{html.escape(verdict.text)}</strong></p>\n'
        '<p>An image counts as inverted if it has more ink than paper, that is, a mean below 1/2. '
        f'The bug shows if more than {findings.DOMINATED:.0%} are inverted where the classifier '
        f'does badly and at most {findings.CLEAN:.0%} where it does well. It is gone if at most '
        f'{findings.CLEAN:.0%} are inverted in both.</p>'
    )


def _sheets(state: str, results) -> str:
    figures = ''.join(
        f'<figure>{_image(each.generated)}<figcaption>{_subject(each)}: '
        f'{each.measures.inverted_by_intensity:.0%} inverted</figcaption></figure>\n'
        for each in results
        if each.state == state
    )
    return f'<h2>{_TITLES[state]}</h2>\n<div class="sheets">{figures}</div>'


def _subject(each: findings.Finding) -> str:
    whom = _SUBPOPULATIONS[each.subpopulation]
    return f'Generated, trained on {whom} ({each.clients:,} clients)'


def _image(pixels: np.ndarray) -> str:
    picture = contact_sheet.png(pixels[:_SHEET_IMAGES], _SHEET_COLUMNS, scale=1)
    data = base64.b64encode(picture).decode()
    return f'<img alt="sheet of images" src="data:image/png;base64,{data}">'


def _numbers(results) -> str:
    names = [
        '',
        'inverted, by intensity',
        'inverted, by the classifier',
        'effective classes',
        'diversity',
        'Frechet distance',
        'minutes',
    ]
    rows = []
    for each in results:
        for label, measures, seconds in (
            ('generated', each.measures, f'{each.seconds / 60:.1f}'),
            ('real', each.real_measures, ''),
        ):
            rows.append(
                [
                    f'{each.state}, {each.subpopulation}: {label}',
                    f'{measures.inverted_by_intensity:.1%}',
                    f'{measures.inverted_by_classifier:.1%}',
                    f'{measures.effective_classes:.1f}',
                    f'{measures.diversity:.2f}',
                    f'{measures.frechet:.1f}',
                    seconds,
                ]
            )
    return _table(names, rows) + (
        '<p>Inverted by the classifier: it is surer of the image once that is inverted. Effective '
        'classes: the exponential of the entropy of the classes that it sees. Diversity and '
        'Frechet distance are in the space of its hidden layer. The Frechet distance of generated '
        'images is to real images of the subpopulation, that of real images from one half to the '
        'other. No guarantee covers the numbers of real images.</p>'
    )


def _population(study: Study, results) -> str:
    drawn = figure.Figure(figsize=(8, 3.4), layout='constrained')
    axes = drawn.add_subplot(xlabel='accuracy on a client', ylabel='clients')
    for state, label in ((settings.FIXED, 'without bug'), (settings.BUG, 'with bug')):
        known = study.accuracies[state][~np.isnan(study.accuracies[state])]
        axes.hist(known, bins=np.linspace(0, 1, 41).tolist(), alpha=0.6, label=label)
    for limit in (study.limits.poor, study.limits.strong):
        axes.axvline(limit, color='grey', linestyle='--', linewidth=1)
    axes.legend()
    rows = [
        [
            f'{each.state}, {each.subpopulation}',
            f'{each.clients:,}',
            f'{each.clients / study.population:.1%}',
        ]
        for each in results
    ]
    return (
        f'<figure>{html_page.svg(drawn)}</figure>\n<p>Without the bug, 25% of the clients have an '
        f'accuracy of at most {study.limits.poor:.1%}, and 25% one of at least '
        f'{study.limits.strong:.1%} (the dashed lines; Augenstein et al. 2020, figure 5 and table '
        '10). Subpopulations (tables 11 and 12):</p>\n' + _table(['', 'clients', 'of all'], rows)
    )


def _privacy(results) -> str:
    names = [
        '',
        'clients per round',
        'population',
        'noise multiplier',
        'delta',
        'epsilon',
        'epsilon as Augenstein et al. 2020 count',
    ]
    rows = [
        [
            f'{each.state}, {each.subpopulation}: {guarantee.name}',
            f'{guarantee.clients_per_round:,}',
            f'{guarantee.population:,}',
            f'{guarantee.noise_multiplier:g}',
            f'{guarantee.delta:.3g}',
            _epsilon(guarantee.epsilon),
            _epsilon(guarantee.epsilon_half_shift),
        ]
        for each in results
        for guarantee in each.guarantees
    ]
    return _table(names, rows) + (
        '<p>Realistic: clients per round and noise multiplier are scaled up by the same factor, so '
        'that the mean of a round has the same noise, on a larger population of which the same '
        'share is selected. No such run was made (tables 3 and 13). Cohorts have a fixed size and '
        'are drawn without replacement. Replacing a client moves the sum by up to two clip norms. '
        'Augenstein et al. 2020 count one, which clipping does not ensure. Epsilon as they count '
        'is computed by their moments accountant, the other epsilon by '
        f'{results[0].guarantees[0].accountant}.</p>\n'
        '<p>Generated images cost no further privacy (post-processing). Not covered: the '
        'thresholds, who was selected, and how many clients were selected, because these come from '
        "the classifier's accuracy on the clients, without noise; real images and all their "
        'numbers on this page. If several generators learned from a client, for example before '
        'and after the fix, the guarantees of that client add up.</p>'
    )


def _real(results) -> str:
    figures = ''.join(
        f'<figure>{_image(each.real)}<figcaption>Real, {each.state}, {each.subpopulation}: '
        f'{each.real_measures.inverted_by_intensity:.0%} inverted</figcaption></figure>\n'
        for each in results
    )
    return f'<div class="sheets">{figures}</div>'


def _epsilon(value: float) -> str:
    if not np.isfinite(value):
        return 'infinite'
    return f'{float(accounting.round_up(value)):,.4g}'


def _table(names, rows) -> str:
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in names)
    body = ''.join(
        '<tr>' + ''.join(f'<td>{html.escape(cell)}</td>' for cell in row) + '</tr>\n'
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>\n'
