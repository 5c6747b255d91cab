"""The page of the study: sheets of images side by side, measures, and the privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import dataclasses
import html
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import figure

from dpfl import accounting
from dpfl.debugging import power
from dpfl.debugging.differences import Difference, Mean
from dpfl.debugging.images import (
    conclusions,
    diagnosis,
    discriminator,
    findings,
    settings,
    subpopulations,
)
from dpfl.reporting import html_page, html_parts

_STYLE = (
    html_parts.STYLE
    + """
.yes { color: var(--good); } .no { color: var(--bad); } .unsure { color: var(--unsure); }
"""
)
_TITLES = {
    settings.BUG: 'While some devices have the fault',
    settings.FIXED: 'After the fix',
    settings.AS_IS: 'Generated images',
}
_SUBPOPULATIONS = {
    settings.PUBLIC: 'public images',
    settings.PUBLIC_AGAIN: 'other public images',
    settings.EVERYONE: 'all clients',
    'high_accuracy': 'clients on whom the classifier does well',
    'low_accuracy': 'clients on whom it does badly',
    'correct': 'examples that the classifier gets right',
    'misclassified': 'examples that it gets wrong',
}
_STATES = {
    settings.BUG: 'with the fault',
    settings.FIXED: 'after the fix',
    settings.AS_IS: 'as it is',
}
_CONTRASTS = {
    diagnosis.BADLY: 'where the model does badly, against where it does well',
    diagnosis.CLIENTS: 'all clients, against public images',
}
_TRAITS: Mapping[str, tuple[str, str]] = {
    'inverted': ('more ink than paper', '%'),
    'blank_half': ('lower half blank', '%'),
    'lying': ('wider than high', '%'),
    'combed': ('rows alternate', '%'),
    'confidence': ('confidence of the model', '%'),
    'variety': ('distance of two images', ''),
    'accuracy': ('accuracy of the model on real images', '%'),
}


@dataclasses.dataclass(frozen=True)
class Study:
    """What the page says about the study besides its findings.

    Attributes:
      injected: The faults that were put into the data.
      share: Share of the devices that have each of them.
      selection: What was selected by accuracy, 'client' or 'example'.
      population: Number of clients.
      limits: Thresholds of the selection by client.
      accuracies: Accuracy on each client by state; NaN for a client without examples.
      noise_is_seeded: Whether the noise comes from a known seed.
      public: Images of held-out clients, float32 [n, 28, 28]: the real ones of the page.
      public_measures: Measures of one half of them, compared with the other half: the best that a
        generator can reach.
      of_clients_and_public: Accuracy over clients, and on public images; None with a fix.
      effects: By fault, by how much it raises its trait in public images.
      seed: Seed of the study.
    """

    injected: tuple[str, ...]
    share: float
    selection: str
    population: int
    limits: subpopulations.Thresholds
    accuracies: Mapping[str, np.ndarray]
    noise_is_seeded: bool
    public: np.ndarray
    public_measures: findings.Measures
    of_clients_and_public: tuple[Mean, Mean] | None = None
    effects: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seed: int = 0

    @property
    def has_fix(self) -> bool:
        """Whether there are data after a fix."""
        return settings.FIXED in self.accuracies


def render(study: Study, results: Sequence[findings.Finding], found: conclusions.Conclusion) -> str:
    """The page as HTML.

    Args:
      study: What was compared.
      results: All findings, in each state the subpopulation with high accuracy before the other.
      found: What they show together.
    """
    parts = [
        '<h1>What generated images say about images that nobody may look at</h1>',
        _introduction(study),
        '<h2>Conclusion</h2>',
        _conclusion(found),
        *(_sheets(state, results) for state in study.accuracies),
        '<h2>What differs, with intervals</h2>',
        _differences(found),
    ]
    if found.discriminators is not None:
        parts += [
            '<h2>Private images against public ones</h2>',
            _discriminators(found.discriminators),
        ]
    parts += [
        '<h2>Numbers of the generated images</h2>',
        _numbers(study, results),
        '<div class="sheets">',
        html_parts.sheet(study.public, 'Public images: those of held-out clients'),
        '</div>',
        '<h2>Accuracy on each client, and who was chosen</h2>',
        _population(study, results),
        '<h2>Privacy</h2>',
        _privacy(results),
    ]
    return html_page.document('Image debugging', '\n'.join(parts), _STYLE)


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
    names = ', '.join(name.replace('_', ' ') for name in study.injected)
    faults = f'{study.share:.0%} of the devices have the fault: {names}. ' if names else ''
    if study.has_fix:
        story = (
            f'After an update, {faults}The accuracy falls, and nobody may look at the images. So '
            f'two generators are trained by DP-FedAvg-GAN under user-level differential privacy, '
            f'{chosen}, and their images are compared. After the fix, this is repeated (Augenstein '
            'et al. 2020, section 6).'
        )
    else:
        put = f'For this study, {faults}' if names else ''
        story = (
            f'Nobody may look at the images. {put}Five generators are trained by DP-FedAvg-GAN '
            f'under user-level differential privacy: {chosen}; one on all clients; and two on '
            'public images, which show what two trainings on equal data differ by. Their images '
            'are compared (Augenstein et al. 2020, table 1, tasks T1, T2, T4 and T6).'
        )
    return (
        f'<p>A classifier of letters and digits runs on {study.population:,} devices. {story}'
        f'{simulated}</p>'
    )


def _sheets(state: str, results) -> str:
    figures = ''.join(
        html_parts.sheet(each.generated, _subject(each)) for each in results if each.state == state
    )
    return f'<h2>{_TITLES[state]}</h2>\n<div class="sheets">{figures}</div>'


def _subject(each: findings.Finding) -> str:
    whom, share = _SUBPOPULATIONS[each.subpopulation], each.traits['inverted']
    low, high = share.interval()
    whose = f'{each.clients:,} clients' if each.guarantees else f'dealt to {each.clients:,} clients'
    return (
        f'Generated, trained on {whom} ({whose}): {share.value:.0%} have more ink than paper '
        f'(95 % interval {low:.0%} to {high:.0%})'
    )


def _numbers(study: Study, results) -> str:
    names = [
        '',
        'inverted, by intensity',
        'inverted, by the classifier',
        'effective classes',
        'diversity',
        'Frechet distance',
        'minutes',
    ]
    measured = [
        (f'{each.state}, {each.subpopulation}', each.measures, f'{each.seconds / 60:.1f}')
        for each in results
    ]
    rows = [
        [
            name.replace('_', ' '),
            f'{measures.inverted_by_intensity:.1%}',
            f'{measures.inverted_by_classifier:.1%}',
            f'{measures.effective_classes:.1f}',
            f'{measures.diversity:.2f}',
            f'{measures.frechet:.1f}',
            minutes,
        ]
        for name, measures, minutes in [*measured, ('public images', study.public_measures, '')]
    ]
    return html_parts.table(names, rows) + (
        '<p>Inverted by intensity: more ink than paper; the findings above rely on it. Inverted by '
        'the classifier: it is surer of the image once that is inverted. The two need not agree: '
        'the classifier knows real images only, and of a blurred or unfinished one it is unsure '
        'either way, so that its share says little where the Frechet distance is large. Effective '
        'classes: the exponential of the entropy of the classes that it sees. Diversity and '
        'Frechet distance are in the space of its hidden layer. The Frechet distance of generated '
        'images is to public ones, that of public images from one half to the other. Minutes are '
        'of the rounds.</p>'
    )


def _population(study: Study, results) -> str:
    drawn = figure.Figure(figsize=(8, 3.4), layout='constrained')
    axes = drawn.add_subplot(xlabel='accuracy on a client', ylabel='clients')
    labels = {settings.FIXED: 'without the fault', settings.BUG: 'with the fault'}
    for state in reversed(list(study.accuracies)):
        known = study.accuracies[state][~np.isnan(study.accuracies[state])]
        axes.hist(
            known,
            bins=np.linspace(0, 1, 41).tolist(),
            alpha=0.6,
            label=labels.get(state, 'clients'),
        )
    for limit in (study.limits.poor, study.limits.strong):
        axes.axvline(limit, color='grey', linestyle='--', linewidth=1)
    axes.legend()
    rows = [
        [
            f'{each.state}, {each.subpopulation}'.replace('_', ' '),
            f'{each.clients:,}',
            f'{each.clients / study.population:.1%}',
        ]
        for each in results
        if each.guarantees
    ]
    lacking = 'Without the fault, ' if study.has_fix else ''
    return (
        html_parts.figure(
            drawn,
            'Clients by the accuracy of the classifier on their images; not covered by any '
            'guarantee',
        )
        + f'<p>{lacking}25 % of the clients have an accuracy of at most {study.limits.poor:.1%}, '
        f'and 25 % one of at least {study.limits.strong:.1%} (the dashed lines; Augenstein et al. '
        '2020, figure 5 and table 10). Subpopulations (tables 11 and 12):</p>\n'
        + html_parts.table(['', 'clients', 'of all'], rows)
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
            f'{each.state}, {each.subpopulation}: {guarantee.name}'.replace('_', ' '),
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
    accountant = next(each.guarantees[0].accountant for each in results if each.guarantees)
    return html_parts.table(names, rows) + (
        '<p>Realistic: clients per round and noise multiplier are scaled up by the same factor, so '
        'that the mean of a round has the same noise, on a larger population of which the same '
        'share is selected. No such run was made (tables 3 and 13). Cohorts have a fixed size and '
        'are drawn without replacement. Replacing a client moves the sum by up to two clip norms. '
        'Augenstein et al. 2020 count one, which clipping does not ensure. Epsilon as they count '
        'is computed by their moments accountant, the other epsilon by '
        f'{accountant}.</p>\n'
        '<p>Generated images cost no further privacy (post-processing). Not covered: the '
        'thresholds, who was selected, and how many clients were selected, because these come from '
        "the classifier's accuracy on the clients, without noise; accuracies on clients. The real "
        'images of this page are those of held-out clients, who are not protected. If several '
        'generators learned from a client, '
        'for example before and after the fix, the guarantees of that client add up.</p>'
    )


def _epsilon(value: float) -> str:
    if not np.isfinite(value):
        return 'infinite'
    return f'{float(accounting.round_up(value)):,.4g}'


def _conclusion(found: conclusions.Conclusion) -> str:
    """The conclusion and the verdict on each fault."""
    parts = [f'<p class="{_outcome(found)}"><strong>{html.escape(found.text)}</strong></p>']
    for state, each in found.diagnoses.items():
        rows = [[diagnosis.in_words(one.fault), one.verdict, one.reason] for one in each.verdicts]
        parts.append(
            html_parts.table(
                ['fault', f'verdict, {_STATES[state]}', 'what its trait says'], rows, kind='words'
            )
        )
    parts.append(
        f'<p>Found: the trait of the fault differs by its least difference, with a p-value of at '
        f'most {diagnosis.ALPHA:g} after Holm&#8217;s correction. Suspected: by at least half of '
        'that, with such a p-value by itself. Not seen: neither, and if the stated share of the '
        'images had the fault, it would have been found with a probability of at least '
        f'{power.TOLD:g}. Cannot tell: everything else, for example if a generator is no closer to '
        'real images than images without any shape. Only faults with a signature can be named: '
        'look at the images, too.</p>'
    )
    return '\n'.join(parts)


def _outcome(found: conclusions.Conclusion) -> str:
    """CSS class of the conclusion: green only if what it says rests on evidence."""
    if found.fix_is_visible is not None:
        return 'yes' if found.fault_is_visible and found.fix_is_visible else 'no'
    (only,) = found.diagnoses.values()
    if only.of(diagnosis.FOUND):
        return 'no'
    told = only.of(diagnosis.NOT_SEEN) and not only.of(diagnosis.SUSPECTED)
    return 'yes' if told else 'unsure'


def _differences(found: conclusions.Conclusion) -> str:
    """All traits of all contrasts, with intervals."""
    parts = []
    for state, each in found.diagnoses.items():
        for name, values in each.contrasts.items():
            head = ['trait', 'first', 'second', 'difference', '95 % interval', 'adjusted p']
            parts.append(f'<h3>{_CONTRASTS[name].capitalize()}, {_STATES[state]}</h3>')
            parts.append(html_parts.table(head, [_row(value) for value in values]))
    allowances = ', '.join(
        f'{_TRAITS[name][0]} {_shown(name, value)}'
        for name, value in diagnosis.BETWEEN.items()
        if value
    )
    parts.append(
        '<p>Shares and confidence are per cent of generated images; distances are in the features '
        'of the model. Inverted images are turned back before other traits are measured. Intervals '
        'hold for each comparison by itself. They allow for two trainings on equal data to differ, '
        f'with these standard deviations: {allowances}.</p>'
    )
    return '\n'.join(parts)


def _discriminators(found: conclusions.Discriminators) -> str:
    """How well images from clients can be told from images from public data."""
    beyond = discriminator.beyond(found.private, found.control)
    rows = []
    for label, each in (
        ('from clients, against from public images', found.private),
        ('from public images, against from other public images', found.control),
    ):
        low, high = each.accuracy.interval()
        interval = f'{low:.1%} to {high:.1%}'
        rows.append([label, f'{each.accuracy.value:.1%}', interval, f'{each.accuracy.count:,}'])
    caption = (
        f'The {len(found.private.surest)} generated images of which it is surest that they come '
        'from clients'
    )
    return (
        html_parts.table(['images', 'accuracy', '95 % interval', 'images tested'], rows)
        + f'<p>Difference {beyond.value:+.1%} (95 % interval {beyond.low:+.1%} to '
        f'{beyond.high:+.1%}). The discriminator is trained on one half of the generated images '
        'and tested on the other. Any two generators can be told apart to some degree; the second '
        'row shows how well if their data are alike. The interval has no allowance for other '
        'trainings, of which there is one of each kind.</p>'
        + f'<div class="sheets">{html_parts.sheet(found.private.surest, caption)}</div>'
    )


def _row(each: Difference) -> Sequence[str]:
    name = each.name
    return [
        _TRAITS[name][0],
        _shown(name, each.first),
        _shown(name, each.second),
        _shown(name, each.value, '+'),
        f'{_shown(name, each.low, "+")} to {_shown(name, each.high, "+")}',
        f'{each.adjusted:.2g}',
    ]


def _shown(name: str, value: float, sign: str = '') -> str:
    return format(value, f'{sign}.1%') if _TRAITS[name][1] else format(value, f'{sign}.1f')
