"""Moments of random patterns against enumeration, and the lower bound of losses that they prove."""

import functools
import itertools

import numpy as np
import pytest

from dpfl import Participation, mechanisms
from dpfl.mechanisms.optimize import lower_bound
from dpfl.mechanisms.optimize.lower_bound import Chain
from tests import mechanism_cases, oracles
from tests.mechanisms.optimize import least_loss


def _random_chain(generator, participations, cells):
    step = np.triu(generator.exponential(size=(participations - 1, cells, cells)))
    step /= step.sum(axis=2, keepdims=True)
    start = generator.dirichlet(np.ones(cells))
    return Chain(start, step, step * generator.uniform(size=step.shape))


def _by_enumeration(chain, rounds, separation):
    """The mean of u u^T over all paths and signs of a chain with one offset in each cell."""
    moments = np.zeros((rounds, rounds))
    drawn = set()
    paths = itertools.product(range(chain.cells), repeat=chain.participations)
    for path in paths:
        probability = chain.start[path[0]]
        same = np.eye(len(path))
        for p, (i, j) in enumerate(itertools.pairwise(path)):
            probability *= chain.step[p, i, j]
            if not probability:
                break
            share = chain.kept[p, i, j] / chain.step[p, i, j]
            same[: p + 1, p + 1] = same[p + 1, : p + 1] = same[: p + 1, p] * share
        if not probability:
            continue
        rows = [p * separation + s for p, s in enumerate(path) if p * separation + s < rounds]
        drawn.add(tuple(rows))
        moments[np.ix_(rows, rows)] += probability * same[: len(rows), : len(rows)]
    return moments, drawn


@pytest.mark.parametrize('seed', range(12))
def test_moments_are_means_over_admitted_patterns(seed):
    generator = np.random.default_rng(seed)
    rounds, separation = generator.integers(1, 12), generator.integers(1, 5)
    participations = generator.integers(1, 4)
    offsets = generator.integers(1, 5)
    chain = _random_chain(generator, participations, offsets)
    expected, drawn = _by_enumeration(chain, rounds, separation)
    schema = Participation(int(rounds), int(separation), int(participations))
    assert drawn <= {*oracles.patterns(schema), ()}
    np.testing.assert_allclose(chain.moments(rounds, separation, offsets), expected, atol=1e-14)


@pytest.mark.parametrize('seed', range(12))
def test_moments_of_cells_are_those_of_the_chain_of_their_offsets(seed):
    """A chain of cells is a chain of offsets: the place is kept in a cell, and fresh in another."""
    generator = np.random.default_rng(seed)
    cells, participations = generator.integers(1, 4), generator.integers(1, 4)
    offsets = cells + generator.integers(0, 4)
    chain = _random_chain(generator, participations, cells)
    edges = np.arange(cells + 1) * offsets // cells
    cell = np.repeat(np.arange(cells), np.diff(edges))
    place = 1 / np.diff(edges)[cell]
    share = np.where(cell[:, None] == cell, np.eye(offsets), place)
    fine = Chain(
        chain.start[cell] * place,
        chain.step[:, cell][:, :, cell] * share,
        chain.kept[:, cell][:, :, cell] * share,
    )
    rounds, separation = generator.integers(1, 15), generator.integers(1, 6)
    np.testing.assert_allclose(
        chain.moments(rounds, separation, offsets),
        fine.moments(rounds, separation, offsets),
        atol=1e-14,
    )


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


_LOSSES = ('max', 'rms')
_bound = functools.cache(mechanisms.loss_lower_bound)


def _least_loss(schema, loss, workload=None):
    """The least loss of all mechanisms by another method."""
    a = mechanisms.workload.matrix(workload, schema.rounds)
    root = least_loss.best_matrix(least_loss.signed_indicators(schema), a, loss)
    return least_loss.losses(root, schema, workload)[loss]


@pytest.mark.parametrize(
    'all_rounds', [(1, 3, 4), pytest.param((5, 7), marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize('make', mechanism_cases.FACTORIES.values(), ids=mechanism_cases.FACTORIES)
def test_no_mechanism_is_below_the_bound(make, all_rounds):
    for rounds in all_rounds:
        matrix = make(rounds).strategy_matrix()
        for schema in oracles.small_schemas(rounds):
            truth = least_loss.losses(matrix, schema)
            for loss in _LOSSES:
                assert _bound(schema, loss) <= truth[loss] * (1 + 1e-12)


@pytest.mark.parametrize('cases', [20, pytest.param(500, marks=pytest.mark.exhaustive)])
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
        losses = least_loss.losses(matrix, schema, workload)
        for loss in _LOSSES:
            bound = mechanisms.loss_lower_bound(schema, loss, workload)
            assert 0 <= bound <= losses[loss] * (1 + 1e-9)


@pytest.mark.parametrize('loss', _LOSSES)
@pytest.mark.parametrize(
    'schema',
    [
        (4, 1, 4),
        (5, 2, 3),
        pytest.param((6, 2, 3), marks=pytest.mark.standard),
        pytest.param((6, 3, 2), marks=pytest.mark.standard),
        (6, 6, 1),
    ],
)
def test_the_bound_is_nearly_the_least_loss_there_is(schema, loss):
    schema = Participation(*schema)
    least = _least_loss(schema, loss)
    assert least * 0.992 <= _bound(schema, loss) <= least


def test_the_bound_of_another_workload_is_nearly_the_least_loss():
    schema = Participation(5, 2, 3)
    workload = mechanisms.workload.momentum(5, 0.8)
    least = _least_loss(schema, 'rms', workload)
    assert least * 0.99 <= mechanisms.loss_lower_bound(schema, 'rms', workload) <= least


@pytest.mark.parametrize(
    'schema, loss',
    [
        ((24, 6, 4), 'rms'),
        pytest.param((24, 6, 4), 'max', marks=pytest.mark.standard),
        pytest.param((48, 4, 12), 'rms', marks=pytest.mark.standard),
        pytest.param((48, 4, 12), 'max', marks=pytest.mark.standard),
    ],
)
def test_banded_strategies_with_free_norms_are_nearly_the_best(schema, loss):
    schema = Participation(*schema)
    best = mechanisms.optimize_banded(schema, schema.min_separation, loss=loss, column_norms='free')
    known = best.max_loss(schema) if loss == 'max' else best.rms_loss(schema)
    assert known * 0.98 <= _bound(schema, loss) <= known


def test_one_participation_is_the_bound_that_is_known():
    """With one participation, and rounds of any number: BandMF with all bands is the best."""
    schema = Participation(20, 20, 1)
    best = mechanisms.optimize_banded(schema, 20, loss='max').max_loss(schema)
    assert best * 0.998 <= _bound(schema, 'max') <= best
    assert _bound(Participation(20, 50, 7), 'max') == _bound(schema, 'max')


def test_participation_in_every_round_needs_independent_noise():
    """By the inequality of Cauchy and Schwarz the RMS loss is the sum of sqrt(t / n)."""
    schema = Participation(30, 1)
    assert _bound(schema, 'rms') == pytest.approx(np.sqrt(np.arange(31) / 30).sum(), rel=1e-5)
    assert _bound(schema, 'max') == pytest.approx(30, rel=1e-4)


@pytest.mark.parametrize(
    'schema',
    [(600, 1, 600), (300, 7, 30), (300, 299, 2)]
    + [
        pytest.param(schema, marks=pytest.mark.standard)
        for schema in ((300, 40, 7), (400, 30, 3), (150, 1, 9))
    ],
)
@pytest.mark.parametrize('loss', ['rms', pytest.param('max', marks=pytest.mark.standard)])
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
    monkeypatch.setattr(lower_bound, '_MOST_ADDITIONS', 1e3)
    schema = Participation(60, 2, 10)
    fewer = mechanisms.loss_lower_bound(schema, 'rms')
    assert fewer == _bound(Participation(60, 6, 10), 'rms')
    assert fewer <= _bound(schema, 'rms')


def test_a_workload_of_zeros_has_no_loss_and_an_unknown_loss_is_refused():
    assert mechanisms.loss_lower_bound(Participation(3), 'max', np.zeros(3)) == 0
    with pytest.raises(ValueError, match='loss'):
        mechanisms.loss_lower_bound(Participation(3), 'mean')
