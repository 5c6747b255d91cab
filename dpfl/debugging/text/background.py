"""The end of the page: how verdicts come about, and what the generators cost. No TensorFlow."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfl.debugging import power
from dpfl.debugging.text import diagnosis, tables, traits
from dpfl.reporting import html_parts
from dpfl.reporting.html_parts import Cell

if TYPE_CHECKING:
    from dpfl.debugging.text.study import Found


def method() -> str:
    """How verdicts come about, and what they cannot show."""
    signatures = ''.join(
        f'<li><strong>{each.fault}</strong>: '
        + ' and '.join(
            f'{"more" if sign.is_higher else "fewer"} {traits.ALL[sign.trait].meaning}'
            for sign in each.signs
        )
        + '</li>'
        for each in diagnosis.SIGNATURES
    )
    rows = [
        [
            trait.meaning,
            Cell(
                f'{100 * trait.least:g} points'
                if trait.unit == '%'
                else f'{trait.least:g} {trait.unit}'
            ),
            Cell(f'{trait.spread:g}{" (log odds)" if trait.unit == "%" else " of the value"}'),
            Cell('' if trait.most is None else f'{trait.most:.1%}'),
        ]
        for trait in traits.ALL.values()
    ]
    names = ['trait', 'least difference', 'allowance for trainings', 'most without a reference']
    return (
        '<p>All traits are compared together. A difference is clear if its p-value, corrected by '
        f'Holm for the number of comparisons, is at most {diagnosis.ALPHA:g}, and if it has at '
        'least the size in the table. The test adds to the error of the samples an allowance for '
        'how two trainings on the same text differ by themselves, as a standard deviation, in '
        'quadrature; intervals include it, and each is at 95% by itself. <em>Found</em>: all signs '
        'of a fault are clear. <em>Suspected</em>: something is clear, but no signature is '
        'complete. <em>Not seen</em>: nothing is clear, and a fault in the stated share of the '
        f'text would have been found with a probability of at least {power.TOLD:g}. This power is '
        'computed from what the fault does to held-out text, how much of it the generators have '
        'learned, and the test. <em>Cannot tell</em>: nothing is clear, and nothing would be, for '
        'example if a generator predicts held-out text no better than the frequencies of single '
        'tokens do. '
        'Without a reference, a fault is found only '
        'if it leaves words that no text has: the lower bound of their share exceeds the last '
        f'column.</p>\n<ul>{signatures}</ul>\n'
        + html_parts.folded('Thresholds of all traits', html_parts.table(names, rows))
        + '<p>What a verdict cannot show: a fault in few sentences or few clients, which the noise '
        'hides by design; a fault that is in the reference as well; a cause, since other texts can '
        'have the traits of a fault. The allowances were measured on one data set (commit messages '
        'at epsilon 8); models trained with more noise differ more. A part of the text that is '
        'selected by the errors of a model differs from the rest in what is hard to predict, with '
        'or without a fault.</p>'
    )


def models(named: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """How the generators were trained: metrics and guarantees of runs, with their names."""
    names = [
        'generator',
        'parameters',
        'rounds',
        'clients per round',
        'mechanism',
        'clip norm',
        'noise multiplier',
        'loss (nats)',
        'accuracy',
        'epsilon',
    ]
    rows = [
        [
            name,
            Cell(f'{model["parameters"]:,}'),
            Cell(str(model['rounds'])),
            Cell(str(model['clients_per_round'])),
            model['mechanism'],
            Cell(f'{model["clip_norm"]:g}'),
            Cell(f'{model["noise_multiplier"]:.4g}'),
            Cell(f'{model["loss"]:.3f}'),
            Cell(f'{model["accuracy"]:.3f}'),
            Cell(tables.epsilon(model['epsilon'])),
        ]
        for name, model in named
    ]
    return html_parts.table(names, rows)


def privacy(found: 'Found') -> str:
    """What all generators cost together."""
    models = [one.model for case in found.cases for one in case.written.values()]
    each = '; '.join(
        f'{html.escape(case.case.name)}: {tables.epsilon(case.together)}' for case in found.cases
    )
    simulated = (
        ' The noise comes from a known seed: this is a simulation and protects nobody.'
        if any(model['noise_is_seeded'] for model in models)
        else ''
    )
    return (
        f'<p>The table has epsilon of a single generator, at delta = {models[0]["delta"]:g}. They '
        'learn from the same clients. Epsilon of all generators of a case together: '
        f'{each}. Epsilon of all that was trained for this page: {tables.epsilon(found.together)}. '
        'Verdicts, figures, rankings and sentences are made from the models and cost no further '
        'privacy. Loss and accuracy are those of held-out clients. The privacy report of each '
        f'model is in its folder.{simulated}</p>'
    )
