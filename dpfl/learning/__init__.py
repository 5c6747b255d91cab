"""Private training processes, the cohorts that they train on, and evaluation."""

from dpfl.learning.evaluation import build_evaluation
from dpfl.learning.processes import build_dp_fedavg
from dpfl.learning.shards import shard, sharded_cohorts

__all__ = ['build_dp_fedavg', 'build_evaluation', 'shard', 'sharded_cohorts']
