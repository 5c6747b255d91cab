"""The parts of the page that say what differs: verdicts, traits with intervals, discriminator."""

import html
from collections.abc import Mapping, Sequence

from dpfl.debugging import power
from dpfl.debugging.differences import Difference
from dpfl.debugging.images import conclusions, diagnosis, discriminator, settings
from dpfl.reporting import html_parts

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


def conclusion(found: conclusions.Conclusion) -> str:
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


def differences(found: conclusions.Conclusion) -> str:
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


def discriminators(found: conclusions.Discriminators) -> str:
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
