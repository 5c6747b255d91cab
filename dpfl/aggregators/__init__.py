"""Private aggregation: `tfp.DPQuery` objects and TFF aggregation factories made from a plan."""

from dpfl.aggregators.build import build_aggregator, build_query, build_weighted_aggregator
from dpfl.aggregators.clipping import PerLayer, clip_flat
from dpfl.aggregators.estimators import WeightedRecord
from dpfl.aggregators.extension import extended_state
from dpfl.aggregators.noise.hardened_ring import HardenedRing
from dpfl.aggregators.noise.noise_ring import NoiseRing

__all__ = [
    'HardenedRing',
    'NoiseRing',
    'PerLayer',
    'WeightedRecord',
    'build_aggregator',
    'build_query',
    'build_weighted_aggregator',
    'clip_flat',
    'extended_state',
]
