import itertools
import json
import math

import numpy as np
import pytest

from dpfl.errors import ArgumentError
from dpfl.tasks.text import oov_ranking, planting
from dpfl.tasks.text.models import generation, saved_models
from experiments.studies.attacks import exposure, finished_run, secrets
from experiments.studies.attacks.exposure_config import ExposureConfig

pytestmark = [pytest.mark.tff, pytest.mark.standard]


def _model(name, num_tokens):
    weights = saved_models.ALL[name].initial_weights(num_tokens, 3)
    rng = np.random.default_rng(0)
    weights = tuple(each + rng.normal(0, 0.5, each.shape).astype(np.float32) for each in weights)
    words = None if name in saved_models.CHAR_MODELS else tuple(map(str, range(num_tokens - 4)))
    return saved_models.LanguageModel(name, weights, words)


@pytest.mark.parametrize(
    ('name', 'num_tokens', 'special', 'alphabet'),
    [
        ('micro', 24, generation.WORDS, (4, 9, 20, 7, 11)),
        ('char_tiny', 258, oov_ranking.BYTES, tuple(b'0123456789')),
    ],
)
def test_exposures_are_those_of_brute_force(name, num_tokens, special, alphabet):
    model, prefix = _model(name, num_tokens), (10, 20, 10)
    candidates = list(itertools.product(range(len(alphabet)), repeat=2))
    sentences = [[*prefix, *(alphabet[place] for place in each)] for each in candidates]
    found = generation.log_probabilities(
        model.architecture, model.weights, special, np.array(sentences)
    )
    drawn = [planting.Secret(prefix, alphabet, each) for each in candidates]
    exposures = secrets.of_model(model, drawn)
    expected = [math.log2(len(candidates) / np.sum(found >= each)) for each in found]
    np.testing.assert_allclose(exposures, expected, atol=1e-9)


def test_a_sample_and_a_fit_are_close_to_the_exact_exposure():
    model = _model('micro', 44)
    rng = np.random.default_rng(5)
    drawn = [
        planting.Secret((5, 6), tuple(range(4, 24)), tuple(rng.integers(20, size=3)))
        for _ in range(5)
    ]
    exact = np.array(secrets.of_model(model, drawn))
    for ranking, tolerance in (('sampled', 0.25), ('fitted', 0.8)):
        config = ExposureConfig(ranking=ranking, samples=4000)
        found = secrets.of_model(model, drawn, config)
        np.testing.assert_allclose(found, exact, atol=tolerance)


def test_a_run_without_noise_and_clip_remembers_its_secrets(overfit):
    found = secrets.measure(overfit)
    control, held = found.kinds
    assert (control.holders, held.holders, held.copies) == (0, 2, 10)
    assert (control.took_part, held.took_part) == (0, 2)
    assert (control.participations, held.participations) == (0, 2 * 25)
    assert held.exposures == (8.0, 8.0)
    assert held.p_value == exposure.chance([8, 8]) < 2e-4
    assert control.p_value > 0.01
    assert found.candidates == 256
    assert found.epsilon == math.inf
    assert held.ceiling == held.most_bits == 8
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values['epsilon'] is None
    assert values['kinds'][1]['exposures'] == [8, 8]


def test_ceilings_are_those_of_the_guarantee_for_as_many_clients(private):
    found = secrets.measure(private)
    assert [(kind.copies, kind.holders) for kind in found.kinds] == [
        (1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (3, 2)
    ]  # fmt: skip
    none, one, two = (kind.ceiling for kind in found.kinds[:3])
    assert none == exposure.ceiling(0, 0, 256)
    assert one == exposure.ceiling(private.epsilon, private.delta, 256)
    # A group of two clients has twice mu, so half the noise multiplier.
    plan = private.report.plan
    mu = plan.mu
    assert private.epsilon_of_group(2) > private.epsilon * 1.5
    assert two == exposure.ceiling(private.epsilon_of_group(2), private.delta, 256)
    assert none < one < two < 8
    assert mu == pytest.approx(1 / 3)
    for kind in found.kinds:
        assert kind.participations == kind.holders  # Each client took part once.
        assert kind.p_value > 0.001


def test_fitted_exposures_have_no_p_value_and_no_ceiling(private):
    found = secrets.measure(private, ExposureConfig(ranking='fitted', samples=50))
    assert {(kind.p_value, kind.ceiling) for kind in found.kinds} == {(None, None)}


def test_too_many_candidates_need_another_ranking():
    secret = planting.Secret((5,), tuple(range(4, 40)), (0,) * 5)
    with pytest.raises(ArgumentError) as refused:
        secrets.of_model(_model('micro', 44), [secret])
    assert refused.value.name == 'ranking'
    config = ExposureConfig(ranking='sampled', samples=3)
    assert 0 <= secrets.of_model(_model('micro', 44), [secret], config)[0] <= 2


def test_what_is_no_finished_run_is_refused(tmp_path):
    with pytest.raises(ArgumentError) as refused:
        finished_run.open_run(str(tmp_path))
    assert refused.value.name == 'run_dir'


def test_data_json_counts_what_was_planted(private):
    assert private.data()['planted'] == {
        'secrets': 8,
        'clients': 12,
        'sentences': 2 * (1 + 2 + 3 + 6),
        'population': 16,
    }
