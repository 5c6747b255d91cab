"""Executes TFF computations in this process or on Ray. Knows nothing about privacy.

It loads TFF on any supported Python, interprets its compiled programs in threads, and splits rounds
into shards.
"""

FOR_ROOMS = (
    'contexts',
    'memory',
    'quiet_import',
    'ray_cluster',
    'shards',
    'signals',
    'tff_import',
)
