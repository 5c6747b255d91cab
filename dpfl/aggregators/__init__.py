"""Private aggregation: `tfp.DPQuery` objects and TFF aggregation factories made from a plan."""

from dpfl.aggregators.build import build_aggregator, build_query, build_weighted_aggregator
from dpfl.aggregators.clipping import PerLayer, clip_flat
from dpfl.aggregators.estimators import WeightedRecord

__all__ = [
    'PerLayer',
    'WeightedRecord',
    'build_aggregator',
    'build_query',
    'build_weighted_aggregator',
    'clip_flat',
]
