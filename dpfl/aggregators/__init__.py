"""Private aggregation: `tfp.DPQuery` objects and TFF aggregation factories made from a plan."""

from dpfl.aggregators.build import build_aggregator, build_query

__all__ = ['build_aggregator', 'build_query']
