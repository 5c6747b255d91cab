"""Studies and runs that are written down in tests."""

import numpy as np

from experiments.studies.shared import grid, results

CURVE = {name: np.array([1.0]) for name in ('round', 'epsilon', 'accuracy', 'loss')}


def study(**fields):
    defaults = dict(name='s', title='T', about='A', mirrors='M', flags={}, lines={'a': {}})
    return grid.Study(**{**defaults, **fields})


def run(bounds=(), curve=CURVE, **values):
    """A run with these measures, of which those in `bounds` are lower bounds."""
    return results.Run(values, frozenset(bounds), curve)
