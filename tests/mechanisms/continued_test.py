import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import continued
from dpfl.mechanisms.optimize import continued as optimizer
from tests import oracles

_BASE = mechanisms.optimize_banded(Participation(24, 6), 4)


def _random(rng):
    n, negative = int(rng.integers(1, 7)), rng.random() < 0.5
    bands = int(rng.integers(1, n + 1))
    entries = rng.normal(size=(n, n)) if negative else rng.random((n, n))
    matrix = np.tril(entries, -1) + np.diag(rng.uniform(0.5, 2, n))
    tail = rng.normal(size=int(rng.integers(1, bands + 1))) * (1 if negative else -1)
    tail[0] = rng.uniform(0.3, 2)
    tail[1:] = tail[1:] if negative else np.abs(tail[1:])
    link = float(rng.uniform(-1 if negative else 0, 1.5))
    base = mechanisms.Banded.from_matrix(matrix, bands)
    return mechanisms.Continued(base, tail, link, int(rng.integers(1, 10)))


def _check_random_cases(cases, seed):
    rng = np.random.default_rng(seed)
    exact = 0
    for _ in range(cases):
        mechanism = _random(rng)
        schema = Participation(mechanism.rounds, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
        bound = mechanism.sensitivity_bound(schema)
        assert bound.squared >= truth * (1 - 1e-12)
        assert not bound.is_exact or bound.squared == pytest.approx(truth, rel=1e-11)
        assert bound.is_exact or mechanism.base.bands > schema.min_separation
        noise = rng.normal(size=(mechanism.rounds, 2))
        expected = oracles.streamed_by_solving(mechanism, noise)
        streamed = mechanisms.stream(mechanism.kernel(), noise)
        np.testing.assert_allclose(streamed, expected, rtol=1e-7, atol=1e-7)
        exact += bound.is_exact
    assert exact > cases / 2


def test_random_cases_are_never_below_brute_force():
    _check_random_cases(300, 0)


@pytest.mark.exhaustive
def test_many_random_cases_are_never_below_brute_force():
    _check_random_cases(2000, 1)


def test_the_bound_of_long_runs_is_not_below_brute_force(monkeypatch):
    monkeypatch.setattr(continued, '_MOST_GRAM_ROUNDS', 0)
    rng = np.random.default_rng(2)
    for _ in range(200):
        mechanism = _random(rng)
        if mechanism.rounds <= mechanism.base.rounds:
            continue
        schema = Participation(mechanism.rounds, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
        truth = oracles.squared_sensitivity(mechanism.strategy_matrix(), schema)
        assert mechanism.sensitivity_bound(schema).squared >= truth * (1 - 1e-12)


def test_the_rows_are_those_of_the_base_and_of_the_tail():
    mechanism = mechanisms.Continued(_BASE, [0.9, 0.5, 0.2], 0.5, 40)
    matrix = mechanism.strategy_matrix()
    np.testing.assert_array_equal(matrix[:24, :24], _BASE.strategy_matrix())
    np.testing.assert_allclose(matrix[24, 22:25], [0.5 * 0.2, 0.5 * 0.5, 0.9])
    np.testing.assert_allclose(matrix[25, 23:26], [0.5 * 0.2, 0.5, 0.9])
    np.testing.assert_allclose(matrix[39, 36:], [0.0, 0.2, 0.5, 0.9])
    fresh = mechanisms.Continued(_BASE, [0.9, 0.5, 0.2], 0.0, 40).strategy_matrix()
    assert not fresh[24:, :24].any()


def test_a_run_of_the_base_goes_on_with_the_same_noise_and_memory():
    longer = mechanisms.Continued(_BASE, [0.9, 0.5, 0.2], 0.5, 5000)
    assert longer.begins_like(_BASE, 24) and not longer.begins_like(_BASE, 25)
    assert longer.num_buffers() == longer.kernel().buffers == 3
    assert longer.with_rounds(30).begins_like(longer, 30)
    assert not longer.begins_like(mechanisms.Banded(_BASE.diagonals[:, :3]), 20)
    noise = np.random.default_rng(0).normal(size=(24, 2))
    np.testing.assert_array_equal(
        mechanisms.stream(longer.kernel(), noise), mechanisms.stream(_BASE.kernel(), noise)
    )


@pytest.mark.parametrize('loss', ['max', 'rms'])
def test_the_optimum_is_better_than_a_restart(loss):
    schema = Participation(48, 6)
    found = mechanisms.optimize_continued(_BASE, schema, loss)
    restarted = mechanisms.Restarted(_BASE, (24,), 48)
    value = getattr(found, f'{loss}_loss')(schema)
    assert value < 0.99 * getattr(restarted, f'{loss}_loss')(schema)
    assert found.sensitivity_is_exact(schema)
    shape = mechanisms.optimize_banded_toeplitz(schema, 4, loss='rms').coefficients
    tail = optimizer._Tail(_BASE, shape, schema, loss)
    for link, gain in ((0.0, 1.0), (0.7, 0.6), (1.3, 1.2)):
        same = mechanisms.Continued(_BASE, gain * shape, link, 48)
        expected = 2 * np.log(getattr(same, f'{loss}_loss')(schema))
        assert tail.log_loss(link, gain) == pytest.approx(expected, abs=1e-10)
        assert value <= np.exp(expected / 2)


@pytest.mark.parametrize(
    'changed, message',
    [
        (dict(base=mechanisms.Identity(4)), 'base: must be a banded mechanism'),
        (dict(tail=[1.0] * 5), 'tail: has 5 coefficients, must have 1 .. 4'),
        (dict(tail=[]), 'tail: has 0 coefficients'),
        (dict(tail=[-1.0]), 'tail: must begin with a number >= 1e-100'),
        (dict(link=float('nan')), 'link=nan: must be a finite number'),
    ],
)
def test_bad_fields_are_named(changed, message):
    fields = dict(base=_BASE, tail=[1.0], link=1.0, rounds=30)
    with pytest.raises(errors.ArgumentError, match=message):
        mechanisms.Continued(**{**fields, **changed})


def test_bad_arguments_of_the_optimiser_are_named():
    for arguments, message in (
        ((_BASE, Participation(24, 6)), 'rounds=24: must be an integer >= 25'),
        ((_BASE, Participation(48, 3)), 'min_separation=3: must be >= 4'),
        ((mechanisms.Identity(3), Participation(48, 6)), 'base: must be a banded mechanism'),
        ((_BASE, Participation(48, 6), 'mean'), 'loss=mean: must be one of max, rms'),
    ):
        with pytest.raises(errors.ArgumentError, match=message):
            mechanisms.optimize_continued(*arguments)
