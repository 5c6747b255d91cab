import itertools

import numpy as np
import pytest

from dpfl import Participation
from dpfl.mechanisms.optimize.lower_bound import Chain
from tests import oracles


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
