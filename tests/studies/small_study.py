"""Studies, runs and their records that are written down in tests."""

import numpy as np

from dpfl import mechanisms
from dpfl.accounting.records import archive
from experiments.studies.shared import grid, results

CURVE = {name: np.array([1.0]) for name in ('round', 'epsilon', 'accuracy', 'loss')}


def study(**fields):
    defaults = dict(name='s', title='T', about='A', mirrors='M', flags={}, lines={'a': {}})
    return grid.Study(**{**defaults, **fields})


def run(bounds=(), curve=CURVE, **values):
    """A run with these measures, of which those in `bounds` are lower bounds."""
    return results.Measured(values, frozenset(bounds), curve)


def write_records(folder, plan):
    """The plan and its strategy, as a public copy of a finished run has them."""
    accountant = 'analytic_gaussian' if plan.sampling is None else 'pld'
    record = archive.PlanRecord(plan, (1e-6,), accountant, noise_is_seeded=False, exported=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / archive.PLAN).write_text(record.to_json())
    mechanisms.save(plan.mechanism, folder / archive.STRATEGY)
    (folder / archive.SUMS).write_text(f'{"0" * 64}  {archive.MODEL}\n')
