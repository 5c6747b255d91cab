"""Numbers and verdict of the image study; tables 3 and 13 of [Augenstein20] from its own plans."""

import json
import re

import numpy as np
import pytest

from dpfl.simulation.training import GanConfig, PrivacyConfig, SamplingConfig
from dpfl.tasks.images.image_selection import Subpopulation, Thresholds
from experiments.debugging.images import findings, page, settings
from experiments.tables import rows as published_rows
from tests import paths


class _Classifier:
    """Sure of an image in proportion to its paper; the class is 0 for much paper, else 1."""

    def probabilities(self, pixels):
        paper = pixels.mean(axis=(1, 2))
        return np.stack([paper, np.minimum(paper, 0.4)], axis=1)

    def features(self, pixels):
        return pixels.reshape(len(pixels), -1)[:, :3]


def _images(values):
    return np.stack([np.full([28, 28], value, np.float32) for value in values])


def _guarantee(epsilon=2.0):
    return findings.Guarantee('simulation', 10, 425, 0.01, 0.002, epsilon, epsilon / 2, 'rdp')


def _finding(state, name, share):
    generated = _images([0.1] * round(10 * share) + [0.9] * round(10 - 10 * share))
    real = _images([0.9, 0.8, 0.7, 0.6])
    return findings.Finding(
        state=state,
        subpopulation=name,
        clients=40,
        generated=generated,
        real=real,
        measures=findings.measure(_Classifier(), generated, real),
        real_measures=findings.measure(_Classifier(), real[::2], real[1::2]),
        guarantees=(_guarantee(np.inf), _guarantee()),
        seconds=90.0,
    )


def _findings(good, bad, fixed_good, fixed_bad):
    return [
        _finding('bug', 'high_accuracy', good),
        _finding('bug', 'low_accuracy', bad),
        _finding('fixed', 'high_accuracy', fixed_good),
        _finding('fixed', 'low_accuracy', fixed_bad),
    ]


def test_measures_by_hand():
    measures = findings.measure(_Classifier(), _images([0.1, 0.2, 0.7, 0.9]), _images([0.5, 0.5]))
    assert measures.inverted_by_intensity == 0.5
    assert measures.inverted_by_classifier == 0.5
    assert measures.effective_classes == pytest.approx(1)  # All turned back: much paper.
    # Distances of the pairs, each along the diagonal of three equal features.
    pairs = [0.1, 0.6, 0.8, 0.5, 0.7, 0.2]
    assert measures.diversity == pytest.approx(np.sqrt(3) * np.mean(pairs), rel=1e-5)
    values = np.array([0.1, 0.2, 0.7, 0.9])
    expected = 3 * (values.mean() - 0.5) ** 2 + 3 * values.var(ddof=1)
    assert measures.frechet == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    'shares, bug, fix',
    [
        ((0.0, 0.9, 0.0, 0.0), True, True),
        ((0.1, 0.6, 0.1, 0.1), True, True),
        ((0.0, 0.5, 0.0, 0.0), False, True),
        ((0.2, 0.9, 0.0, 0.0), False, True),
        ((0.0, 0.9, 0.0, 0.2), True, False),
        ((0.0, 0.9, 0.2, 0.0), True, False),
    ],
)
def test_verdict(shares, bug, fix):
    verdict = findings.conclude(_findings(*shares))
    assert (verdict.bug_is_visible, verdict.fix_is_visible) == (bug, fix)
    assert f'{shares[1]:.0%}' in verdict.text and f'{shares[0]:.0%}' in verdict.text


def _published():
    """Pairs of the simulation and the realistic row of tables 3 and 13."""
    path = paths.PUBLISHED
    rows = {row.id: row for row in published_rows.load(path)}
    for name, row in rows.items():
        if name.startswith(('004-T3 sim', '004-T13 sim')):
            yield pytest.param(row, rows[name.replace('sim', 'real')], id=name)


@pytest.mark.parametrize('simulation, realistic', _published())
def test_guarantees_are_those_of_tables_3_and_13(simulation, realistic):
    population = simulation.inputs['N']
    chosen = Subpopulation('any', np.arange(population))
    plan = settings.plan(
        settings.Training('bug', None, chosen),
        GanConfig(
            privacy=PrivacyConfig(mechanism='gaussian', clip_norm=0.1, noise_multiplier=0.01),
            sampling=SamplingConfig(rounds=1000, clients_per_round=10),
        ),
    )
    here, larger = findings.guarantees(plan, 100.0, 2_000_000, 3_400)
    for actual, row in ((here, simulation), (larger, realistic)):
        assert actual.clients_per_round == row.inputs['qN']
        assert actual.population == row.inputs['N']
        assert actual.noise_multiplier == pytest.approx(row.inputs['z'])
        decimals = row.decimals['eps']
        assert round(actual.epsilon_half_shift, decimals) == row.published['eps']
        assert actual.delta == pytest.approx(row.inputs['delta'], rel=0.01)
        # What clipping ensures is more.
        assert actual.epsilon > 3 * actual.epsilon_half_shift


def test_the_page_has_everything_and_loads_nothing():
    study = page.Study(
        share=0.5,
        selection='client',
        population=100,
        limits=Thresholds(0.8, 0.9),
        accuracies={'bug': np.array([0.1, np.nan, 0.9]), 'fixed': np.array([0.8, np.nan, 0.9])},
        noise_is_seeded=True,
    )
    results = _findings(0.0, 0.9, 0.0, 0.0)
    text = page.render(study, results)
    assert findings.conclude(results).text in text
    assert text.count('data:image/png;base64,') == 8
    assert 'a simulation and protects nobody' in text
    assert 'infinite' in text and '80.0%' in text
    assert not re.search(r'(src|href)="(?!data:|#)|<(script|link)|url\((?!#)|@import', text)
    assert page.render(study, results) == text


def test_findings_have_values_of_json():
    values = json.loads(json.dumps(_finding('bug', 'low_accuracy', 0.9).to_dict()))
    assert values['guarantees'][0]['epsilon'] is None
    assert values['guarantees'][1]['epsilon'] == 2.0
    assert values['measures']['inverted_by_intensity'] == 0.9
    assert 'generated' not in values
