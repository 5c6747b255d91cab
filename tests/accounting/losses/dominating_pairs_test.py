"""Dominating pairs against brute force: every sample of small populations, numerically integrated.

Noise has standard deviation 1, so clip norms and means are in its units.
"""

import itertools
import math

import numpy as np
import pytest

from dpfl import accounting
from dpfl.accounting.losses import dominating_pairs, loss_distribution
from dpfl.accounting.losses.dominating_pairs import Neighbours
from tests.sizes import standard

_X = np.linspace(-14, 14, 4001)
_ALPHAS = (0.3, 0.8, 0.97, 1.0, 1.02, 1.2, 2.0, 6.0)
_INTEGRATION = 8e-6  # Error of the trapezoidal rule at a kink.
every_adjacency = pytest.mark.parametrize('adjacency', ['zero_out', 'replace_one'])


def _mixture(weighted_means, x=_X):
    """Density of `sum w N(mean, 1)` at x."""
    density = sum(weight * np.exp(-((x - mean) ** 2) / 2) for weight, mean in weighted_means)
    return density / math.sqrt(2 * math.pi)


def _divergence(p, q, alpha):
    return np.trapezoid(np.maximum(p - alpha * q, 0), _X)


def _fixed_size(data, cohort):
    """The release of one round: the mean of its density over every cohort."""
    sums = [sum(chosen) for chosen in itertools.combinations(data, cohort)]
    return _mixture([(1 / len(sums), each) for each in sums])


def _poisson(data, probability):
    """The same for a Poisson sample."""
    parts = []
    for taken in itertools.product((0, 1), repeat=len(data)):
        weight = math.prod(probability if take else 1 - probability for take in taken)
        parts.append((weight, float(np.dot(taken, data))))
    return _mixture(parts)


def _curve(pair):
    """Divergence of a pair as a function of alpha, for the worse order of the neighbours."""
    first = [
        (probability, *(_mixture(zip(m.weights, means, strict=True)) for means in _means(m)))
        for probability, m in pair.labelled
    ]
    second = [(probability, q, p) for probability, p, q in first]

    def ordered(order, alpha):
        return sum(probability * _divergence(p, q, alpha) for probability, p, q in order)

    def symmetrised(alpha):
        return (
            ordered(first, alpha) if alpha >= 1 else alpha * ordered(first, 1 / alpha) + 1 - alpha
        )

    def worse(alpha):
        return max(ordered(first, alpha), ordered(second, alpha))

    return symmetrised if pair.symmetrised else worse


def _means(mixtures):
    return mixtures.upper, mixtures.lower


def _changed(adjacency, clip, members):
    """Placements of a group's updates in two neighbouring runs."""
    ends = (-clip, 0.3 * clip, clip)
    for before in itertools.combinations_with_replacement(ends, members):
        if adjacency == 'zero_out':
            yield before, (0.0,) * members
            yield (0.0,) * members, before
        else:
            for after in itertools.combinations_with_replacement(ends, members):
                yield before, after


def _largest(pairs_of_densities):
    """The largest divergence at each of `_ALPHAS`."""
    worst = dict.fromkeys(_ALPHAS, 0.0)
    for p, q in pairs_of_densities:
        for alpha in _ALPHAS:
            worst[alpha] = max(worst[alpha], _divergence(p, q, alpha))
    return worst


def _require_attained(worst, pair):
    """The pair is not only a bound: some data attain it."""
    curve = _curve(pair)
    for alpha, found in worst.items():
        assert found == pytest.approx(curve(alpha), abs=_INTEGRATION), alpha


@every_adjacency
@pytest.mark.parametrize('population, cohort', [(3, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize('clip', [0.4, 1.5])
def test_no_placement_of_data_exceeds_the_pair_of_fixed_size(adjacency, population, cohort, clip):
    pair = dominating_pairs.fixed_size(population, cohort, 1 / (2 * clip), Neighbours(adjacency))
    worst = _largest(
        [_fixed_size((*each, *others), cohort) for each in changed]
        for changed in _changed(adjacency, clip, 1)
        for others in itertools.combinations_with_replacement((-clip, 0.0, clip), population - 1)
    )
    _require_attained(worst, pair)


def test_updates_at_most_one_clip_norm_apart_have_the_pair_of_one_clip_norm():
    clip, population, cohort = 0.8, 4, 2
    pair = dominating_pairs.fixed_size(population, cohort, 1 / clip, Neighbours('replace_one'))
    worst = _largest(
        [_fixed_size((each, *others), cohort) for each in (before, after)]
        for before, after, *others in itertools.product(
            (0.0, clip / 2, clip), repeat=population + 1
        )
    )
    _require_attained(worst, pair)


@every_adjacency
@pytest.mark.parametrize('members', [1, 2, standard(3)])
@pytest.mark.parametrize('clip, probability', [(0.5, 0.3), (1.2, 0.7)])
def test_no_placement_of_data_exceeds_the_pair_of_a_poisson_sample(
    adjacency, members, clip, probability
):
    shift = clip if adjacency == 'zero_out' else 2 * clip
    pair = dominating_pairs.poisson(probability, 1 / shift, Neighbours(adjacency, members))
    worst = _largest(
        [_poisson((*each, other), probability) for each in changed]
        for changed in _changed(adjacency, clip, members)
        for other in (0.0, clip)
    )
    _require_attained(worst, pair)


@every_adjacency
@pytest.mark.parametrize('members', [2, 3])
def test_no_placement_of_data_exceeds_the_pair_of_a_group_in_fixed_size_samples(adjacency, members):
    clip, population, cohort = 0.6, 5, 2
    pair = dominating_pairs.fixed_size(
        population, cohort, 1 / (2 * clip), Neighbours(adjacency, members)
    )
    bounds = dict(zip(_ALPHAS, map(_curve(pair), _ALPHAS), strict=True))
    worst = _largest(
        [_fixed_size((*each, *[other] * (population - members)), cohort) for each in changed]
        for changed in _changed(adjacency, clip, members)
        for other in (-clip, clip)
    )
    for alpha in _ALPHAS:
        assert worst[alpha] <= bounds[alpha] + _INTEGRATION
    # It is a bound, and not a far one.
    assert worst[1.2] >= 0.75 * bounds[1.2]


@every_adjacency
def test_vectors_in_a_plane_are_no_worse_than_numbers(adjacency):
    # One client of three in the sample; updates anywhere in a disc.
    clip, rng = 1.0, np.random.default_rng(5)
    pair = dominating_pairs.fixed_size(3, 1, 1 / (2 * clip), Neighbours(adjacency))
    bound_at = {alpha: _curve(pair)(alpha) for alpha in (0.8, 1.0, 1.3)}
    grid = np.linspace(-6, 6, 161)
    points = np.stack(np.meshgrid(grid, grid), -1)

    def density(means):
        squares = [((points - mean) ** 2).sum(-1) for mean in means]
        return sum(np.exp(-each / 2) for each in squares) / (2 * math.pi * len(means))

    for _ in range(15):
        angles, radii = rng.uniform(0, 2 * math.pi, 4), clip * rng.uniform(0.6, 1, 4)
        before, after, *others = (radii * [np.cos(angles), np.sin(angles)]).T
        after = 0 * after if adjacency == 'zero_out' else after
        p, q = (density([each, *others]) for each in (before, after))
        for alpha, bound in bound_at.items():
            found = np.maximum(p - alpha * q, 0).sum() * (grid[1] - grid[0]) ** 2
            assert found <= bound + 1e-3


_PAIRS = {
    'fixed size, replaced': dominating_pairs.fixed_size(20, 3, 0.7, Neighbours('replace_one')),
    'fixed size, zeroed': dominating_pairs.fixed_size(20, 3, 0.7, Neighbours('zero_out')),
    'everybody, zeroed': dominating_pairs.fixed_size(20, 20, 0.7, Neighbours('zero_out')),
    'fixed size, two': dominating_pairs.fixed_size(20, 3, 1.5, Neighbours('zero_out', 2)),
    'poisson, replaced': dominating_pairs.poisson(0.2, 0.7, Neighbours('replace_one')),
    'poisson, zeroed': dominating_pairs.poisson(0.2, 0.7, Neighbours('zero_out')),
    'poisson, three': dominating_pairs.poisson(0.2, 1.5, Neighbours('zero_out', 3)),
    'poisson, two replaced': dominating_pairs.poisson(0.4, 2.0, Neighbours('replace_one', 2)),
}


@pytest.mark.parametrize('name', _PAIRS)
@pytest.mark.parametrize('delta', [0.1, standard(1e-3)])
def test_epsilon_of_one_round_is_where_its_curve_meets_delta(name, delta):
    curve = _curve(_PAIRS[name])
    epsilon = loss_distribution.epsilon([(_PAIRS[name], 1)], delta)
    assert curve(math.exp(epsilon)) <= delta * (1 + 1e-3)  # Integration errs.
    assert epsilon == 0 or curve(math.exp(epsilon - 2e-3)) > delta


@pytest.mark.parametrize('name', [name for name in _PAIRS if len(_PAIRS[name].labelled) == 1])
def test_two_rounds_are_not_below_their_joint_curve(name):
    # Every choice of the order in each round, which the data of an adaptive adversary could make.
    pair = _PAIRS[name]
    epsilon = loss_distribution.epsilon([(pair, 2)], 0.02)
    x = np.linspace(-9, 12, 601)
    ((_, m),) = pair.labelled
    forwards = [_mixture(zip(m.weights, means, strict=True), x) for means in _means(m)]
    orders = [forwards, forwards[::-1]]
    rounds = (
        itertools.product(orders, repeat=2)
        if pair.symmetrised
        else zip(orders, orders, strict=True)
    )
    for (p, q), (p_next, q_next) in rounds:
        joint = np.outer(p, p_next) - math.exp(epsilon) * np.outer(q, q_next)
        assert np.maximum(joint, 0).sum() * (x[1] - x[0]) ** 2 <= 0.02 * (1 + 1e-2)


def test_everybody_in_the_sample_is_a_gaussian_release():
    for size, pair in (
        (2, dominating_pairs.poisson(1.0, 5.0, Neighbours('zero_out', 2))),
        (2, dominating_pairs.poisson(1.0, 5.0, Neighbours('replace_one', 2))),
        (1, dominating_pairs.fixed_size(9, 9, 5.0, Neighbours('replace_one'))),
    ):
        exact = accounting.epsilon_from_mu(size * math.sqrt(10) / 5, 1e-6, 'analytic_gaussian')
        found = loss_distribution.epsilon([(pair, 10)], 1e-6)
        assert exact <= found <= exact * 1.0005
