"""The published numbers and figures of the papers, recomputed.

The printed numbers are data, and are only compared with what other rooms compute.
"""

FOR_ROOMS = (
    'figures.checks',
    'figures.drawn',
    'tables.calculations',
    'tables.rows',
)
