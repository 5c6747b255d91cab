"""The best bands and groups against all of them, and against plans made by hand."""

import dataclasses
import functools
import itertools

import pytest

from dpfl import Participation, _setting_texts, accounting, mechanisms
from dpfl.simulation.training import TrainConfig
from experiments.studies.shared import amplification
from tests.studies import scripts_of_studies

_SMALL = amplification.Search(rounds=4, population=60, clients_per_round=6, delta=1e-5)
_EPSILON = 2.0


pytestmark = pytest.mark.standard


@pytest.fixture(scope='module', name='found')
def _found():
    return _SMALL.designs('epsilon', _EPSILON)


def test_the_best_is_that_of_all_bands_and_groups(found):
    every = {}
    for bands in range(1, 5):
        mechanism = amplification.strategy_of(4, bands, 'banded_toeplitz', 'rms')
        for groups in range(bands, 5):
            noise = _SMALL.estimated_noise(mechanism, groups, _EPSILON)
            every[bands, groups] = noise * mechanism.rms_error()
    # As many bands as groups are never worse than fewer.
    for (_, groups), error in every.items():
        assert every[groups, groups] <= error * (1 + 1e-3)
    assert found.best.error == pytest.approx(min(every.values()), rel=3e-3)
    assert found.independent.error == pytest.approx(every[1, 1], rel=3e-3)
    best = found.best.groups
    assert found.best.error == pytest.approx(every[best, best], rel=3e-3)


def test_without_amplification_clients_return_after_the_population(found):
    mechanism = mechanisms.optimize_banded_toeplitz(Participation(4, 4), 4, loss='rms')
    plan = accounting.PrivacyPlan.calibrated(
        epsilon=_EPSILON,
        delta=1e-5,
        mechanism=mechanism,
        participation=Participation(4, 4),
        clip_norm=1.0,
        clients_per_round=6,
    )
    alone = found.separated
    assert alone.error == pytest.approx(plan.noise_multiplier * mechanism.rms_error())
    assert (alone.plan.sampling, alone.groups, alone.probability) == (None, 4, 1.0)


def test_plans_keep_their_target_and_state_what_they_are(found):
    for design in (found.best, found.independent):
        assert 0.99 * _EPSILON < design.epsilon == design.plan.epsilon(1e-5) <= _EPSILON
        assert design.bands <= design.groups
        assert design.probability == design.groups * 6 / 60
        assert design.error == design.plan.noise_multiplier * design.plan.mechanism.rms_error()
        noise = _SMALL.estimated_noise(design.plan.mechanism, design.groups, _EPSILON)
        assert noise == pytest.approx(design.plan.noise_multiplier, rel=3e-3)
    assert found.independent.plan.sampling_name == 'poisson'


def test_least_epsilon_is_the_inverse_of_least_error(found):
    back = _SMALL.designs('error', found.best.error)
    assert back.best.epsilon == pytest.approx(_EPSILON, rel=1e-3)
    assert back.best.error == pytest.approx(found.best.error)
    assert back.best.epsilon <= min(back.independent.epsilon, back.separated.epsilon) * (1 + 1e-3)


@pytest.mark.parametrize('loss', ['rms', 'max'])
def test_bandmf_and_the_largest_error(loss):
    toeplitz = dataclasses.replace(_SMALL, loss=loss).design(4, error=3.0)
    assert getattr(toeplitz.plan.mechanism, f'{loss}_error')() == pytest.approx(
        3.0 / toeplitz.plan.noise_multiplier
    )
    banded = dataclasses.replace(_SMALL, loss=loss, mechanism='banded').design(4, error=3.0)
    assert banded.bands == toeplitz.bands == 4
    assert (banded.plan.mechanism.name, banded.error) == ('banded', pytest.approx(3.0))


def test_the_search_finds_the_bottom_of_a_valley_with_steps():
    sizes = (1, 1), (7, 7), (40, 40), (100, 33), (100, 7), (99, 64)
    for (rounds, most), turn in itertools.product(sizes, (0.2, 1.0, 3.0)):

        def value(groups, rounds=rounds, most=most, turn=turn):
            turns = -(-rounds // groups)
            return turn * groups / most + turns / rounds + 1 / groups

        best = min(range(1, most + 1), key=value)
        found = amplification.searched(rounds, most, value)
        assert value(found) <= value(best) * (1 + 0.01)


@pytest.mark.parametrize(
    'call, message',
    [
        *(
            (functools.partial(dataclasses.replace, _SMALL, **changes), message)
            for changes, message in (
                ({'rounds': 0}, 'rounds=0: must be an integer >= 1'),
                ({'clients_per_round': 61}, 'clients_per_round=61: must be an integer >= 1'),
                ({'delta': 1.0}, 'delta=1.0: must be'),
                ({'loss': 'mean'}, 'loss=mean: must be one of rms, max'),
                ({'mechanism': 'blt'}, 'mechanism=blt: must be one of banded_toeplitz, banded'),
            )
        ),
        (lambda: _SMALL.designs('epsilon', 0), 'epsilon=0: must be'),
        (lambda: _SMALL.designs('error', -1), 'error=-1: must be'),
        (lambda: _SMALL.design(5, epsilon=1.0), 'groups=5: must be an integer >= 1 and <= 4'),
    ],
)
def test_bad_fields_and_targets_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_independent_noise_is_the_best_where_it_has_the_least_error():
    # So little is asked for that the estimates of more groups are off.
    search = amplification.Search(rounds=6, population=600, clients_per_round=6, delta=1e-6)
    designs = search.designs('epsilon', 0.02)
    assert designs.best.error <= designs.independent.error


def test_the_command_of_a_large_delta_accepts_it():
    search = dataclasses.replace(_SMALL, delta=0.1)
    study = scripts_of_studies.load('optimize_sampling')
    lines = study.train_flags(search.design(1, error=1.0), search, 'd.npz', None)
    texts = dict(line.removeprefix('--').split('=', 1) for line in lines)
    assert _setting_texts.with_texts(TrainConfig(), texts).privacy.delta == 0.1
