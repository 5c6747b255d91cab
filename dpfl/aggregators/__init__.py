"""Private aggregation: `tfp.DPQuery` objects and TFF aggregation factories made from a plan.

The client side clips and rounds records, the server side adds the noise of the plan's mechanism and
divides by the planned cohort. The room builds on `dpfl.accounting` and `dpfl.mechanisms`, and knows
nothing of data or models.
"""

from dpfl.aggregators.build import (
    build_aggregator,
    build_noise_ring,
    build_query,
    build_weighted_aggregator,
)
from dpfl.aggregators.clipping import PerLayer, clip_flat
from dpfl.aggregators.estimators import WeightedRecord
from dpfl.aggregators.extension import extended_state

__all__ = [
    'PerLayer',
    'WeightedRecord',
    'build_aggregator',
    'build_noise_ring',
    'build_query',
    'build_weighted_aggregator',
    'clip_flat',
    'extended_state',
]

FOR_ROOMS = (
    'adaptive_clip',
    'audited_query',
    'clipping',
    'discretized',
    'estimators',
    'extension',
    'noise.correlated',
    'noise.draws',
    'query',
)
