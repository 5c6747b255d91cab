"""Mechanisms: strategy matrices, their sensitivity, error, and how to stream their noise.

NumPy and SciPy only.
"""

from dpfl.mechanisms import registry, workload
from dpfl.mechanisms.banded import Banded, BandedInverse, BandedToeplitz
from dpfl.mechanisms.base import Identity, Mechanism
from dpfl.mechanisms.block_blt import BlockBlt
from dpfl.mechanisms.blt import Blt
from dpfl.mechanisms.choose import Candidate, choose
from dpfl.mechanisms.column_scaled import ColumnScaled
from dpfl.mechanisms.discretization import Discretization
from dpfl.mechanisms.kernels import (
    MOST_STATE_BYTES,
    BandedProduct,
    BandedSolve,
    Kernel,
    NoiseStorage,
    StateSpace,
    choose_noise_storage,
    stream,
)
from dpfl.mechanisms.optimize.banded import optimize_banded
from dpfl.mechanisms.optimize.banded_inverse import optimize_banded_inverse
from dpfl.mechanisms.optimize.banded_toeplitz import optimize_banded_toeplitz
from dpfl.mechanisms.optimize.block_blt import optimize_block_blt
from dpfl.mechanisms.optimize.blt import optimize_blt
from dpfl.mechanisms.optimize.lower_bound import loss_lower_bound
from dpfl.mechanisms.optimize.scaled_blt import optimize_scaled_blt
from dpfl.mechanisms.registry import from_dict, load, save
from dpfl.mechanisms.restarts import Restarted
from dpfl.mechanisms.sensitivities.matrix_sensitivity import Sensitivity
from dpfl.mechanisms.tree import BinaryTree, FullHonakerTree, HonakerTree

__all__ = [
    'Banded',
    'BandedInverse',
    'BandedProduct',
    'BandedSolve',
    'BandedToeplitz',
    'BinaryTree',
    'BlockBlt',
    'Blt',
    'Candidate',
    'ColumnScaled',
    'Discretization',
    'FullHonakerTree',
    'HonakerTree',
    'Identity',
    'Kernel',
    'MOST_STATE_BYTES',
    'Mechanism',
    'NoiseStorage',
    'Restarted',
    'Sensitivity',
    'StateSpace',
    'choose',
    'choose_noise_storage',
    'from_dict',
    'load',
    'loss_lower_bound',
    'optimize_banded',
    'optimize_banded_inverse',
    'optimize_banded_toeplitz',
    'optimize_block_blt',
    'optimize_blt',
    'optimize_scaled_blt',
    'registry',
    'save',
    'stream',
    'workload',
]

FOR_ROOMS = (
    'discretization',
    'hardened.discrete_gaussian',
    'hardened.stream',
    'kernels',
    'mechanism_file',
    'named',
    'registry',
    'restarts',
    'rounding',
    'sensitivities.matrix_sensitivity',
    'sensitivities.pattern_sensitivity',
)
