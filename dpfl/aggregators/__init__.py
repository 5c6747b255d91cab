"""Private aggregation: `tfp.DPQuery` objects and TFF aggregation factories made from a plan."""

from dpfl.aggregators.build import build_aggregator, build_query, build_weighted_aggregator
from dpfl.aggregators.clipping import PerLayer, clip_flat
from dpfl.aggregators.distributed import build_distributed_aggregator, build_distributed_query
from dpfl.aggregators.distributed_noise import DistributedNoise
from dpfl.aggregators.estimators import WeightedRecord
from dpfl.aggregators.hardened_query import with_key
from dpfl.aggregators.hardened_ring import HardenedRing
from dpfl.aggregators.noise_ring import NoiseRing

__all__ = [
    'DistributedNoise',
    'HardenedRing',
    'NoiseRing',
    'PerLayer',
    'WeightedRecord',
    'build_aggregator',
    'build_distributed_aggregator',
    'build_distributed_query',
    'build_query',
    'build_weighted_aggregator',
    'clip_flat',
    'with_key',
]
