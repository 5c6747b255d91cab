"""The least loss of all mechanisms of few rounds, by brute force."""

import math

import numpy as np
from scipy import optimize

from dpfl import mechanisms
from tests import oracles


def losses(matrix, schema, workload=None):
    """Largest and mean loss of any C, by brute force: `B = A C^-1` is the best decoder."""
    n = schema.rounds
    decoder = mechanisms.workload.matrix(workload, n) @ np.linalg.pinv(matrix)
    squared = (decoder**2).sum(axis=1)
    sensitivity = math.sqrt(oracles.squared_sensitivity(matrix, schema))
    return {
        'max': math.sqrt(squared.max()) * sensitivity,
        'rms': math.sqrt(squared.mean()) * sensitivity,
    }


def signed_indicators(schema):
    """All signed indicators of patterns that cannot be longer, a row each."""
    rows = {}
    for pattern in oracles.patterns(schema):
        for signs in oracles._signs(len(pattern)):
            row = np.zeros(schema.rounds)
            row[list(pattern)] = signs
            rows[tuple(row)] = row
    return np.array([*rows.values()])


def best_matrix(u, a, loss):
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
