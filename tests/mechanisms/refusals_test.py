"""What no mechanism and no part of one can be made of is refused in one line with its name."""

import numpy as np
import pytest

from dpfl import Participation, errors, mechanisms
from dpfl.mechanisms import registry, workload
from dpfl.mechanisms.discretization import Discretization
from dpfl.mechanisms.hardened.discrete_gaussian import DiscreteGaussian
from dpfl.mechanisms.sensitivities import matrix_sensitivity

_TREE, _NAN = mechanisms.BinaryTree(8), float('nan')
_IDENTITY, _BLT = mechanisms.Identity(4), mechanisms.Blt(4, [0.5], [0.1])
_BLOCKS = dict(rounds=8, starts=(3,), decay=[[0.5], [0.5]], scale=[[0.1], [0.1]], gain=[1.0, 1.0])

# How each is made, with arguments that are good.
_DISCRETIZATION = Discretization(10.0, 100, 1.0)
_SCHEMA = Participation(10, 5)
_MADE = {
    'banded': (mechanisms.Banded, dict(diagonals=[[1.0, 0.0], [1.0, 0.5]])),
    'from_matrix': (mechanisms.Banded.from_matrix, dict(matrix=np.eye(3), bands=3)),
    'banded_toeplitz': (mechanisms.BandedToeplitz, dict(rounds=5, coefficients=[1.0, 0.5])),
    'banded_inverse': (
        mechanisms.BandedInverse,
        dict(rounds=1000, inverse_coefficients=[1, -0.5]),
    ),
    'power': (mechanisms.BandedInverse.fractional_power, dict(rounds=5, bands=3, power=0.5)),
    'blt': (mechanisms.Blt, dict(rounds=5, decay=[0.5], scale=[0.1])),
    'block_blt': (mechanisms.BlockBlt, _BLOCKS),
    'large_block_blt': (mechanisms.BlockBlt, _BLOCKS | dict(scale=[[1e60], [1e60]])),
    'column_scaled': (
        mechanisms.ColumnScaled,
        dict(base=_BLT, scale=[1.0], rounds=4, block_length=1),
    ),
    'restarted': (mechanisms.Restarted, dict(base=_TREE, starts=(2,), rounds=8)),
    'every': (mechanisms.Restarted.every, dict(base=_TREE, first=1, every=4)),
    'optimize_banded': (mechanisms.optimize_banded, dict(participation=_SCHEMA, bands=3)),
    'optimize_blt': (mechanisms.optimize_blt, dict(participation=_SCHEMA, num_buffers=2)),
    'momentum': (workload.momentum, dict(rounds=4, beta=0.5)),
    'workload': (workload.matrix, dict(workload=None, rounds=4)),
    'lower_bound': (mechanisms.loss_lower_bound, dict(participation=_SCHEMA)),
    'heaviest_pattern': (
        matrix_sensitivity.heaviest_pattern,
        dict(weights=np.ones(3), participation=Participation(3)),
    ),
    'choose': (
        mechanisms.choose,
        dict(participation=Participation(1), dimension=10, memory_limit=1),
    ),
    'storage': (
        mechanisms.choose_noise_storage,
        dict(kernel=_IDENTITY.kernel(), dimension=10, memory_limit=1),
    ),
    'discretization': (Discretization, dict(scale=10.0, dimension=100, clip_norm=1.0)),
    'for_bits': (
        Discretization.for_bits,
        dict(bits=20, clients_per_round=6500, dimension=1000, clip_norm=1.0),
    ),
    'modulus': (_DISCRETIZATION.modulus, dict(clients_per_round=1)),
    'bits_per_parameter': (_DISCRETIZATION.bits_per_parameter, dict(clients_per_round=1)),
    'discrete_gaussian': (DiscreteGaussian, dict(stddev=3.0)),
}

_NOT_INTEGERS = 'starts=.*: must be (an integer|a list of integers)'
_REFUSED = [
    ('banded', 'diagonals', [1.0, 1.0], r'has shape \(2,\), must have \[rounds, bands\]'),
    ('banded', 'diagonals', np.ones((2, 3)), r'has shape \(2, 3\), .* 1 <= bands <= rounds'),
    ('banded', 'diagonals', np.ones((2, 2)), r'entry 1.0 at \[0, 1\], must have 0 left of'),
    ('banded', 'diagonals', [[1.0, 0.0], [0.0, 1.0]], r'has 0 at \[1, 0\]'),
    ('banded', 'diagonals', [[1.0, 0.0], [-1e-150, 1.0]], 'where each must be >= 1e-100'),
    ('banded', 'diagonals', [[1.0, 0.0], [1.0, _NAN]], 'not finite'),
    ('banded', 'diagonals', np.full((3, 1), 1e170), r'finite number of at most 1e\+100'),
    ('banded', 'diagonals', [[1.0], [1.0, 2.0]], 'must be a table of numbers'),
    ('from_matrix', 'bands', 4, 'bands=4: must be an integer >= 1 and <= 3'),
    ('banded_toeplitz', 'coefficients', [0.0, 1.0], 'must start with a number other than 0'),
    ('banded_toeplitz', 'coefficients', [1e-200, 1e-210], 'the first must be >= 1e-100'),
    ('banded_toeplitz', 'coefficients', [1.0, -1e160], r'finite numbers, at most 1e\+100'),
    ('banded_inverse', 'inverse_coefficients', [], 'must have at least 1 entry, the first 1'),
    ('banded_inverse', 'inverse_coefficients', [0.5, 0.1], 'the first 1'),
    ('banded_inverse', 'inverse_coefficients', [[1.0]], 'must be a list of finite numbers'),
    ('banded_inverse', 'inverse_coefficients', [1, -5], 'rounds=1000, must stay below 1e150'),
    ('power', 'bands', 10**13, 'bands=10000000000000: must be an integer >= 1 and <= 4194304'),
    ('power', 'power', 1.5, 'power=1.5: must be a finite number >= 0 and <= 1'),
    ('blt', 'scale', [0.1, 0.2], r'decay=\[0.5\]: must have as many entries as scale \(2\)'),
    ('blt', 'decay', [], r'decay=\[\]: must have as many entries as scale \(1\), at most 1024'),
    ('blt', 'decay', [1.1], r'decay=\[1.1\]: each entry must be within \[0, 1\]'),
    ('blt', 'decay', [-0.1], r'decay=\[-0.1\]: each entry must be within \[0, 1\]'),
    ('blt', 'scale', [-0.1], r'scale=\[-0.1\]: each entry must be >= 0'),
    ('blt', 'decay', [_NAN], 'decay=.*: must be a list of finite numbers'),
    ('blt', 'scale', [1e200], r'finite numbers, at most 1e\+100'),
    ('block_blt', 'starts', (0,), 'starts=0: must be an integer >= 1'),
    ('block_blt', 'starts', (9,), r'starts=\(9,\): must increase within 1 .. 7'),
    ('block_blt', 'starts', 3, 'starts=3: must be a list of integers'),
    ('block_blt', 'decay', [[1.1], [0.5]], 'decay=.*each entry must be within'),
    ('block_blt', 'decay', [[0.5]], r'decay: has shape \[1, 1\], must have \[2, any\]'),
    ('block_blt', 'scale', [[0.5, 1.0], [1.0, 2.0]], r'scale: has shape \[2, 2\]'),
    ('block_blt', 'scale', 'x', 'scale: must be numbers'),
    ('block_blt', 'scale', [[-0.1], [0.1]], 'scale=.*: each entry must be >= 0'),
    ('block_blt', 'gain', [1.0, 0.0], 'gain=.*each entry must be >= 1e-100'),
    ('large_block_blt', 'gain', [1.0, 1e60], 'its product with the scales of its block <= 1e'),
    ('column_scaled', 'base', None, 'base: must be a Blt or a BlockBlt'),
    ('column_scaled', 'base', _IDENTITY, 'base: must be a Blt or a BlockBlt'),
    ('column_scaled', 'scale', [], 'scale: must have at least 1 entry'),
    ('column_scaled', 'scale', [1.0, 0.0], 'at least 1 entry, each >= 1e-50'),
    ('column_scaled', 'scale', [1e60], r'and <= 1e\+50'),
    ('column_scaled', 'block_length', 0, 'block_length=0: must be an integer >= 1'),
    ('restarted', 'base', {'mechanism': 'tree', 'rounds': 8}, 'base=.*: must be a mechanism'),
    ('restarted', 'base', mechanisms.BinaryTree(4), 'has 4 rounds, must have at least 6'),
    ('restarted', 'base', mechanisms.FullHonakerTree(8), 'must be .* that can have fewer rounds'),
    ('restarted', 'starts', (3, 3), r'starts=\(3, 3\): must increase within 1 .. 7'),
    ('restarted', 'starts', (0,), _NOT_INTEGERS),
    ('restarted', 'starts', (2.5,), _NOT_INTEGERS),
    ('every', 'first', -1, 'first=-1: must be an integer >= 0'),
    ('every', 'every', 0, 'every=0: must be an integer >= 1'),
    ('every', 'rounds', 10**13, 'rounds=10000000000000: must be an integer >= 1 and <= 4194304'),
    ('momentum', 'rounds', 10**13, 'rounds=10000000000000: must be .* <= 4194304'),
    ('optimize_banded', 'bands', 6, 'bands=6: must be an integer >= 1 and <= 5'),
    ('optimize_banded', 'column_norms', 'any', 'column_norms=any: must be one of equal, free'),
    ('optimize_banded', 'workload', np.tril(np.ones((10, 10)), -1), r'workload: has 0 at \[0, 0\]'),
    ('optimize_blt', 'starts', 0, 'starts=0: must be an integer >= 1 and <= 8'),
    ('optimize_blt', 'num_buffers', 21, 'num_buffers=21: must be an integer >= 1'),
    ('workload', 'workload', np.ones(3), 'workload: has shape .3,., must have at least 4 rounds'),
    ('workload', 'workload', np.ones((4, 4)), 'must be lower-triangular'),
    ('workload', 'workload', [1.0, _NAN, 1.0, 1.0], 'workload: must have finite entries'),
    ('lower_bound', 'workload', [1.0, _NAN] + [1.0] * 8, 'workload: must have finite entries'),
    ('lower_bound', 'loss', 'mean', 'loss=mean: must be one of max, rms'),
    ('heaviest_pattern', 'weights', np.ones(2), 'weights=.*: must be at least 3 numbers'),
    ('heaviest_pattern', 'weights', np.array([1, 2, -1]), 'weights=.*, each >= 0'),
    ('choose', 'dimension', 0, 'dimension=0: must be an integer >= 1'),
    ('choose', 'memory_limit', _NAN, 'memory_limit=nan: must be a finite number >= 0'),
    ('storage', 'dimension', 0, 'dimension=0: must be an integer >= 1'),
    ('storage', 'memory_limit', -1, 'memory_limit=-1: must be a finite number >= 0'),
    ('discretization', 'scale', 0.0, 'scale=0.0: must be a finite number >= 1e-60'),
    ('discretization', 'dimension', 1, 'dimension=1: must be an integer >= 2'),
    ('discretization', 'dimension', 2**60, 'must be an integer >= 2 and <= 281474976710656'),
    ('discretization', 'clip_norm', 0.0, 'clip_norm=0.0: must be'),
    ('discretization', 'alpha', 0.0, 'alpha=0.0: must be a finite number > 0 and < 1'),
    ('discretization', 'alpha', 1.0, 'alpha=1.0: must be a finite number > 0 and < 1'),
    ('for_bits', 'bits', 13, 'bits=13: must be at least 14 for clients_per_round=6500'),
    ('for_bits', 'bits', 63, 'bits=63: must be an integer >= 1 and <= 62'),
    ('for_bits', 'clients_per_round', 0, 'clients_per_round=0: must be an integer >= 1'),
    ('modulus', 'clients_per_round', 0, 'clients_per_round=0: must be an integer >= 1'),
    ('bits_per_parameter', 'clients_per_round', 0, 'clients_per_round=0: must be an integer >= 1'),
    ('discrete_gaussian', 'stddev', 0.0, 'stddev=0.0: must be a finite number >= 0.000976562'),
    ('discrete_gaussian', 'stddev', 2.0**51, 'stddev=.*: must be a finite number .* <= 1.1259e'),
    ('discrete_gaussian', 'strips', 5, 'strips=5: must reach 2 standard deviations'),
    ('discrete_gaussian', 'strips', 1, 'strips=1: must be an integer >= 2'),
]


@pytest.mark.parametrize('name', _MADE)
def test_bad_arguments_are_named(name):
    make, arguments = _MADE[name]
    make(**arguments)
    refused = [row for row in _REFUSED if row[0] == name]
    assert refused
    for _, argument, value, message in refused:
        with pytest.raises(errors.ArgumentError, match=message) as raised:
            make(**{**arguments, argument: value})
        assert '\n' not in str(raised.value)


@pytest.mark.parametrize(
    'name, given, message',
    [
        ('tree', {'decay': [0.5]}, 'decay: mechanism=tree does not take this parameter'),
        ('banded', {}, 'mechanism=banded: needs strategy'),
        ('blt', {'decay': [0.5]}, 'mechanism=blt: needs strategy, or decay and scale'),
        (
            'blt',
            {'strategy': mechanisms.Blt(3, [0.5], [0.1]), 'decay': [0.5], 'scale': [0.1]},
            'mechanism=blt: needs strategy, or decay and scale',
        ),
        ('blt', {'strategy': mechanisms.Identity(3)}, 'strategy=gaussian: must be a blt mechanism'),
        ('fichtenberger_toeplitz', {'bands': 0}, 'bands=0: must be an integer >= 1'),
        ('fichtenberger_toeplitz', {'bands': 10**13}, 'bands=1.*: must be .* <= 4194304'),
    ],
)
def test_other_parameters_of_a_name_are_refused(name, given, message):
    with pytest.raises(errors.ArgumentError, match=message):
        registry.ENTRIES[name].construct(3, **given)
