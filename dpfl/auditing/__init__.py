"""Empirical privacy: lower bounds from attacks on releases, held against the claimed guarantee.

It gives canaries, the audit of a run from one training, and that of the aggregator alone. The room
builds on `dpfl.aggregators` and what is below; what an audit measured is in `dpfl.accounting`.
"""

FOR_ROOMS = (
    'aggregator_audit',
    'canaries',
    'config',
    'one_shot',
)
