"""Private training processes, sharding of their cohorts, and evaluation.

It makes TFF learning processes of a model and a plan, for federated averaging, SGD and GANs. The
room builds on `dpfl.aggregators` and `dpfl.runtime`, and knows no data sets and no directories.
"""

from dpfl.learning.evaluation import build_evaluation, build_gan_evaluation, evaluate_once, sample
from dpfl.learning.gan import build_dp_fedavg_gan, gan_weights
from dpfl.learning.keras_models import from_keras
from dpfl.learning.processes import build_dp_fedavg
from dpfl.learning.server_optimizers import build_server_optimizer
from dpfl.runtime.shards import shard, sharded_cohorts

__all__ = [
    'build_dp_fedavg',
    'build_dp_fedavg_gan',
    'build_evaluation',
    'build_gan_evaluation',
    'build_server_optimizer',
    'evaluate_once',
    'from_keras',
    'gan_weights',
    'sample',
    'shard',
    'sharded_cohorts',
]
