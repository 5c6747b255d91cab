import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from tests.mechanisms.optimize import least_loss

_LOSSES = ('max', 'rms')
_SCHEMAS = [Participation(48, b, 4) for b in (4, 12, 24)]


def _blt_losses(schemas, loss, buffers=1):
    return [
        getattr(mechanisms.optimize_blt(schema, buffers, loss), f'{loss}_loss')(schema)
        for schema in schemas
    ]


def _worst(matrix, schemas, blts, loss):
    """The worst relative loss of any C, by brute force."""
    ratios = [
        least_loss.losses(matrix, schema)[loss] / blt
        for schema, blt in zip(schemas, blts, strict=True)
    ]
    return max(ratios)


def _random_schemas(generator):
    n = int(generator.integers(1, 8))
    return [
        Participation(n, *map(int, generator.integers(1, n + 2, size=2)))
        for _ in range(int(generator.integers(1, 4)))
    ]


@pytest.mark.parametrize('cases', [3, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_random_matrices_are_not_below_the_bound(cases):
    generator = np.random.default_rng(cases)
    for _ in range(cases):
        schemas = _random_schemas(generator)
        n = schemas[0].rounds
        matrices = [
            generator.normal(size=(n + 2, n)),
            np.tril(generator.uniform(size=(n, n))) + np.eye(n),
            mechanisms.optimize_robust_blt(schemas, num_buffers=1).strategy_matrix(),
        ]
        for loss in _LOSSES:
            bound = mechanisms.relative_loss_lower_bound(schemas, 1, loss)
            blts = _blt_losses(schemas, loss)
            for matrix in matrices:
                assert 0 < bound <= _worst(matrix, schemas, blts, loss) * (1 + 1e-9)


@pytest.mark.parametrize('loss', _LOSSES)
@pytest.mark.parametrize(
    'separations',
    [(2, 4), pytest.param((1, 3), marks=pytest.mark.standard), (2, 3, 5)],
)
def test_the_bound_is_nearly_the_least_worst_relative_loss(separations, loss):
    schemas = [Participation(6, b, 3) for b in separations]
    blts = _blt_losses(schemas, loss)
    patterns = [
        least_loss.signed_indicators(schema) / blt
        for schema, blt in zip(schemas, blts, strict=True)
    ]
    matrix = least_loss.best_matrix(np.concatenate(patterns), np.tril(np.ones((6, 6))), loss)
    least = _worst(matrix, schemas, blts, loss)
    bound = mechanisms.relative_loss_lower_bound(schemas, 1, loss)
    assert least * 0.97 <= bound <= least * (1 + 1e-9)


@pytest.mark.parametrize(
    'loss',
    [
        pytest.param('max', marks=pytest.mark.standard),
        pytest.param('rms', marks=pytest.mark.exhaustive),
    ],
)
def test_it_is_above_the_bound_of_each_schema_and_below_robust_designs(loss):
    bound = mechanisms.relative_loss_lower_bound(_SCHEMAS, 2, loss)
    blts = _blt_losses(_SCHEMAS, loss, 2)
    alone = [
        mechanisms.loss_lower_bound(schema, loss) / blt
        for schema, blt in zip(_SCHEMAS, blts, strict=True)
    ]
    assert bound > max(alone) * 1.01
    design = mechanisms.optimize_robust_scaled_blt(_SCHEMAS, None, 2, loss, 'worst')
    assert bound < mechanisms.relative_losses(design, _SCHEMAS, 2, loss).max() < bound * 1.15


@pytest.mark.parametrize('loss', _LOSSES)
def test_one_schema_has_its_own_bound(loss):
    schema = _SCHEMAS[1]
    (blt,) = _blt_losses([schema], loss, 2)
    bound = mechanisms.relative_loss_lower_bound([schema, schema], 2, loss)
    assert bound == pytest.approx(mechanisms.loss_lower_bound(schema, loss) / blt, rel=1e-6)


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(schemas=[]), 'schemas: must be schemas, at least one'),
        (dict(schemas=[Participation(5, 2), Participation(6, 2)]), 'must all have the same rounds'),
        (dict(loss='mean'), 'loss=mean: must be one of max, rms'),
        (dict(num_buffers=0), 'num_buffers=0: must be an integer >= 1'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(errors.ArgumentError, match=message):
        mechanisms.relative_loss_lower_bound(**{'schemas': _SCHEMAS, **arguments})
