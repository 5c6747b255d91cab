import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import switched_blt
from dpfl.mechanisms.optimize import switched_blt as optimizer
from dpfl.mechanisms.optimize.blt import optimize_blt
from tests import oracles

_FIRST = mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.3])
# Decays that are no numbers within [0, 1].
_PAIR = mechanisms.Blt.from_complex(8, [0.5 + 0.4j, 0.5 - 0.4j], [0.1 + 0.1j, 0.1 - 0.1j])


def _random(rng, rounds, positive):
    starts = tuple((np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1).tolist())
    segments, d = len(starts) + 1, int(rng.integers(1, 4))
    sign = (lambda size: np.ones(size)) if positive else (lambda size: rng.choice([-1, 1], size))
    return mechanisms.SwitchedBlt(
        rounds,
        starts,
        rng.random((segments, d)),
        rng.uniform(0, 0.8, (segments, d)) * sign((segments, d)),
        rng.uniform(0.4, 2, segments),
        rng.uniform(0, 1.2, (segments - 1, d, d)) * sign((segments - 1, d, d)),
    )


def _check_random_cases(cases, seed):
    rng = np.random.default_rng(seed)
    exact = 0
    for case in range(cases):
        rounds = int(rng.integers(2, 10))
        mechanism = _random(rng, rounds, positive=case % 2 == 0)
        schema = Participation(rounds, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        matrix = mechanism.strategy_matrix()
        truth = oracles.squared_sensitivity(matrix, schema)
        bound = mechanism.sensitivity_bound(schema)
        assert bound.squared >= truth * (1 - 1e-12)
        assert not bound.is_exact or bound.squared == pytest.approx(truth, rel=1e-11)
        column_scale = np.exp(rng.normal(size=rounds) * rng.choice([0, 0.1, 1]))
        _check_scaled(mechanism, schema, column_scale)
        gram = matrix.T @ matrix * np.outer(column_scale, column_scale)
        for j, column in enumerate(mechanism._gram_columns(column_scale)):
            np.testing.assert_allclose(column, gram[: j + 1, j], rtol=1e-9, atol=1e-12)
        noise = rng.normal(size=(rounds, 2))
        np.testing.assert_allclose(
            mechanisms.stream(mechanism.kernel(), noise),
            oracles.streamed_by_solving(mechanism, noise),
            rtol=1e-8,
            atol=1e-8,
        )
        exact += bound.is_exact
    assert exact > cases / 4


def _check_scaled(mechanism, schema, column_scale):
    """Every bound of the matrix with scaled columns, each in force for some numbers of rounds."""
    matrix = mechanism.strategy_matrix() * column_scale
    truth = oracles.squared_sensitivity(matrix, schema)
    scaled = mechanism.scaled_sensitivity(column_scale, schema)
    envelope = switched_blt.gram_envelope.sensitivity(mechanism._gram_columns(column_scale), schema)
    for bound in (scaled, envelope):
        assert bound.squared >= truth * (1 - 1e-12)
        assert not bound.is_exact or bound.squared == pytest.approx(truth, rel=1e-11)
    assert not mechanism.starts or mechanism._majorant(column_scale, schema).squared >= truth * (
        1 - 1e-12
    )


def test_random_cases_are_never_below_brute_force():
    _check_random_cases(300, 0)


@pytest.mark.exhaustive
def test_many_random_cases_are_never_below_brute_force():
    _check_random_cases(2000, 1)


def test_without_a_switch_it_is_the_blt():
    same = switched_blt.as_switched(_FIRST)
    np.testing.assert_allclose(same.strategy_matrix(), _FIRST.strategy_matrix(), rtol=1e-14)
    carried = mechanisms.SwitchedBlt.after(_FIRST, 3, _FIRST.decay, _FIRST.scale)
    np.testing.assert_allclose(carried.strategy_matrix(), _FIRST.strategy_matrix(), rtol=1e-14)
    schema = Participation(8, 2)
    assert carried.sensitivity_is_exact(schema)
    assert carried.sensitivity(schema) == pytest.approx(_FIRST.sensitivity(schema), rel=1e-12)


def test_a_carry_of_zeros_is_a_restart():
    fresh = mechanisms.SwitchedBlt.after(
        _FIRST, 3, _FIRST.decay, _FIRST.scale, carry=np.zeros((2, 2))
    )
    restarted = mechanisms.Restarted(_FIRST, (3,), 8)
    np.testing.assert_allclose(fresh.strategy_matrix(), restarted.strategy_matrix(), atol=1e-14)


def test_entries_that_fall_are_exact():
    falling = mechanisms.SwitchedBlt.after(_FIRST, 3, [0.8, 0.3], [0.2, 0.1], gain=0.9)
    matrix = falling.strategy_matrix()
    for j in range(8):
        assert (np.diff(matrix[j:, j]) <= 0).all()
        assert (np.diff(np.diagonal(matrix, -j)) <= 0).all()
    for schema in oracles.small_schemas(8):
        assert falling.sensitivity_is_exact(schema)


def test_it_begins_like_the_mechanism_before_the_switch():
    switched = mechanisms.SwitchedBlt.after(_FIRST, 5, [0.8, 0.3], [0.1, 0.1], rounds=20)
    assert switched.rounds == 20
    assert switched.begins_like(_FIRST, 5) and not switched.begins_like(_FIRST, 6)
    assert not switched.begins_like(mechanisms.Blt(8, [0.9, 0.4], [0.2, 0.2]), 5)
    assert not switched.begins_like(mechanisms.Blt(8, [0.9], [0.2]), 5)
    again = mechanisms.SwitchedBlt.after(switched, 9, [0.5, 0.5], [0.1, 0.1])
    assert again.starts == (5, 9) and again.begins_like(switched, 9)
    noise = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(
        mechanisms.stream(switched.kernel(), noise), mechanisms.stream(_FIRST.kernel(), noise)
    )


@pytest.mark.parametrize(
    'blt', [_PAIR, mechanisms.Blt(8, [-0.5], [0.1]), mechanisms.Blt(8, [], [])]
)
def test_a_blt_of_another_form_is_neither_switched_nor_begun_like(blt):
    with pytest.raises(errors.ArgumentError, match='first: must be a switched_blt, or a blt with'):
        mechanisms.SwitchedBlt.after(blt, 5, np.abs(blt.decay), blt.scale)
    real = mechanisms.Blt(8, np.abs(blt.decay), blt.scale) if blt.decay.size else _FIRST
    assert not mechanisms.SwitchedBlt.after(real, 5, real.decay, real.scale).begins_like(blt, 5)


@pytest.mark.parametrize(
    'changed, message',
    [
        (dict(starts=(0,)), 'starts=0: must be an integer >= 1'),
        (dict(starts=(9,)), r'starts=\(9,\): must increase within 1 .. 7'),
        (dict(starts=3), 'starts=3: must be a list of integers'),
        (dict(decay=[[1.1], [0.5]]), 'decay=.*each entry must be within'),
        (dict(decay=[[0.5]]), r'decay: has shape \[1, 1\], must have \[2, any\]'),
        (dict(scale=[[0.5, 1.0], [1.0, 2.0]]), r'scale: has shape \[2, 2\]'),
        (dict(scale='x'), 'scale: must be numbers'),
        (dict(gain=[1.0, 0.0]), 'gain=.*each entry must be >= 1e-100'),
        (dict(carry=[[[float('nan')]]]), 'carry: must be finite numbers'),
    ],
)
def test_bad_fields_are_named(changed, message):
    fields = dict(
        rounds=8,
        starts=(3,),
        decay=[[0.5], [0.5]],
        scale=[[0.1], [0.1]],
        gain=[1.0, 1.0],
        carry=[[[1.0]]],
    )
    mechanisms.SwitchedBlt(**fields)
    with pytest.raises(errors.ArgumentError, match=message):
        mechanisms.SwitchedBlt(**{**fields, **changed})


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize('separation', [4, 16])
def test_the_rest_is_better_than_going_on_and_than_a_restart(loss, separation):
    plan = optimize_blt(Participation(64, 8), 2, loss)
    schema = Participation(64, separation)
    found = mechanisms.optimize_switch(plan, 32, schema, loss)
    rest = optimizer._Rest(plan, 32, schema, loss)
    unchanged, restarted = rest.unchanged(), rest.restarted()
    assert rest.loss(unchanged) == pytest.approx(getattr(plan, f'{loss}_loss')(schema))
    assert rest.loss(found) < min(rest.loss(unchanged), rest.loss(restarted)) * 0.999
    assert found.begins_like(plan, 32)


def test_the_objective_is_the_loss_for_its_patterns():
    schema = Participation(40, 7, 4)
    rest = optimizer._Rest(_FIRST.with_rounds(40), 20, schema, 'rms')
    found = rest.improved(rest.unchanged())
    matrix = found.strategy_matrix()
    squared = max(((matrix @ pattern) ** 2).sum() for pattern in rest._inputs)
    for pattern in rest._inputs:
        assert schema.admits(np.flatnonzero(pattern))
    assert found.sensitivity(schema) >= np.sqrt(squared) * (1 - 1e-12)
    assert found.rms_error() ** 2 == pytest.approx(oracles.squared_error(found).mean(), rel=1e-9)


def test_bad_switches_are_named():
    schema = Participation(8, 2)
    for arguments, message in (
        ((_FIRST, 0, schema), 'at=0: must be an integer >= 1 and <= 7'),
        ((_FIRST, 8, schema), 'at=8: must be an integer >= 1 and <= 7'),
        ((mechanisms.Identity(8), 3, schema), 'mechanism: must be a switched_blt, or a blt with'),
        ((_PAIR, 3, schema), 'mechanism: must be a switched_blt, or a blt with buffers'),
        ((_FIRST, 3, schema, 'mean'), 'loss=mean: must be one of max, rms'),
    ):
        with pytest.raises(errors.ArgumentError, match=message):
            mechanisms.optimize_switch(*arguments)


@pytest.mark.parametrize('factor', [0.97, 1.2])
def test_a_limit_of_the_sensitivity_is_kept_and_used(factor):
    plan = optimize_blt(Participation(64, 8), 2)
    schema = Participation(64, 16)
    limit = factor * plan.sensitivity(schema)
    found = mechanisms.optimize_switch(plan, 32, schema, max_sensitivity=limit)
    assert 0.9 * limit < found.sensitivity(schema) <= limit
    assert (found.max_error() < plan.max_error()) == (factor > 1)
    with pytest.raises(errors.ArgumentError, match='must be above .* that of the first 32 rounds'):
        mechanisms.optimize_switch(plan, 32, schema, max_sensitivity=0.5)
