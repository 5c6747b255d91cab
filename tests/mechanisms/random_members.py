"""Random small members of every family of mechanisms: functions of a generator and rounds."""

import numpy as np

from dpfl import mechanisms


def _coefficients(rng, size):
    """The first is 1; the others have any sign, fall, or fall with a ripple."""
    kind, lags = rng.integers(3), np.arange(size)
    if kind == 0:
        coefficients = rng.normal(size=size) * rng.uniform(0.1, 1)
    elif kind == 1:
        coefficients = np.sort(rng.random(size))[::-1].copy()
    else:
        ripple = rng.uniform(0.1, 1.5) * np.cos(lags * rng.uniform(0, np.pi))
        coefficients = rng.uniform(0.5, 1) ** lags * (1 + ripple)
    coefficients[0] = 1.0
    return coefficients


def gaussian(rng, rounds):
    return mechanisms.Identity(rounds)


def tree(rng, rounds):
    kinds = [mechanisms.BinaryTree, mechanisms.HonakerTree]
    return kinds[rng.integers(2)](rounds, ['nodes', 'prefix_sums'][rng.integers(2)])


def full_honaker_tree(rng, rounds):
    return mechanisms.FullHonakerTree(rounds, bool(rng.integers(2)))


def banded(rng, rounds):
    entries = rng.normal(size=(rounds, rounds))
    if rng.random() < 0.3:
        entries = np.abs(entries)
    matrix = np.tril(entries, -1) + np.diag(rng.uniform(0.5, 2, rounds))
    return mechanisms.Banded.from_matrix(matrix, int(rng.integers(1, rounds + 1)))


def banded_toeplitz(rng, rounds):
    return mechanisms.BandedToeplitz(rounds, _coefficients(rng, int(rng.integers(1, 10))))


def banded_inverse(rng, rounds):
    """Any inverse coefficients, those of a non-negative C, and those of complex decays."""
    kind, size = rng.integers(3), int(rng.integers(1, 6))
    if kind == 0:
        return mechanisms.BandedInverse(rounds, _coefficients(rng, size))
    if kind == 1:
        shares = rng.dirichlet(np.ones(size + 1))[:size]
        return mechanisms.BandedInverse(rounds, np.append(1.0, -shares))
    angles = rng.uniform(0, np.pi, 2) * rng.integers(0, 2, 2)
    roots = rng.uniform(0.2, 1, 2) * np.exp(1j * angles)
    return mechanisms.BandedInverse(rounds, np.real(np.poly([*roots, *roots.conj()])))


def monotone_blt(rng, rounds):
    """Clustered, coinciding and constant buffers, over six decades of 1 - decay."""
    buffers = int(rng.integers(1, 8))
    rates = np.exp(rng.uniform(-14, -0.02, size=buffers))
    if rng.random() < 0.2:
        rates[0] = 0.0
    if rng.random() < 0.3:
        rates[-1] = rates[0]
    if rng.random() < 0.3:
        rates[-1] = min(rates[0] * (1 + 1e-10), 1.0)
    scale = np.exp(rng.uniform(-12, 0, size=buffers))
    if buffers > 1 and rng.random() < 0.2:
        scale[0] = 0.0
    return mechanisms.Blt(rounds, 1 - rates, scale * rng.uniform(0.1, 1) / scale.sum())


def blt(rng, rounds):
    """Buffers of any size, whose coefficients may rise."""
    buffers = int(rng.integers(0, 4))
    return mechanisms.Blt(rounds, rng.random(buffers), rng.exponential(0.7, buffers))


def block_blt(rng, rounds):
    starts = (np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1).tolist()
    blocks, d = len(starts) + 1, int(rng.integers(1, 4))
    return mechanisms.BlockBlt(
        rounds,
        starts,
        rng.random((blocks, d)),
        rng.uniform(0, rng.choice([0.4, 1.5]), (blocks, d)),
        rng.uniform(0.4, 2, blocks),
    )


def column_scaled(rng, rounds, *bases):
    bases = bases or (monotone_blt, blt)
    base = bases[rng.integers(len(bases))](rng, rounds)
    blocks = int(rng.integers(1, 10))
    scale = np.exp(rng.normal(size=blocks) * rng.choice([0.05, 0.2, 1]))
    return mechanisms.ColumnScaled(base, scale, rounds, int(rng.integers(1, 6)))


def column_scaled_block_blt(rng, rounds):
    return column_scaled(rng, rounds, block_blt)


def falling_scales(rng, rounds):
    scale = np.sort(rng.random(int(rng.integers(1, 9))) + 0.1)[::-1]
    base = monotone_blt(rng, rounds)
    return mechanisms.ColumnScaled(base, scale, rounds, int(rng.integers(1, 4)))


def restarted(rng, rounds, *bases):
    bases = bases or (tree, banded, banded_toeplitz, banded_inverse, monotone_blt)
    base = bases[rng.integers(len(bases))](rng, rounds)
    starts = np.flatnonzero(rng.random(rounds - 1) < 0.3) + 1
    return mechanisms.Restarted(base, starts, rounds)


def restarted_blt(rng, rounds):
    return restarted(rng, rounds, blt)


def restarted_monotone(rng, rounds):
    """Restarts of restarts, too."""
    return restarted(rng, rounds, gaussian, tree, monotone_blt, restarted_monotone)
