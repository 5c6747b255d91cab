"""Moments of random patterns against enumeration, and the lower bound of losses that they prove."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize import lower_bound
from dpfl.mechanisms.optimize.lower_bound import Chain
from tests import oracles
from tests.sizes import exhaustive, standard


def _random_chain(generator, participations, cells):
    step = np.triu(generator.exponential(size=(participations - 1, cells, cells)))
    step /= step.sum(axis=2, keepdims=True)
    start = generator.dirichlet(np.ones(cells))
    return Chain(start, step, step * generator.uniform(size=step.shape))


def _of_offsets(chain, offsets):
    """A chain of cells as one of offsets: the place is kept in a cell, and fresh in another."""
    edges = np.arange(chain.cells + 1) * offsets // chain.cells
    cell = np.repeat(np.arange(chain.cells), np.diff(edges))
    place = 1 / np.diff(edges)[cell]
    share = np.where(cell[:, None] == cell, np.eye(offsets), place)
    return Chain(
        chain.start[cell] * place,
        chain.step[:, cell][:, :, cell] * share,
        chain.kept[:, cell][:, :, cell] * share,
    )


def _by_enumeration(chain, rounds, separation):
    """The mean of u u^T over all paths and signs of a chain of offsets, and the patterns."""
    moments, drawn = np.zeros((rounds, rounds)), set()
    for path in itertools.product(range(chain.cells), repeat=chain.participations):
        probability, same = chain.start[path[0]], np.eye(len(path))
        for p, (i, j) in enumerate(itertools.pairwise(path)):
            probability *= chain.step[p, i, j]
            if not probability:
                break
            share = chain.kept[p, i, j] / chain.step[p, i, j]
            same[: p + 1, p + 1] = same[p + 1, : p + 1] = same[: p + 1, p] * share
        if probability:
            found = [p * separation + s for p, s in enumerate(path) if p * separation + s < rounds]
            drawn.add(tuple(found))
            moments[np.ix_(found, found)] += probability * same[: len(found), : len(found)]
    return moments, drawn


@pytest.mark.parametrize('seed', range(16))
def test_moments_are_means_over_admitted_patterns(seed):
    generator = np.random.default_rng(seed)
    rounds, separation = map(int, generator.integers(1, (15, 6)))
    participations, cells, more = map(int, generator.integers((1, 1, 0), (4, 4, 3)))
    chain, offsets = _random_chain(generator, participations, cells), cells + more
    expected, drawn = _by_enumeration(_of_offsets(chain, offsets), rounds, separation)
    schema = Participation(rounds, separation, participations)
    assert drawn <= {*oracles.patterns(schema), ()}
    np.testing.assert_allclose(chain.moments(rounds, separation, offsets), expected, atol=1e-14)


def test_what_is_no_chain_is_refused():
    start, step = np.array([0.5, 0.5]), np.array([[[0.5, 0.5], [0.0, 1.0]]])
    Chain(start, step, step)
    for arguments, message in (
        ((start, step.transpose(0, 2, 1), step), 'earlier cell'),
        ((start * 1.1, step, step), 'sums above 1'),
        ((start, step * 1.1, step), 'sums above 1'),
        ((np.array([-0.5, 0.5]), step, step), 'negative'),
        ((start, step, step * 1.1), 'kept signs'),
        ((start, step, -step), 'kept signs'),
        ((start, step, step[:, :1]), 'shapes'),
    ):
        with pytest.raises(ValueError, match=message):
            Chain(*arguments)


def _losses(matrix, schema, workload=None):
    """Largest and mean loss of any C, by brute force: `B = A C^-1` is the best decoder."""
    n = schema.rounds
    decoder = mechanisms.workload.matrix(workload, n) @ np.linalg.pinv(matrix)
    squared = (decoder**2).sum(axis=1)
    sensitivity = math.sqrt(oracles.squared_sensitivity(matrix, schema))
    return {
        'max': math.sqrt(squared.max()) * sensitivity,
        'rms': math.sqrt(squared.mean()) * sensitivity,
    }


def _signed_indicators(schema):
    """All signed indicators of patterns that cannot be longer, a row each."""
    rows = {}
    for pattern in oracles.patterns(schema):
        for signs in oracles._signs(len(pattern)):
            row = np.zeros(schema.rounds)
            row[list(pattern)] = signs
            rows[tuple(row)] = row
    return np.array([*rows.values()])


def _best_matrix(u, a, loss):
    """The C of least loss: a convex problem in X = C^T C.

    A generic optimiser lowers a smooth maximum of `u^T X u` times one of the errors, more and more
    sharply, over the entries of a triangular root of X.

    Args:
      u: signed indicators of the patterns, a row each.
      a: workload, [n, n].
      loss: 'max' or 'rms'.
    """
    n = len(a)
    lower = np.tril_indices(n)

    def of(entries):
        root = np.zeros((n, n))
        root[lower] = entries
        return root, ((u @ root.T) ** 2).sum(axis=1), a @ np.linalg.inv(root)

    def smooth(entries, power):
        root, lengths, decoder = of(entries)
        errors = (decoder**2).sum(axis=1)
        sharp = power if loss == 'max' else 1
        shares, weights = lengths / lengths.max(), errors / errors.max()
        value = math.log(lengths.max()) + math.log((shares**power).sum()) / power
        value += math.log(errors.max()) + math.log((weights**sharp).mean()) / sharp
        in_lengths = shares ** (power - 1) / (shares**power).sum() / lengths.max()
        in_errors = weights ** (sharp - 1) / (weights**sharp).sum() / errors.max()
        gradient = 2 * root @ (u.T * in_lengths) @ u
        in_decoder = 2 * in_errors[:, None] * decoder
        gradient -= decoder.T @ in_decoder @ np.linalg.inv(root).T
        return value, gradient[lower]

    entries = np.eye(n)[lower]
    for power in (4, 16, 64, 256, 1024, 4096):
        found = optimize.minimize(
            smooth, entries, (power,), jac=True, method='L-BFGS-B', options={'maxiter': 2000}
        )
        entries = found.x
    return of(entries)[0]


@pytest.mark.parametrize('cases', [20, exhaustive(500)])
def test_random_matrices_are_not_below_the_bound(cases):
    generator = np.random.default_rng(0)
    for _ in range(cases):
        n = int(generator.integers(1, 8))
        schema = Participation(n, *map(int, generator.integers(1, n + 2, size=2)))
        kind = generator.integers(3)
        rows = n + int(generator.integers(4))
        if kind == 0:  # Any matrix, not only square ones.
            matrix = generator.normal(size=(rows, n))
        elif kind == 1:  # Near what is best.
            root = np.linalg.inv(np.tril(np.ones((n, n)))) + np.eye(n)
            matrix = np.linalg.inv(root) * generator.uniform(0.9, 1.1, size=(n, n))
        else:
            matrix = np.tril(generator.uniform(size=(n, n))) + np.eye(n)
        workload = None
        if generator.integers(2):
            workload = np.tril(generator.normal(size=(n, n)))
        losses = _losses(matrix, schema, workload)
        for loss in ('max', 'rms'):
            bound = mechanisms.loss_lower_bound(schema, loss, workload)
            assert 0 <= bound <= losses[loss] * (1 + 1e-9)


@pytest.mark.parametrize('loss', ['max', 'rms'])
@pytest.mark.parametrize(
    'schema, workload',
    [
        ((4, 1, 4), None),
        ((5, 2, 3), None),
        ((5, 2, 3), mechanisms.workload.momentum(5, 0.8)),
        ((6, 6, 1), None),
        standard((6, 2, 3), None),
        standard((6, 3, 2), None),
    ],
)
def test_the_bound_is_nearly_the_least_loss_there_is(schema, workload, loss):
    schema = Participation(*schema)
    a = mechanisms.workload.matrix(workload, schema.rounds)
    best = _best_matrix(_signed_indicators(schema), a, loss)
    least = _losses(best, schema, workload)[loss]
    assert least * 0.99 <= mechanisms.loss_lower_bound(schema, loss, workload) <= least


@pytest.mark.parametrize(
    'schema, loss',
    [
        ((24, 6, 4), 'rms'),
        # With one participation BandMF with all bands is the best.
        ((20, 20, 1), 'max'),
        standard((24, 6, 4), 'max'),
        standard((48, 4, 12), 'rms'),
    ],
)
def test_banded_strategies_with_free_norms_are_nearly_the_best(schema, loss):
    schema = Participation(*schema)
    best = mechanisms.optimize_banded(schema, schema.min_separation, loss=loss, column_norms='free')
    known = best.max_loss(schema) if loss == 'max' else best.rms_loss(schema)
    assert known * 0.98 <= mechanisms.loss_lower_bound(schema, loss) <= known


def test_participation_in_every_round_needs_independent_noise():
    """By the inequality of Cauchy and Schwarz the RMS loss is the sum of sqrt(t / n)."""
    schema, rms = Participation(30, 1), np.sqrt(np.arange(31) / 30).sum()
    assert mechanisms.loss_lower_bound(schema, 'rms') == pytest.approx(rms, rel=1e-5)
    assert mechanisms.loss_lower_bound(schema, 'max') == pytest.approx(30, rel=1e-4)


@pytest.mark.parametrize(
    'schema, loss',
    [((600, 1, 600), 'rms'), ((300, 7, 30), 'rms'), ((300, 299, 2), 'rms')]
    + [
        standard(schema, loss)
        for schema, loss in (((300, 7, 30), 'max'), ((300, 40, 7), 'max'), ((150, 1, 9), 'rms'))
    ],
)
def test_many_rounds_are_solved_as_few(schema, loss, monkeypatch):
    """The bound of a scaled problem holds, and is not far from that of all rounds."""
    monkeypatch.setattr(lower_bound, '_MOST_ROUNDS', 48)
    monkeypatch.setattr(lower_bound, '_MOST_STATES', 96)
    monkeypatch.setattr(lower_bound, '_MOST', 120)
    schema = Participation(*schema)
    bound = mechanisms.loss_lower_bound(schema, loss)
    blt = mechanisms.optimize_blt(schema, 2, loss=loss, starts=2)
    identity = mechanisms.Identity(schema.rounds)
    known = min(getattr(mechanism, f'{loss}_loss')(schema) for mechanism in (blt, identity))
    assert known * 0.75 < bound <= known


@pytest.mark.standard
def test_too_many_patterns_are_replaced_by_fewer(monkeypatch):
    bound, schema = mechanisms.loss_lower_bound, Participation(30, 2, 6)
    usual, apart = bound(schema, 'rms'), bound(Participation(30, 5, 6), 'rms')
    monkeypatch.setattr(lower_bound, '_MOST_ADDITIONS', 1e3)
    assert bound(schema, 'rms') == apart < usual


def test_a_workload_of_zeros_has_no_loss():
    assert mechanisms.loss_lower_bound(Participation(3), 'max', np.zeros(3)) == 0


def test_a_workload_may_be_zero_in_all_rounds_that_a_coarse_problem_looks_at():
    schema, workload = Participation(12, 10), np.eye(12)[1]
    least = mechanisms.Identity(12).max_loss(schema, workload)
    assert 0.9 * least < mechanisms.loss_lower_bound(schema, 'max', workload) <= least
