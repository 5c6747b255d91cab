"""One list of mechanisms for all tests: a function of the number of rounds for each."""

import numpy as np
import pytest

from dpfl import mechanisms


def _banded(rounds, bands, sign=1.0):
    """Columns of different norms, entries of one sign or of both."""
    size = mechanisms.Identity(rounds).rounds  # Refuses what is no number of rounds.
    lag = np.subtract.outer(np.arange(size), np.arange(size))
    entries = sign ** np.abs(lag) * 0.6 ** np.abs(lag) * (1 + 0.1 * np.arange(size))
    return mechanisms.Banded.from_matrix(np.tril(entries), min(bands, size))


def _restarted(base, rounds):
    """Restarts in rounds 3, 5 and 9, if there are so many."""
    starts = [start for start in (3, 5, 9) if isinstance(rounds, int) and start < rounds]
    return mechanisms.Restarted(base(rounds if starts else 12), starts, rounds)


def _scaled(base, block_length):
    """Scales that rise and fall, in blocks; the last one goes on."""
    scale = [1.0, 0.8, 0.9, 1.2]
    return lambda rounds: mechanisms.ColumnScaled(base(rounds), scale, rounds, block_length)


def _blocks(rounds, falls=True):
    """Blocks begin in rounds 3 and 7, if there are so many; entries that fall, or of any size."""
    starts = tuple(start for start in (3, 7) if isinstance(rounds, int) and start < rounds)
    count = len(starts) + 1
    decay = [[0.9, 0.4], [0.8, 0.3], [0.7, 0.2]][:count]
    scale = [[0.3, 0.2], [0.2, 0.1], [0.1, 0.1]][:count]
    gain = [1.0, 0.9, 0.8] if falls else [1.0, 1.7, 0.6]
    if not falls:
        scale = [[0.3, 0.9]] * count
    return mechanisms.BlockBlt(rounds, starts, decay, scale, gain[:count])


FACTORIES = {
    'gaussian': mechanisms.Identity,
    'tree': mechanisms.BinaryTree,
    'tree_by_prefix_sums': lambda rounds: mechanisms.BinaryTree(rounds, released='prefix_sums'),
    'honaker_tree': mechanisms.HonakerTree,
    'honaker_tree_by_prefix_sums': lambda rounds: mechanisms.HonakerTree(rounds, 'prefix_sums'),
    'full_honaker_tree': mechanisms.FullHonakerTree,
    'completed_tree': lambda rounds: mechanisms.FullHonakerTree(rounds, completed=True),
    'restarted_tree': lambda rounds: _restarted(mechanisms.BinaryTree, rounds),
    'restarted_blt': lambda rounds: _restarted(
        lambda n: mechanisms.Blt(n, [0.9, 0.4], [0.2, 0.3]), rounds
    ),
    'column_scaled': _scaled(lambda n: mechanisms.Blt(n, [0.9, 0.4], [0.2, 0.3]), 2),
    'column_scaled_not_monotone': _scaled(lambda n: mechanisms.Blt(n, [0.9], [1.5]), 1),
    'banded': lambda rounds: _banded(rounds, 3),
    'banded_with_negative_entries': lambda rounds: _banded(rounds, 3, sign=-1.0),
    'banded_inverse': lambda rounds: mechanisms.BandedInverse.square_root(rounds, 4),
    'banded_inverse_not_monotone': lambda rounds: mechanisms.BandedInverse(rounds, [1, 0.6, -0.2]),
    'banded_inverse_with_negative_entries': lambda rounds: mechanisms.BandedInverse(
        rounds, [1, -0.9, 0.6, -0.1]
    ),
    'fichtenberger_toeplitz': mechanisms.BandedToeplitz.fichtenberger,
    'banded_toeplitz': lambda rounds: mechanisms.BandedToeplitz.fichtenberger(rounds, 4),
    'banded_toeplitz_not_monotone': lambda rounds: mechanisms.BandedToeplitz(
        rounds, [1.0, -0.5, 0.7]
    ),
    'blt': lambda rounds: mechanisms.Blt(rounds, [0.99, 0.7, 0.2], [0.2, 0.25, 0.05]),
    'blt_with_a_constant_buffer': lambda rounds: mechanisms.Blt(rounds, [1.0, 0.5], [0.05, 0.3]),
    'blt_not_monotone': lambda rounds: mechanisms.Blt(rounds, [0.9], [1.5]),
    'blt_without_buffers': lambda rounds: mechanisms.Blt(rounds, [], []),
    'block_blt': _blocks,
    'block_blt_not_monotone': lambda rounds: _blocks(rounds, falls=False),
    'column_scaled_block_blt': _scaled(_blocks, 2),
    'column_scaled_block_blt_not_monotone': _scaled(lambda n: _blocks(n, falls=False), 1),
}

every = pytest.mark.parametrize('make', FACTORIES.values(), ids=FACTORIES)


def quick_by_kernel(rounds):
    """A parameter for each mechanism; of those with one kind of kernel the first is quick."""
    kinds, parameters = set(), []
    for name, make in FACTORIES.items():
        kind = type(make(rounds).kernel())
        marks = [pytest.mark.standard] if kind in kinds else []
        parameters.append(pytest.param(make, id=name, marks=marks))
        kinds.add(kind)
    return parameters
