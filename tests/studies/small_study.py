"""Studies and runs that are written down in tests."""

import numpy as np

from dpfl.studies import definition, measures

CURVE = measures.Curve(*(np.array([1.0]) for _ in range(4)))


def study(**fields):
    defaults = dict(name='s', title='T', about='A', mirrors='M', flags={}, lines={'a': {}})
    return definition.Study(**{**defaults, **fields})


def run(bounds=(), curve=CURVE, **values):
    """A run with these measures, of which those in `bounds` are lower bounds."""
    return measures.Run(values, frozenset(bounds), curve)
