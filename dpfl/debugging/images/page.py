"""The page of the study: sheets of images side by side, measures, and the privacy cost.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import html
import math
from collections.abc import Sequence

import numpy as np
from matplotlib import figure

from dpfl.debugging import page
from dpfl.debugging.diagnosis import FOUND, NOT_SEEN, SUSPECTED, TOLD
from dpfl.debugging.images import clients, diagnosis, findings, traits
from dpfl.mechanisms import rounding
from dpfl.reporting import html_parts

_SHEETS = '<div class="sheets">{}</div>'
_TITLES = {
    clients.BUG: 'While some devices have the fault',
    clients.FIXED: 'After the fix',
    clients.AS_IS: 'Generated images',
}
_STATES = {
    clients.BUG: 'with the fault',
    clients.FIXED: 'after the fix',
    clients.AS_IS: 'as it is',
}
_CONTRASTS = {
    diagnosis.BADLY: 'where the model does badly, against where it does well',
    diagnosis.CLIENTS: 'all clients, against public images',
}


def render(found: findings.Found) -> str:
    """The page as HTML."""
    public = html_parts.sheet(found.public, 'Public images: those of held-out clients')
    return page.document(
        'Image debugging',
        'What generated images say about images that nobody may look at',
        [
            ('Conclusion', _conclusion(found)),
            *((_TITLES[state], _sheets(state, found.results)) for state in found.accuracies),
            ('What differs, with intervals', _differences(found)),
            ('All traits', _traits(found) + _SHEETS.format(public)),
            ('Accuracy on each client, and who was chosen', _population(found)),
            ('Privacy', _privacy(found.results)),
        ],
        lead=_introduction(found),
    )


def _introduction(found: findings.Found) -> str:
    chosen = {
        'client': 'one on the clients on whom the classifier does well, one on those on whom it '
        'does badly',
        'example': 'one on the examples that the classifier gets right, one on those that it gets '
        'wrong',
    }[found.selection]
    task = {'client': 'T4', 'example': 'T2'}[found.selection]
    # The guarantee relies on secret cohorts, which a study draws from its seed.
    simulated = page.simulated('The cohorts come')
    names = ', '.join(name.replace('_', ' ') for name in found.injected)
    faults = (
        f'{100 * found.base.task.faults.inject_share:g}% of the devices have the fault: {names}. '
        if names
        else ''
    )
    has_noise = all(
        math.isfinite(guarantee.epsilon)
        for finding in found.results
        for guarantee in finding.guarantees
    )
    how = 'under user-level differential privacy' if has_noise else 'without noise or guarantee'
    if found.has_fix:
        story = (
            f'After an update, {faults}The accuracy falls, and nobody may look at the images. So '
            f'two generators are trained by DP-FedAvg-GAN {how}, '
            f'{chosen}, and their images are compared. After the fix, this is repeated (Augenstein '
            'et al. 2020, section 6).'
        )
    else:
        put = f'For this study, {faults}' if names else ''
        story = (
            f'Nobody may look at the images. {put}Four generators are trained by DP-FedAvg-GAN '
            f'{how}: {chosen}; one on all clients; and one on public images. Their images are '
            f'compared (Augenstein et al. 2020, table 1, tasks T1, {task} and T6).'
        )
    return (
        f'<p>A classifier of letters and digits runs on {found.population:,} devices. {story}'
        f'{simulated}</p>'
    )


def _sheets(state: str, results: Sequence[findings.Finding]) -> str:
    figures = ''.join(
        html_parts.sheet(finding.generated, _subject(finding))
        for finding in results
        if finding.state == state
    )
    return _SHEETS.format(figures)


def _subject(finding: findings.Finding) -> str:
    share = finding.traits['inverted']
    low, high = share.interval()
    whose = (
        f'{finding.clients:,} clients'
        if finding.guarantees
        else f'dealt to {finding.clients:,} clients'
    )
    return (
        f'Generated, trained on {finding.of_what} ({whose}): {share.value:.0%} have more ink than '
        f'paper (95 % interval {low:.0%} to {high:.0%})'
    )


def _traits(found: findings.Found) -> str:
    """Traits of the images of each generator, and of the public ones."""
    generators = {_name(finding): finding.traits for finding in found.results}
    return page.measured({**generators, 'public images': found.public_traits}, traits.ALL)


def _name(finding: findings.Finding) -> str:
    return f'{finding.state}, {finding.subpopulation}'.replace('_', ' ')


def _population(found: findings.Found) -> str:
    drawn = figure.Figure(figsize=(8, 3.4), layout='constrained')
    axes = drawn.add_subplot(xlabel='accuracy on a client', ylabel='clients')
    labels = {clients.FIXED: 'without the fault', clients.BUG: 'with the fault'}
    for state in reversed(list(found.accuracies)):
        known = found.accuracies[state][~np.isnan(found.accuracies[state])]
        axes.hist(
            known,
            bins=np.linspace(0, 1, 41).tolist(),
            alpha=0.6,
            label=labels.get(state, 'clients'),
        )
    for limit in (found.limits.poor, found.limits.strong):
        axes.axvline(limit, color='grey', linestyle='--', linewidth=1)
    axes.legend()
    rows = [
        [
            _name(finding),
            f'{finding.clients:,}',
            f'{finding.clients / found.population:.1%}',
        ]
        for finding in found.results
        if finding.guarantees
    ]
    lacking = 'Without the fault, at' if found.has_fix else 'At'
    return (
        html_parts.figure(
            drawn,
            'Clients by the accuracy of the classifier on their images; not covered by any '
            'guarantee',
        )
        + f'<p>{lacking} least 25 % of the clients have an accuracy of at most '
        f'{found.limits.poor:.1%}, and at least 25 % one of at least {found.limits.strong:.1%} '
        '(the dashed lines; Augenstein et al. 2020, figure 5 and table 10). Subpopulations '
        '(tables 11 and 12):</p>\n' + html_parts.table(['', 'clients', 'of all'], rows)
    )


def _privacy(results: Sequence[findings.Finding]) -> str:
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
            f'{_name(finding)}: {guarantee.name}',
            f'{guarantee.clients_per_round:,}',
            f'{guarantee.population:,}',
            f'{guarantee.noise_multiplier:g}',
            rounding.shown_delta(guarantee.delta),
            page.epsilon(guarantee.epsilon),
            page.epsilon(guarantee.epsilon_half_shift),
        ]
        for finding in results
        for guarantee in finding.guarantees
    ]
    accountant = next(finding.guarantees[0].accountant for finding in results if finding.guarantees)
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
        'generators learned from a client, for example before and after the fix, their guarantees '
        'add up (<code>dpfl report_privacy --compose_with</code>): each has noise and cohorts of '
        'its own.</p>'
    )


def _conclusion(found: findings.Found) -> str:
    """The conclusion and the verdict on each fault."""
    parts = [f'<p class="{_outcome(found)}"><strong>{html.escape(found.text)}</strong></p>']
    for state, of_state in found.diagnoses.items():
        rows = [
            [diagnosis.in_words(verdict.fault), verdict.verdict, verdict.reason]
            for verdict in of_state.verdicts
        ]
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
        f'{TOLD:g}. Cannot tell: everything else, for example if a generator is no closer to '
        'real images than images without any shape. Only faults with a signature can be named: '
        'look at the images, too.</p>'
    )
    return '\n'.join(parts)


def _outcome(found: findings.Found) -> str:
    """CSS class of the conclusion: green only if what it says rests on evidence."""
    if found.has_fix:
        return 'good' if found.fault_is_visible and found.fix_is_visible else 'bad'
    (only,) = found.diagnoses.values()
    if only.of(FOUND):
        return 'bad'
    told = only.of(NOT_SEEN) and not only.of(SUSPECTED)
    return 'good' if told else 'unsure'


def _differences(found: findings.Found) -> str:
    """All traits of all contrasts, with intervals."""
    parts = []
    for state, of_state in found.diagnoses.items():
        for name, values in of_state.contrasts.items():
            parts.append(f'<h3>{_CONTRASTS[name].capitalize()}, {_STATES[state]}</h3>')
            parts.append(page.differences(values, traits.ALL))
    allowances = ', '.join(
        f'{trait.meaning} {trait.shown(trait.spread, 1)}'
        for trait in traits.ALL.values()
        if trait.spread
    )
    parts.append(
        '<p>Shares and confidence are per cent of generated images; distances are in the features '
        'of the model. Inverted images are turned back before other traits are measured. Intervals '
        'hold for each comparison by itself. They allow for two trainings on equal data to differ, '
        f'with these standard deviations: {allowances}.</p>'
    )
    return '\n'.join(parts)
