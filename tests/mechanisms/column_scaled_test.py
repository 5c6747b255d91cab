import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.sensitivities import scaled_toeplitz
from tests import oracles

_STACKOVERFLOW = Participation(2052, 342, 6)


def _random_base(rng, rounds):
    kind = rng.integers(6)
    if kind == 0:  # Monotone.
        buffers = int(rng.integers(1, 4))
        scale = rng.dirichlet(np.ones(buffers + 1))[:buffers]
        return mechanisms.Blt(rounds, rng.random(buffers), scale)
    if kind == 1:
        return mechanisms.Blt(rounds, rng.random(2), rng.normal(0.2, 0.3, size=2))
    if kind == 2:
        others = rng.normal(size=rng.integers(0, 4)) * 0.5
        return mechanisms.BandedToeplitz(rounds, np.append(1.0, others))
    if kind == 3:
        bands = int(rng.integers(1, 5))
        return mechanisms.BandedInverse.fractional_power(rounds, bands, rng.random())
    if kind == 4:
        return _random_switched(rng, rounds)
    return mechanisms.HonakerTree(rounds, rng.choice(['nodes', 'prefix_sums']))


def _random_switched(rng, rounds):
    starts = np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1
    count, d = starts.size + 1, int(rng.integers(1, 4))
    sign = rng.choice([1.0, -1.0], size=(count, d)) if rng.random() < 0.3 else 1.0
    scale = rng.uniform(0, 0.5, (count, d)) * sign
    carry = np.tile(np.eye(d), (count - 1, 1, 1))
    decay, gain = rng.random((count, d)), np.exp(rng.normal(size=count) * 0.2)
    return mechanisms.SwitchedBlt(rounds, starts.tolist(), decay, scale, gain, carry)


def _check_random_cases(rng, cases, monkeypatch):
    exact = 0
    for _ in range(cases):
        # Sometimes only a few cells.
        monkeypatch.setattr(scaled_toeplitz, '_MOST_STEPS', rng.choice([4e7, 30]))
        rounds = int(rng.integers(1, 10))
        blocks = int(rng.integers(1, 10))
        scale = np.exp(rng.normal(size=blocks) * rng.choice([0.05, 0.2, 1]))
        base = _random_base(rng, rounds)
        mechanism = mechanisms.ColumnScaled(base, scale, rounds, int(rng.integers(1, 6)))
        schema = Participation(rounds, int(rng.integers(1, 10)), int(rng.integers(1, 10)))
        bound = mechanism.sensitivity_bound(schema)
        truth = oracles.squared_sensitivity(mechanism.released_matrix(), schema)
        assert bound.squared >= truth * (1 - 1e-12), (mechanism, schema)
        if bound.is_exact:
            assert bound.squared == pytest.approx(truth, rel=1e-10), (mechanism, schema)
        exact += bound.is_exact
    assert exact > 0.7 * cases


def test_no_sensitivity_is_below_the_truth(monkeypatch):
    _check_random_cases(np.random.default_rng(0), 300, monkeypatch)


@pytest.mark.exhaustive
def test_no_sensitivity_of_2000_is_below_the_truth(monkeypatch):
    _check_random_cases(np.random.default_rng(1), 2000, monkeypatch)


@pytest.mark.parametrize('block_length', [1, 2, 3])
def test_scales_that_do_not_increase_are_exact(block_length):
    rng = np.random.default_rng(2)
    for schema in oracles.small_schemas(8):
        scale = np.sort(rng.random(8) + 0.1)[::-1]
        base = mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.3])
        mechanism = mechanisms.ColumnScaled(base, scale, 8, block_length)
        bound = mechanism.sensitivity_bound(schema)
        assert bound.is_exact
        regular = range(0, 8, schema.min_separation)[: schema.count]
        released = mechanism.strategy_matrix()[:, list(regular)].sum(axis=1)
        assert bound.squared == pytest.approx(released @ released)


def test_scales_of_blocks_as_long_as_the_separation_are_exact_at_scale():
    # Every block can be used, so 0, b, 2b, .. is the worst pattern for scales like these.
    base = mechanisms.Blt(2052, [0.99, 0.9, 0.4], [0.02, 0.1, 0.2])
    mechanism = mechanisms.ColumnScaled(base, [1.0, 0.9, 0.95, 1.0, 1.1, 1.2], 2052, 342)
    released = mechanism.strategy_matrix()[:, ::342].sum(axis=1)
    bound = mechanism.sensitivity_bound(_STACKOVERFLOW)
    assert bound.is_exact
    assert bound.squared == pytest.approx(released @ released, rel=1e-9)


@pytest.mark.parametrize(
    'schema',
    [Participation(10_000, 400), Participation(10_000, 400, 5), Participation(10_000, 1, 30)],
    ids=str,
)
def test_ten_thousand_rounds_are_bounded(schema):
    base = mechanisms.Blt(10_000, [0.999, 0.9, 0.4], [0.002, 0.1, 0.2])
    scale = np.exp(0.1 * np.sin(np.arange(250) / 30))
    mechanism = mechanisms.ColumnScaled(base, scale, 10_000, 40)
    bound = mechanism.sensitivity_bound(schema)
    assert np.isfinite(mechanism.squared_error()).all()
    regular = np.arange(0, 10_000, schema.min_separation)[: schema.count]
    attained = scaled_toeplitz.squared_norm(base.coefficients(), mechanism.column_scales(), regular)
    assert attained <= bound.squared <= scale.max() ** 2 / scale.min() ** 2 * attained


def test_errors_of_a_switched_base_are_those_of_its_matrix():
    rng = np.random.default_rng(3)
    for rounds in (1, 2, 30):
        base = _random_switched(rng, rounds)
        mechanism = mechanisms.ColumnScaled(base, np.exp(rng.normal(size=10) * 0.3), rounds, 2)
        decoder = np.cumsum(np.linalg.inv(mechanism.strategy_matrix()), axis=0)
        squared = (decoder**2).sum(axis=1)
        np.testing.assert_allclose(mechanism.squared_error(), squared, rtol=1e-9)


def test_equal_scales_are_the_base():
    base = mechanisms.Blt(12, [0.9, 0.4], [0.2, 0.3])
    mechanism = mechanisms.ColumnScaled(base, [2.0], 12)
    np.testing.assert_allclose(mechanism.strategy_matrix(), 2 * base.strategy_matrix())
    for schema in oracles.small_schemas(12):
        assert mechanism.sensitivity_bound(schema).is_exact
        assert mechanism.max_loss(schema) == pytest.approx(base.max_loss(schema))


def test_normalized_columns_have_the_norm_of_the_first():
    schema = Participation(40, 10)
    base = mechanisms.optimize_banded_toeplitz(schema, 10, 'max')
    normalized = mechanisms.ColumnScaled.normalized(base)
    np.testing.assert_allclose(normalized.column_norms(), base.column_norms()[0])
    assert normalized.sensitivity_bound(schema).is_exact
    assert normalized.sensitivity(schema) == pytest.approx(base.sensitivity(schema))
    assert normalized.max_loss(schema) < 0.97 * base.max_loss(schema)


def test_the_last_scale_goes_on():
    mechanism = mechanisms.ColumnScaled(mechanisms.Identity(7), [1.0, 2.0], 7, 3)
    np.testing.assert_array_equal(mechanism.column_scales(), [1, 1, 1, 2, 2, 2, 2])
    np.testing.assert_array_equal(mechanism.with_rounds(2).column_scales(), [1, 1])
    assert mechanism.with_rounds(2).with_rounds(7) == mechanism


def test_a_run_can_go_on_if_only_later_scales_differ():
    def make(scale, rounds=6, decay=0.5):
        return mechanisms.ColumnScaled(mechanisms.Blt(rounds, [decay], [0.3]), scale, rounds, 2)

    short = make([1.0, 0.8, 0.9])
    assert short.begins_like(make([1.0, 0.8, 1.2], 9), 4)
    assert not short.begins_like(make([1.0, 0.8, 1.2], 9), 5)
    assert not short.begins_like(make([1.0, 0.8, 0.9], decay=0.4), 2)
    assert not short.begins_like(short.base, 2)
    assert not short.begins_like(short, 7)


@pytest.mark.parametrize(
    'base, scale, block_length, message',
    [
        (None, [1.0], 1, 'base=None: must be a mechanism'),
        (mechanisms.FullHonakerTree(4), [1.0], 1, 'must be a mechanism that can have any number'),
        (
            mechanisms.ColumnScaled(mechanisms.Identity(4), [1.0], 4),
            [1.0],
            1,
            'must be a mechanism that can have any number of rounds, and is not scaled itself',
        ),
        (mechanisms.Identity(4), [], 1, 'scale: must have at least 1 entry'),
        (mechanisms.Identity(4), [1.0, 0.0], 1, 'scale: must have at least 1 entry, each >= 1e-50'),
        (mechanisms.Identity(4), [1.0, -1.0], 1, 'scale: must have at least 1 entry'),
        (mechanisms.Identity(4), [1e60], 1, 'and <= 1e[+]50'),
        (mechanisms.Identity(4), ['a'], 1, 'scale'),
        (mechanisms.Identity(4), [1.0], 0, 'block_length=0: must be an integer >= 1'),
    ],
)
def test_bad_fields_are_named(base, scale, block_length, message):
    with pytest.raises(ValueError, match=message):
        mechanisms.ColumnScaled(base, scale, 4, block_length)
