"""Largest products of parts of a table, and their numbers: all alignments one by one."""

import itertools

import numpy as np
import pytest

from dpfl.accounting.measured import products

_SIZES = (7, 2, 6)
_OF_TENSORS = [np.repeat(range(3), _SIZES) == number for number in range(3)]


def _table(rounds):
    return np.random.default_rng(rounds).standard_normal((rounds, sum(_SIZES)))


def _shifts(part, other):
    """Products of [rounds, k] with [rounds, n], at each circular shift of the second one."""
    for shift in range(other.shape[1]):
        aligned = np.roll(other, -shift, axis=1)[:, : part.shape[1]]
        yield float(np.sum(part * aligned) / np.linalg.norm(part))


def _all_products(table, lags, pairs):
    half = table.shape[1] // 2
    first, second = table[:, :half], table[:, half : 2 * half]
    found = {'halves': [((), value) for value in _shifts(first, second)]}
    found['tensors'] = [
        ((min(pair), max(pair)), value)
        for pair in pairs
        for value in _shifts(table[:, _OF_TENSORS[pair[1]]], table[:, _OF_TENSORS[pair[0]]])
    ]
    if len(table) > 1:
        found['halves of a round'] = [
            ((number,), value)
            for number, row in enumerate(table)
            for value in _shifts(row[None, :half], row[None, half : 2 * half])
        ]
        rounds = [
            ((first, second), list(_shifts(table[[first]], table[[second]])))
            for first, second in itertools.combinations(range(len(table)), 2)
        ]
        found['repetition'] = [(where, values[0]) for where, values in rounds]
        found['shift'] = [
            (where, value)
            for where, values in rounds
            if where[1] - where[0] in lags
            for value in values[1:]
        ]
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
    monkeypatch.setattr(products, '_MOST_NUMBERS', budget)
    monkeypatch.setattr(products, '_LEAST_NUMBERS', 80)
    expected = _all_products(_table(rounds), lags, pairs)
    found = products.largest(_table(rounds), _OF_TENSORS)
    assert found.keys() == expected.keys()
    assert products.counts(rounds, _SIZES) == {
        name: len(values) for name, values in expected.items()
    }
    for name, values in expected.items():
        where, value = max(values, key=lambda pair: abs(pair[1]))
        assert found[name] == (where, pytest.approx(value, rel=1e-9)), name


def test_a_table_that_is_not_finite_has_no_largest_product():
    table = _table(4)
    table[1, 3] = np.nan
    assert all(np.isnan(value) for _, value in products.largest(table, _OF_TENSORS).values())
    table[1] = 0.0
    assert all(np.isfinite(value) for _, value in products.largest(table, _OF_TENSORS).values())


def test_one_coordinate_has_no_alignments():
    assert products.counts(1, (1,)) == {}
    assert products.counts(3, (1,)) == {'repetition': 3}
    assert products.largest(np.ones((1, 1)), [np.array([True])]) == {}
