"""Tests of a run's sums: their laws and powers, planted faults, and the form that reports keep."""

import collections
import dataclasses
import itertools
import json

import numpy as np
import pytest
from scipy import stats

from dpfl import Participation, mechanisms
from dpfl.accounting.measured import sums
from dpfl.auditing import one_shot
from tests.accounting import plans

_ROUNDS = 6
_TENSORS = np.repeat([0, 1, 2], [40, 30, 10])


def _plan(**changes):
    fields = dict(participation=Participation(_ROUNDS, 3, 2), noise_multiplier=2.0)
    blt = mechanisms.Blt(_ROUNDS, (0.9, 0.5), (0.1, 0.2))
    return plans.plan(**{**fields, 'mechanism': blt, **changes})


def _noise(seed=0, tensors=_TENSORS, rounds=_ROUNDS):
    return np.random.default_rng(seed).standard_normal((rounds, tensors.size))


def _sums(z, plan, **values):
    """The sums of a run whose noise is `C^-1 z`, by a dense solve."""
    strategy = plan.mechanism.with_rounds(len(z)).strategy_matrix()
    defaults = dict(
        residuals=plan.noise_multiplier * np.linalg.solve(strategy, z),
        tensors=_TENSORS,
        clip_errors=np.full(len(z), 1e-5),
        largest=np.full(len(z), 10.0),
        planted=dict.fromkeys(sums.CLIP_FAULTS, 0.1),
    )
    return one_shot.RoundSums(**{**defaults, **values})


def _test(z=None, plan=None, **values):
    plan = plan or _plan()
    return one_shot.check_sums(_sums(_noise() if z is None else z, plan, **values), plan)


@pytest.mark.parametrize('runs', [200, pytest.param(1000, marks=pytest.mark.standard)])
def test_correct_runs_fail_as_often_as_stated(monkeypatch, runs):
    assert not any(_test(_noise(seed)).failures for seed in range(60))
    monkeypatch.setattr(sums, 'FALSE_ALARM', 0.1)
    failed = sum(bool(_test(_noise(seed)).failures) for seed in range(runs))
    # Tests of the same numbers fail together, so less often than in one run of ten.
    assert 0.03 * runs < failed <= stats.binom.isf(1e-6, runs, 0.1)


def _repeated(z):
    return z[[0, 1, 2, 3, 4, 1]]


def _row(number):
    return (np.arange(_ROUNDS) == number)[:, None]


# 1000 coordinates: a uniform distribution of 6000 numbers shows.
_LARGE = np.repeat([0, 1, 2], [600, 300, 100])
_THIRDS = np.arange(1000) % 3 > 0
# How the noise of a correct run changes, and a test that fails.
_FAULTS = {
    'half the noise': (lambda z: z / 2, 'variance'),
    'twice the noise': (lambda z: 2 * z, 'variance'),
    'no noise': (np.zeros_like, 'variance'),
    'noise on the first tensor only': (lambda z: z * (_TENSORS == 0), 'variance of a tensor'),
    'a round without noise': (lambda z: z * ~_row(3), 'variance of a round'),
    'the same noise in two rounds': (_repeated, 'repetition'),
    'a shift': (lambda z: z + 0.5, 'mean'),
    'the same noise in all coordinates': (lambda z: z[:, :1] + 0 * z, 'mean of a round'),
    'noise that is not finite': (lambda z: np.where(z > 2.5, np.nan, z), 'variance'),
}
# Noise of the right variance, and tests that fail.
_OTHER_LAWS = {
    'half of the coordinates': (
        lambda z: z * (np.arange(1000) % 2 * 2**0.5),
        {'law', 'law of a round'},
    ),
    'uniform noise': (lambda z: (2 * stats.norm.cdf(z) - 1) * 3**0.5, {'law'}),
    'noise of two values': (np.sign, {'law', 'law of a round'}),
    'minus the first half': (
        lambda z: np.concatenate([z[:, :500], -z[:, :500]], axis=1),
        {'halves', 'halves of a round', 'tensors'},
    ),
    'an earlier round, shifted': (
        lambda z: np.concatenate([z[:-1], np.roll(z[1:2], 4, axis=1)]),
        {'shift'},
    ),
    'the first tensor again': (
        lambda z: np.concatenate([z[:, :900], z[:, :100]], axis=1),
        {'halves', 'tensors'},
    ),
    'a distribution of one round': (
        lambda z: np.where(_row(2), z * _THIRDS * 1.5**0.5, z),
        {'law of a round'},
    ),
}


@pytest.mark.parametrize('name', [*_FAULTS, *_OTHER_LAWS])
def test_a_fault_of_the_noise_is_found(name):
    if name in _FAULTS:
        change, expected = _FAULTS[name]
        found = _test(change(_noise()))
        assert expected in {each.test for each in found.failures}
    else:
        change, expected = _OTHER_LAWS[name]
        found = _test(change(_noise(tensors=_LARGE)), tensors=_LARGE)
        kinds = {kind for _, failed in _OTHER_LAWS.values() for kind in failed}
        assert expected <= {each.test for each in found.failures} <= kinds
    assert found.verdict == 'refuted'
    form = json.dumps(found.to_dict(), allow_nan=False)
    assert sums.SumTests.from_dict(json.loads(form)) == found


def test_rounding_to_float32_is_no_other_law():
    plan = _plan(mechanism=mechanisms.Identity(_ROUNDS), participation=Participation(_ROUNDS))
    tensors = np.zeros(100_000, int)
    rounded = 0.03 * np.rint(_noise(tensors=tensors) / 0.03)
    # A step of this release is 0.0099 standard deviations.
    for largest, failed in ((0.0099 * plan.noise_multiplier * 2**23, []), (1.0, ['law'])):
        found = _test(rounded, plan, tensors=tensors, largest=np.full(_ROUNDS, largest))
        assert found.noise_test == 'done'
        assert [each.test for each in found.failures] == failed


def test_the_noise_of_another_kernel_is_found():
    plan = _plan()
    residuals = _sums(_noise(), _plan(mechanism=mechanisms.Identity(_ROUNDS))).residuals
    strong = _plan(mechanism=mechanisms.BandedInverse.square_root(_ROUNDS, 4))
    assert _test(plan=strong, residuals=residuals).failures
    # This BLT is too near to independent noise for 480 numbers.
    assert not _test(plan=plan, residuals=residuals).failures


def test_the_worst_round_or_tensor_is_named_from_one():
    found = _test(_repeated(_noise())).failures
    assert [(each.test, each.where) for each in found] == [('repetition', (1, 5))]
    assert str(found[0]).startswith('the noise of rounds 2 and 6 is correlated')
    found = _test(_noise() * np.where(_TENSORS == 1, 3.0, 1.0)).failures
    assert ('variance of a tensor', (1,)) in [(each.test, each.where) for each in found]


@pytest.mark.parametrize(
    'plan, error, is_found',
    [
        (_plan(), 1.9e-5, False),
        (_plan(), 2.1e-5, True),
        (_plan(), np.nan, True),
        (_plan(), np.inf, True),
        # 2^10 coordinates: rounding is at most 32 / (1000 / 2) of the clip norm.
        (_plan(discretization=mechanisms.Discretization(1000.0, 1024, 0.5)), 0.06, False),
        (_plan(discretization=mechanisms.Discretization(1000.0, 1024, 0.5)), 0.07, True),
    ],
)
def test_a_sum_of_other_updates_than_the_clipped_ones_is_found(plan, error, is_found):
    errors = np.full(_ROUNDS, 1e-6)
    errors[2] = error
    found = _test(plan=plan, clip_errors=errors)
    assert [(each.test, each.where) for each in found.failures] == [('clipping', (2,))] * is_found
    assert set(found.clip_power.values()) == {1.0}
    assert set(_test(planted=dict.fromkeys(sums.CLIP_FAULTS, 1e-6)).clip_power.values()) == {0.0}


@pytest.mark.parametrize(
    'size, rounds, name, change',
    [
        (8, 3, 'half the noise', lambda z: z / 2),
        (16, 3, 'the same noise in two rounds', lambda z: z[[0, 1, 0]]),
        (4, 1, 'noise on the first tensor only', lambda z: z * np.repeat([1, 0.01], 4)),
    ],
)
def test_the_stated_power_is_not_above_the_share_of_faults_that_are_found(
    size, rounds, name, change
):
    tensors = np.repeat([0, 1], [size, size])
    plan = _plan(mechanism=mechanisms.Identity(rounds), participation=Participation(rounds, rounds))
    found = [
        _test(change(_noise(seed, tensors, rounds)), plan, tensors=tensors) for seed in range(300)
    ]
    power = found[0].power[name]
    share = np.mean([bool(each.failures) for each in found])
    # A share of 300 is off by more with probability below 1e-6.
    assert 0.05 < power < 0.95
    assert share > power - 0.14


def test_a_fault_that_would_not_show_gives_cannot_tell():
    assert _test().verdict == 'not refuted'
    assert min(_test().power.values()) > 0.5
    few = _test(_noise(tensors=np.arange(2)), tensors=np.arange(2))
    assert few.power['the same noise in two rounds'] < 0.5
    assert few.verdict == 'cannot tell'
    # A discretization whose own clip may change updates: nothing is known about clipping.
    coarse = _plan(discretization=mechanisms.Discretization(1000.0, 4, 0.5))
    assert _test(plan=coarse, clip_errors=np.full(_ROUNDS, 0.5)).verdict == 'cannot tell'


@pytest.mark.parametrize(
    'plan, values, reason',
    [
        (_plan(noise_multiplier=0.0, mechanism=mechanisms.Identity(_ROUNDS)), {}, 'no_noise'),
        (_plan(), {'largest': np.full(_ROUNDS, 1e6)}, 'rounding'),
    ],
)
def test_noise_that_cannot_be_tested_is_never_a_pass(plan, values, reason):
    found = _test(plan=plan, **values)
    assert (found.noise_test, found.verdict, found.failures) == (reason, 'cannot tell', ())
    assert found.power['no noise'] == found.power['the same noise in two rounds'] == 0.0


def test_faults_that_a_run_cannot_have_are_left_out():
    one = _test(tensors=np.zeros(_TENSORS.size, int))
    assert 'noise on the first tensor only' not in one.power
    assert 'each tensor clipped alone' not in one.power
    plan = _plan(mechanism=mechanisms.Identity(1), participation=Participation(1))
    once = _test(_noise(rounds=1), plan)
    assert 'the same noise in two rounds' not in once.power
    assert once.verdict == 'not refuted'


@pytest.mark.parametrize(
    'change',
    [
        {'rounds': 0},
        {'tested': [0]},
        {'tested': 5},
        {'noise_test': 'because'},
        {'clip_power': {}},
        {'clip_power': dict.fromkeys(sums.CLIP_FAULTS, 2)},
        {'failures': [{'test': '<b>', 'where': [], 'value': 1}]},
        {'failures': [{'test': 'variance', 'where': [1], 'value': 1}]},
        {'failures': [{'test': 'repetition', 'where': [1], 'value': 1}]},
        {'failures': [{'test': 'variance', 'where': [], 'value': 'x'}]},
        {'failures': 3},
    ],
)
def test_other_forms_are_refused(change):
    with pytest.raises(ValueError):
        sums.SumTests.from_dict({**_test().to_dict(), **change})
    with pytest.raises(ValueError):
        sums.SumTests.from_dict(list(change))


def test_the_form_of_a_run_that_passes_keeps_no_number_of_its_noise():
    found = _test()
    assert sums.SumTests.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert dataclasses.asdict(found) == dataclasses.asdict(_test(_noise(1)))


# --- Largest products of parts of a table, and their numbers: all alignments one by one.

_SIZES = (7, 2, 6)
_OF_EACH = [np.repeat(range(3), _SIZES) == number for number in range(3)]


def _normal_table(rounds):
    return np.random.default_rng(rounds).standard_normal((rounds, sum(_SIZES)))


def _shifts(part, other):
    """Products of [rounds, k] with [rounds, n], at each circular shift of the second one."""
    for shift in range(other.shape[1]):
        aligned = np.roll(other, -shift, axis=1)[:, : part.shape[1]]
        yield float(np.sum(part * aligned) / np.linalg.norm(part))


def _all_products(table, lags, pairs):
    """Where, and which: of each kind of product."""
    half, found = table.shape[1] // 2, collections.defaultdict(list)
    halves = table[:, :half], table[:, half : 2 * half]
    found['halves'] = [((), value) for value in _shifts(*halves)]
    for pair in pairs:
        first, second = (table[:, _OF_EACH[number]] for number in pair)
        where = (min(pair), max(pair))
        found['tensors'] += [(where, value) for value in _shifts(second, first)]
    if len(table) > 1:
        for number in range(len(table)):
            rows = (part[[number]] for part in halves)
            found['halves of a round'] += [((number,), value) for value in _shifts(*rows)]
    for where in itertools.combinations(range(len(table)), 2):
        aligned, *shifted = _shifts(*(table[[number]] for number in where))
        found['repetition'].append((where, aligned))
        if where[1] - where[0] in lags:
            found['shift'] += [(where, value) for value in shifted]
    return found


@pytest.mark.parametrize(
    'rounds, budget, lags, pairs',
    [
        (1, 2**27, (), [(0, 1), (0, 2), (2, 1)]),
        (4, 2**27, (1, 2, 3), [(0, 1), (0, 2), (2, 1)]),
        (5, 160, (1, 2), [(0, 1), (0, 2)]),
        (5, 1, (1,), [(0, 1)]),
    ],
)
def test_each_kind_has_its_largest_product(monkeypatch, rounds, budget, lags, pairs):
    monkeypatch.setattr(sums, '_MOST_NUMBERS', budget)
    monkeypatch.setattr(sums, '_LEAST_NUMBERS', 80)
    expected = _all_products(_normal_table(rounds), lags, pairs)
    found = one_shot.largest_products(_normal_table(rounds), _OF_EACH)
    assert found.keys() == expected.keys()
    assert sums.product_counts(rounds, _SIZES) == {
        name: len(values) for name, values in expected.items()
    }
    for name, values in expected.items():
        where, value = max(values, key=lambda pair: abs(pair[1]))
        assert found[name] == (where, pytest.approx(value, rel=1e-9)), name


def test_a_table_that_is_not_finite_has_no_largest_product():
    table = _normal_table(4)
    for value, is_known in ((np.nan, False), (0.0, True)):
        table[1] = value
        found = one_shot.largest_products(table, _OF_EACH)
        assert all(np.isfinite(product) == is_known for _, product in found.values())


def test_one_coordinate_has_no_alignments():
    assert sums.product_counts(1, (1,)) == {}
    assert sums.product_counts(3, (1,)) == {'repetition': 3}
    assert one_shot.largest_products(np.ones((1, 1)), [np.array([True])]) == {}
