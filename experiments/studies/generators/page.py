"""The page of a comparison: verdict, the two sides, what they write, what that costs.

The page is one HTML file that loads nothing from elsewhere. No TensorFlow.
"""

import base64
import html

import numpy as np
from matplotlib import figure

from dpfl.reporting import contact_sheet, html_page
from experiments.studies.generators import text_sections
from experiments.studies.generators.comparison import Comparison
from experiments.studies.generators.html_parts import (
    STYLE,
    Cell,
    differences,
    epsilon,
    note,
    p_value,
    table,
)
from experiments.studies.generators.images_part import Classes, Images
from experiments.studies.generators.verdict import Verdict

_SHEET_COLUMNS = 12
_KINDS = {'word': 'word model', 'char': 'character model', 'images': 'images'}


def render(found: Comparison) -> str:
    """The page as HTML."""
    verdict, top = found.verdict, found.config.top
    parts = ['<h1>What two generators write</h1>', _verdict(verdict), _sides(found)]
    if found.sentences is not None:
        parts.append(text_sections.of_sentences(found.sentences, verdict, top))
    if found.words is not None:
        parts.append(text_sections.of_words(found.words, verdict, top))
    if found.images is not None:
        parts.append(_images(found.images, verdict))
    parts += ['<h2>Privacy</h2>', _privacy(found), '<h2>How it is decided</h2>', _method(found)]
    return html_page.document('Two generators compared', '\n'.join(parts), STYLE)


def _verdict(verdict: Verdict) -> str:
    kind = 'verdict' if verdict.is_told else 'verdict untold'
    kind = 'verdict differs' if verdict.differing else kind
    examples = ''.join(f'<li>{html.escape(each)}</li>\n' for each in verdict.examples())
    return f'<p class="{kind}"><strong>{html.escape(verdict.text)}</strong></p>\n' + (
        f'<p>The surest difference of each:</p>\n<ul>\n{examples}</ul>\n' if examples else ''
    )


def _sides(found: Comparison) -> str:
    """A column for each generator, so that the table fits on narrow screens."""
    generators = [
        (name, each) for name, side in zip('ab', found.sides, strict=True) for each in side.values()
    ]
    values = [each.to_dict() for _, each in generators]
    rows = [
        [Cell('run'), *(Cell(each['directory'], 'path') for each in values)],
        [Cell('task'), *(each['task'] for each in values)],
        [Cell('model'), *(each['model'] for each in values)],
        [Cell('parameters'), *(f'{each["parameters"]:,}' for each in values)],
        [Cell('rounds'), *(f'{each["rounds"]:,}' for each in values)],
        [Cell('clients per round'), *(f'{each["clients_per_round"]:,}' for each in values)],
        [Cell('mechanism'), *(each['mechanism'] for each in values)],
        [Cell('clip norm'), *(f'{each["clip_norm"]:g}' for each in values)],
        [Cell('noise multiplier'), *(f'{each["noise_multiplier"]:.4g}' for each in values)],
        [Cell('seed'), *(str(each['seed']) for each in values)],
        [
            Cell('accuracy (images: of the discriminator)'),
            *(_accuracy(each['accuracy']) for each in values),
        ],
        [Cell('epsilon'), *(epsilon(each['epsilon']) for each in values)],
        [Cell('delta'), *(f'{each["delta"]:.3g}' for each in values)],
    ]
    names = [Cell(''), *(f'{name}: {_KINDS[each.kind]}' for name, each in generators)]
    return '<h2>The two sides</h2>\n' + table(names, rows)


def _accuracy(value: float | None) -> str:
    return '–' if value is None else f'{100 * value:.1f} %'


def _images(part: Images, verdict: Verdict) -> str:
    figures = ''.join(
        f'<figure>{_sheet(pixels, name)}<figcaption>{html.escape(_caption(part, name, number))}'
        '</figcaption></figure>\n'
        for number, (pixels, name) in enumerate(zip(part.sheets, 'ab', strict=True))
    )
    parts = [
        '<h2>Images</h2>',
        f'<div class="sheets">{figures}</div>',
        note('Both sheets have the same random inputs, and are not a choice.'),
        '<h2>Ink</h2>',
        differences('', part.measures[:2], verdict),
        differences('', part.measures[2:], verdict, is_share=False),
        note(f'{part.samples:,} images of each side.'),
    ]
    if part.classes is not None:
        parts += ['<h2>Class mix</h2>', _classes(part.classes, verdict)]
    return '\n'.join(parts)


def _caption(part: Images, name: str, number: int) -> str:
    ink, inverted, _ = part.measures
    values = [(each.first, each.second)[number] for each in (ink, inverted)]
    return (
        f'{name}: {values[0]:.1%} of the area is ink, {values[1]:.1%} of the images have more ink '
        'than paper'
    )


def _sheet(pixels: np.ndarray, name: str) -> str:
    picture = contact_sheet.png(pixels, _SHEET_COLUMNS, scale=1)
    data = base64.b64encode(picture).decode()
    return f'<img alt="images drawn by {name}" src="data:image/png;base64,{data}">'


def _classes(found: Classes, verdict: Verdict) -> str:
    drawn = figure.Figure(figsize=(10, 3.2), layout='constrained')
    axes = drawn.add_subplot(xlabel='class that the classifier sees', ylabel='images (%)')
    places = np.arange(len(found.mix))
    for number, name in enumerate('ab'):
        shares = [100 * (each.first, each.second)[number] for each in found.mix]
        axes.bar(
            places + 0.4 * number - 0.2,
            shares,
            0.4,
            color=text_sections.COLORS[number],
            label=name,
        )
    axes.set_xticks(places, [each.name for each in found.mix], fontsize=7)
    axes.set_xlim(-1, len(places))
    axes.grid(alpha=0.3, axis='y')
    axes.legend()
    largest = sorted(found.mix, key=lambda each: -abs(each.value))[:12]
    rows = [
        ['effective number of classes', *(f'{value:.1f}' for value in found.effective)],
        ['diversity: mean distance of two images', *(f'{value:.2f}' for value in found.diversity)],
    ]
    return (
        f'<figure>{html_page.svg(drawn)}<figcaption>Classes that a classifier of public images '
        'sees. It knows clean signs only, so this is a description, not a truth.</figcaption>'
        '</figure>\n'
        + differences('largest differences, class', largest, verdict, ratio=True)
        + table(['', 'a', 'b'], [[Cell(row[0]), *row[1:]] for row in rows])
        + note(
            f'Frechet distance of a and b in the features of the classifier: '
            f'{found.apart.frechet:.3g}; by chance (mean of {found.apart.splits} random splits) '
            f'{found.apart.floor:.3g}, p of equal generators {p_value(found.apart.p_value)}. '
            'Effective number of classes: exponential of the entropy of the class mix. Diversity '
            'and distance have no unit.'
        )
    )


def _privacy(found: Comparison) -> str:
    names = {
        'a': 'all runs of a, for a client of all',
        'b': 'all runs of b, for a client of all',
        'both': 'all runs of a and b, for a client of all',
    }
    rows = [
        [
            Cell(names[row['of']]),
            str(row['runs']),
            'none' if row['remark'] not in ('', 'infinite') else epsilon(row['epsilon']),
            f'{row["delta"]:.3g}',
            Cell(row['remark'] if row['remark'] != 'infinite' else ''),
        ]
        for row in found.guarantees
    ]
    seeded = any(each.report.noise_is_seeded for side in found.sides for each in side.values())
    simulated = ' Some noise comes from a known seed: this is a simulation and protects nobody.'
    return table([Cell('guarantee of'), 'runs', 'epsilon', 'delta', Cell('remark')], rows) + note(
        'Runs that learn from the same client add up (composition). A client that only one side '
        'learned from has the guarantee of that side. Everything on this page is made from the '
        'generators and costs nothing more, except accuracy, which is that of held-out clients.'
        + (simulated if seeded else '')
    )


def _method(found: Comparison) -> str:
    verdict, config = found.verdict, found.config
    allowed = (
        'Intervals and p-values are those of the draws alone: they compare these very models. Two '
        'models that were trained on equal data would differ as well.'
        if not config.training_deviation
        else 'Intervals and p-values also allow for training again on equal data: a standard '
        f'deviation of {config.training_deviation:g} in the logarithm of the odds of a share above '
        '5 %, more for rarer events (with the cube root of their rarity), and a third of it in the '
        'logarithm of a mean. It is an assumption (--training_deviation).'
    )
    return (
        f'<p>A difference is clear if its p-value, after Holm’s correction over its area, is at '
        f'most {verdict.of_area:.2g}: {config.alpha:g} divided among {len(verdict.areas)} areas. '
        'Rows with a clear difference are marked. Intervals are for one difference by itself '
        '(shares: Newcombe; means: Welch), so a row can be unmarked although its interval excludes '
        f'0. N-grams count if at least {config.least_count} sentences or words of both sides '
        f'together have them.</p>\n<p>{html.escape(allowed)}</p>\n'
    )
