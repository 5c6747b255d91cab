"""Private training processes and evaluation."""

from dpfl.learning.evaluation import build_evaluation
from dpfl.learning.processes import build_dp_fedavg

__all__ = ['build_dp_fedavg', 'build_evaluation']
