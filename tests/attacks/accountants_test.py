"""No epsilon and no sensitivity is below the truth, in random cases.

gaussian: random (mu, delta), mu from 1e-15 to 1e6, delta from 1e-300 to 1 - 1e-12: epsilon of every
accountant against the exact curve with 120 digits. sampled: Poisson sampling and sampling without
replacement, with deltas down to 1e-100: epsilon of every accountant against lower bounds of delta.
strategies: random schemas and strategy matrices, small, restarted and of odd sizes: the sensitivity
against brute force over patterns and signs in rational numbers.
"""

import fractions
import itertools
import math
from collections.abc import Iterator

import dp_accounting
import mpmath
import numpy as np
import pytest
from scipy import stats

from dpfl import mechanisms
from dpfl.accounting import events, gaussian
from dpfl.participation import Participation
from tests.attacks import sampled_truth

# Tolerance of the logarithm of the lower bounds of delta, which are computed in float64.
_ROUNDING = 1e-6


def _gaussian(rng) -> Iterator[str]:
    mu, delta = float(10 ** rng.uniform(-15, 6)), _delta(rng, 300)
    for method in gaussian.ACCOUNTANTS:
        bound = gaussian.bound(mu, delta, method)
        if not math.isfinite(bound.epsilon):
            yield f'mu={mu!r} delta={delta!r}: {method} has no epsilon'
        elif _exact_delta(mu, bound.epsilon) > mpmath.mpf(delta):
            yield f'mu={mu!r} delta={delta!r}: {method} gives {bound.epsilon!r}'


def _exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Delta of a Gaussian release with 120 digits ([Balle18], theorem 8)."""
    with mpmath.workdps(120):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


def _sampled(rng) -> Iterator[str]:
    # Pairs (mu, delta) as in practice, and arbitrary ones.
    rounds = int(10 ** rng.uniform(0, 3))
    noise_multiplier = float(10 ** rng.uniform(-0.7, 1.5))
    population = int(10 ** rng.uniform(1, 7))
    cohort = int(rng.integers(1, max(2, population // 2)) ** rng.uniform(0.3, 1))
    delta = _delta(rng, 100)
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    # Without replacement the others all have the update that is opposite to the client's: that
    # too moves a sum by all of the sensitivity, with probability cohort / population.
    for one in (
        dp_accounting.PoissonSampledDpEvent(cohort / population, release),
        dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, release),
    ):
        event = dp_accounting.SelfComposedDpEvent(one, rounds)
        for method in events.methods_for(event):
            bound = events.bound(event, delta, method)
            case = (
                f'{type(one).__name__} of {cohort}/{population}, noise {noise_multiplier!r}, '
                f'{rounds} rounds, delta={delta!r}: {method}'
            )
            if not math.isfinite(bound.epsilon):
                yield f'{case} has no epsilon'
                continue
            least = sampled_truth.least_log_delta(
                cohort / population, noise_multiplier, rounds, bound.epsilon, math.log(delta)
            )
            if least > math.log(delta) + _ROUNDING:
                yield f'{case} gives {bound.epsilon!r} ({bound.accountant})'


def _delta(rng, most_digits: int) -> float:
    if rng.random() < 0.2:
        return float(1 - 10 ** rng.uniform(-12, -0.1))
    return float(10 ** rng.uniform(-(most_digits if rng.random() < 0.3 else 16), -0.1))


def _strategies(rng) -> Iterator[str]:
    rounds = int(rng.integers(1, 8))
    mechanism = _random_mechanism(rng, rounds)
    schema = Participation(rounds, int(rng.integers(1, 6)), int(rng.integers(1, 5)))
    bound = mechanism.sensitivity_bound(schema)
    truth = _exact_squared_sensitivity(mechanism.released_matrix(), schema)
    if fractions.Fraction(bound.squared) < truth:
        yield f'{mechanism} {schema}: {bound.squared!r} is below {float(truth)!r}'
    if bound.is_exact and bound.squared > float(truth) * (1 + 1e-9):
        yield f'{mechanism} {schema}: {bound.squared!r} is no exact {float(truth)!r}'


def _exact_squared_sensitivity(matrix: np.ndarray, schema: Participation) -> fractions.Fraction:
    """Largest squared norm over admitted patterns and signs, in rational numbers.

    Args:
      matrix: the matrix whose products are released, float64 [any, rounds].
      schema: of few rounds.
    """
    columns = [[fractions.Fraction(float(value)) for value in column] for column in matrix.T]
    signs = (1,) if (matrix >= 0).all() else (1, -1)
    worst = fractions.Fraction(0)
    for size in range(1, schema.count + 1):
        for pattern in itertools.combinations(range(schema.rounds), size):
            if any(j - i < schema.min_separation for i, j in itertools.pairwise(pattern)):
                continue
            for chosen in itertools.product(signs, repeat=size - 1):
                terms = zip((1, *chosen), (columns[t] for t in pattern), strict=True)
                signed = [[sign * value for value in column] for sign, column in terms]
                worst = max(worst, sum(sum(row) ** 2 for row in zip(*signed, strict=True)))
    return worst


def _random_mechanism(rng, rounds: int) -> mechanisms.Mechanism:
    size = int(rng.integers(1, rounds + 1))
    magnitude = float(10 ** rng.uniform(-99, 60))

    def numbers(*shape):
        values = rng.uniform(0, 1, shape) * 10.0 ** (rng.uniform(-200, 0) * rng.random(shape))
        return values if rng.random() < 0.5 else values * rng.choice([-1.0, 1.0], shape)

    def column():
        values = numbers(size)
        values[0] = rng.uniform(0.1, 1)
        return -np.sort(-np.abs(values)) if rng.random() < 0.3 else values

    kind = rng.choice(['tree', 'honaker', 'toeplitz', 'banded', 'inverse', 'blt'])
    if kind == 'tree':
        base = mechanisms.BinaryTree(rounds, str(rng.choice(mechanisms.tree.RELEASED)))
    elif kind == 'honaker':
        base = mechanisms.HonakerTree(rounds, str(rng.choice(mechanisms.tree.RELEASED)))
    elif kind == 'toeplitz':
        base = mechanisms.BandedToeplitz(rounds, column() * magnitude)
    elif kind == 'inverse':
        base = mechanisms.BandedInverse(rounds, np.append(1.0, numbers(size)))
    elif kind == 'blt':
        base = mechanisms.Blt(rounds, rng.random(2), numbers(2))
    else:
        matrix = np.tril(numbers(rounds, rounds), -1) + np.diag(rng.uniform(0.1, 1, rounds))
        base = mechanisms.Banded.from_matrix(matrix * magnitude, size)
    for _ in range(int(rng.integers(0, 3))):  # Restarts of restarts, too.
        starts = np.flatnonzero(rng.random(rounds - 1) < 0.25) + 1
        base = mechanisms.Restarted(base, starts, rounds)
    return base


def _below_the_truth(part, cases):
    rng = np.random.default_rng(0)
    return [sentence for _ in range(cases) for sentence in part(rng)]


@pytest.mark.exhaustive
@pytest.mark.parametrize('part, cases', [(_gaussian, 30), (_sampled, 2), (_strategies, 200)])
def test_a_small_search_finds_nothing(part, cases):
    assert _below_the_truth(part, cases) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize('part, module', [(_gaussian, gaussian), (_sampled, events)])
def test_an_accountant_that_understates_is_found(part, module, monkeypatch):
    honest = module.bound

    def understating(*arguments):
        bound = honest(*arguments)
        return bound._replace(epsilon=bound.epsilon * 0.5)

    monkeypatch.setattr(module, 'bound', understating)
    assert _below_the_truth(part, 4)


def test_a_sensitivity_below_the_truth_by_one_digit_is_found(monkeypatch):
    def understating(self, participation):
        squared = float(_exact_squared_sensitivity(self.released_matrix(), participation))
        return mechanisms.Sensitivity(math.nextafter(squared, 0), True)

    monkeypatch.setattr(mechanisms.Mechanism, 'sensitivity_bound', understating)
    assert 'is below' in _below_the_truth(_strategies, 20)[0]


@pytest.mark.standard
def test_the_composition_of_dp_accounting_is_found_below_the_truth_at_tiny_deltas():
    # Its privacy loss distribution gives 3.0387 at 1e-14 for these samples.
    least = sampled_truth.least_log_delta(1e-3, 0.8, 1000, 3.0387, math.log(1e-14))
    assert least > math.log(1e-14) + 0.3
    epsilon = events.epsilon_of_event(_poisson(1e-3, 0.8, 1000), 1e-14, 'pld')
    assert epsilon > 3.0387 + 0.05


def _poisson(q, noise_multiplier, rounds):
    release = dp_accounting.GaussianDpEvent(noise_multiplier)
    return dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(q, release), rounds
    )


@pytest.mark.parametrize(
    'noise_multiplier, rounds, epsilon',
    [
        (1.0, 1, 2.0),
        (5.0, 20, 3.0),
        (10.0, 100, 8.0),
    ],
)
def test_deltas_from_below_are_close_to_the_curve_where_all_are_sampled(
    noise_multiplier, rounds, epsilon
):
    mu = math.sqrt(rounds) / noise_multiplier
    tails = stats.norm.sf([epsilon / mu - mu / 2, epsilon / mu + mu / 2])
    exact = math.log(tails[0] - math.exp(epsilon) * tails[1])
    least = sampled_truth.least_log_delta(1 - 1e-12, noise_multiplier, rounds, epsilon, exact)
    assert exact - 0.05 < least <= exact + 1e-6
