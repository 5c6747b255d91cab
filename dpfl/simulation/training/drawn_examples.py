"""The examples that clients train on: all in order, or random batches in every round."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dpfl import _random
from dpfl.simulation.training.config import OptimizationConfig
from dpfl.tasks.federated_task import FederatedTask

_ALL_EXAMPLES = 2**31 - 1  # Size of a batch that no client fills.


def of_run(task: FederatedTask, optimization: OptimizationConfig, seed: int) -> dict[str, Any]:
    """The fields `client_data` and `drawn` of an experiment."""
    size = optimization.client_batch_size
    if optimization.client_update == 'fedsgd':
        return in_every_round(task, seed, size)
    batches = task.client_batches  # Without the model: other processes may read the data.
    return {
        'client_data': lambda client: batches(
            int(client), size, optimization.client_epochs, optimization.client_max_batches
        )
    }


def in_every_round(
    task: FederatedTask, seed: int, size: int, most_batches: int = 1
) -> dict[str, Any]:
    """As `of_run`, for clients that draw their examples anew in every round.

    Args:
      task: has the examples.
      seed, size, most_batches: of `DrawnExamples`.
    """
    batches = task.client_batches  # Without the model, as above.
    return {
        'client_data': lambda client: batches(int(client), _ALL_EXAMPLES, 1, None),
        'drawn': DrawnExamples(seed, size, most_batches),
    }


@dataclasses.dataclass(frozen=True)
class DrawnExamples:
    """Draws batches of a client's examples without replacement, as `Experiment.drawn`.

    The draw is a pure function of the seed, the round and the client, so a resumed run has the same
    one.

    Attributes:
      seed: of the draws.
      size: examples of a batch, at least 1; a client with fewer examples takes all of them.
      most_batches: number of batches, at least 1; a client with fewer examples has fewer, and a
        smaller last one.
    """

    seed: int
    size: int
    most_batches: int = 1

    def __call__(self, t: int, client: int, batches: Sequence[Any]) -> Sequence[Any]:
        """The batches of round `t`, counted from 0: structures of arrays, none without examples.

        Args:
          t: the round.
          client: id of the client.
          batches: all examples of the client, structures of arrays.
        """
        if not batches:
            return []
        examples = tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *batches)
        count = len(tf.nest.flatten(examples)[0])
        if count <= self.size:
            return [examples]
        generator = _random.generator('drawn_examples', self.seed, t, client)
        most = min(count, self.size * self.most_batches)
        chosen = generator.choice(count, most, replace=False)

        def batch(rows: np.ndarray) -> Any:
            return tf.nest.map_structure(lambda leaf: leaf[rows], examples)

        firsts = range(0, most, self.size)
        return [batch(np.sort(chosen[first : first + self.size])) for first in firsts]
