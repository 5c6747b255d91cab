"""Numbers and page of the image study; tables 3 and 13 of [Augenstein20] from its own plans."""

import html
import re

import numpy as np
import pytest

from dpfl.debugging.diagnosis import Learned
from dpfl.debugging.differences import Mean, json_values
from dpfl.debugging.images import clients, findings, page, study, traits
from dpfl.debugging.images.clients import Subpopulation, Thresholds
from dpfl.published.tables import rows as published_rows
from dpfl.simulation.training import GanConfig
from tests import presets


def _infer(pixels):
    """Sure of an image in proportion to its paper; the class is 0 for much paper, else 1."""
    paper = pixels.mean(axis=(1, 2))
    probabilities = np.stack([paper, np.minimum(paper, 0.4)], axis=1)
    return probabilities, pixels.reshape(len(pixels), -1)[:, :3]


def _images(values):
    return np.stack([np.full([28, 28], value, np.float32) for value in values])


def _guarantee(epsilon=2.0):
    return findings.Guarantee('simulation', 10, 425, 0.01, 1 / 425, epsilon, epsilon / 2, 'rdp')


_PUBLIC = _images([0.9, 0.8, 0.7, 0.6])
_EFFECTS = {'inverted': {'inverted': 1.0}, 'transposed': {'lying': 0.0}}


def _finding(state, name, share, frechet=5.0):
    generated = _images([0.1] * round(100 * share) + [0.9] * round(100 - 100 * share))
    return findings.Finding(
        of_what=clients.IN_WORDS[name],
        state=state,
        subpopulation=name,
        clients=40,
        generated=generated,
        traits=traits.measure(generated, _infer),
        learned=Learned(1 - frechet / 100, 'it has no shape', {'frechet': frechet}),
        guarantees=() if 'public' in name else (_guarantee(np.inf), _guarantee()),
    )


def _findings(*shares, frechet=5.0):
    """Before and after the fix; the distance is that of the last generator."""
    names = [(state, f'{name}_accuracy') for state in ('bug', 'fixed') for name in ('high', 'low')]
    results = [_finding(*name, share) for name, share in zip(names[:3], shares[:3], strict=True)]
    return [*results, _finding(*names[3], shares[3], frechet)]


@pytest.mark.parametrize(
    'shares, injected, frechet, bug, fix',
    [
        ((0.0, 0.9, 0.0, 0.0), 'inverted', 5.0, True, True),
        ((0.2, 0.9, 0.1, 0.1), 'inverted', 5.0, True, True),
        ((0.0, 0.1, 0.0, 0.0), 'inverted', 5.0, False, True),
        ((0.5, 0.6, 0.0, 0.0), 'inverted', 5.0, False, True),
        ((0.0, 0.9, 0.0, 0.3), 'inverted', 5.0, True, False),
        # A generator that has learned nothing does not show a fix.
        ((0.0, 0.9, 0.0, 0.0), 'inverted', 100.0, True, False),
        # Nor does a fault other than the injected one: images of one tone hide that they lie.
        ((0.0, 0.9, 0.0, 0.0), 'transposed', 5.0, False, False),
    ],
)
def test_the_fault_and_its_fix_are_visible(shares, injected, frechet, bug, fix):
    results = _findings(*shares, frechet=frechet)
    found = _found(results, effects=_EFFECTS, inject=(injected,))
    assert (found.fault_is_visible, found.fix_is_visible) == (bug, fix)
    values = json_values(found)
    assert (values['bug_is_visible'], values['fix_is_visible']) == (bug, fix)
    reason = values['diagnoses']['bug']['verdicts']['inverted']['reason']
    assert f'{shares[1]:.0%} against {shares[0]:.0%}' in reason
    assert ('Found: inverted.' in found.text) == (bug or not fix)
    reason = values['diagnoses']['fixed']['verdicts']['inverted']['reason']
    is_trivial = frechet == 100
    assert ('After the fix: Cannot tell: inverted' in found.text) == is_trivial
    assert ('it has no shape' in reason) == is_trivial


def _found(results, accuracies=None, effects=None, **values):
    return findings.Found(
        results=results,
        diagnoses=findings.diagnoses(results, accuracies, effects),
        base=GanConfig().with_values({'population': 100, **values}),
        selection='client',
        limits=Thresholds(0.8, 0.9),
        accuracies={each.state: np.array([0.8, np.nan, 0.9]) for each in results},
        public=_PUBLIC,
        public_traits=traits.measure(_PUBLIC, _infer),
    )


def _page(found):
    """The page, which loads nothing; every picture has a caption, every difference an interval."""
    text = page.render(found)
    assert page.render(found) == text
    assert not re.search(r'(src|href)="(?!data:|#)|<(script|link)|url\((?!#)|@import', text)
    figures = re.findall('<figure>.*?</figure>', text, re.DOTALL)
    assert figures and all('<figcaption>' in each for each in figures)
    assert '95 % interval' in text
    return text


def test_a_study_without_a_fix():
    shares = {'public': 0, 'everyone': 0, 'correct': 0, 'misclassified': 0.9}
    results = [_finding('as_is', name, share) for name, share in shares.items()]
    found = _found(results, accuracies=(Mean(0.9, 0.01, 50), Mean(0.9, 0.01, 50)))
    assert found.fault_is_visible and found.fix_is_visible is None
    assert 'Found: inverted.' in found.text
    values = json_values(found)
    assert values['fault_is_visible'] is True
    text = _page(found)
    # Four sheets, and public images.
    assert text.count('data:image/png;base64,') == text.count('<img alt="') == 5
    assert '90.00% (' in text
    assert 'all clients, against public images' in text.lower()


def _published():
    """Pairs of the simulation and the realistic row of tables 3 and 13."""
    rows = {row.id: row for row in published_rows.load()}
    for name, row in rows.items():
        if name.startswith(('004-T3 sim', '004-T13 sim')):
            marks = [] if name == '004-T3 sim 3a' else [pytest.mark.standard]
            yield pytest.param(row, rows[name.replace('sim', 'real')], id=name, marks=marks)


@pytest.mark.parametrize('simulation, realistic', _published())
def test_guarantees_are_those_of_tables_3_and_13(simulation, realistic):
    config, base = presets.study('emnist.004.debug', adjacency='zero_out')
    chosen = Subpopulation('any', np.arange(simulation.inputs['N']))
    training = clients.Training('bug', None, chosen)
    plan = study.plan_of_gan(study.config_of(base, training))
    here, larger = findings.guarantees(plan, config.scale, config.realistic_population, 3_400)
    for actual, row in ((here, simulation), (larger, realistic)):
        assert actual.clients_per_round == row.inputs['qN']
        assert actual.population == row.inputs['N']
        assert actual.noise_multiplier == pytest.approx(row.inputs['z'])
        decimals = row.decimals['eps']
        assert round(actual.epsilon_half_shift, decimals) == row.published['eps']
        assert actual.delta == pytest.approx(row.inputs['delta'], rel=0.01)
        # What clipping ensures is more.
        assert actual.epsilon > 3 * actual.epsilon_half_shift


def test_the_page_of_a_study_with_a_fix():
    results = _findings(0.0, 0.9, 0.0, 0.0)
    found = _found(results, inject=('inverted',), inject_share=0.004)
    text = _page(found)
    assert html.escape(found.text) in text and '0.4% of the devices have the fault' in text
    # Four sheets of generated images; the only real ones are public.
    assert text.count('data:image/png;base64,') == 5
    assert 'a simulation and protects nobody' in text
    assert 'infinite' in text and 'Without the fault, at least 25 %' in text and '80.0%' in text
    assert '0.00235295' in text  # The delta is 1 / 425, rounded up.
    assert 'report_privacy --compose_with' in text
    assert 'differential privacy' not in text  # One of the runs has no noise.
    values = json_values(results[1])
    assert [each['epsilon'] for each in values['guarantees']] == [None, 2.0]
    assert values['traits']['inverted']['value'] == 0.9
    low, high = values['traits']['inverted']['interval']
    assert low < 0.9 < high
    assert 'generated' not in values
