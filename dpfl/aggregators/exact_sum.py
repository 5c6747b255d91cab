"""Sums over clients without rounding: no client changes how the updates of others are added.

A sum of thousands of float32 updates rounds each of them by how large the sum is by then, so that
colluding clients can raise the effect of another one to 1.6 clip norms (Casacuberta, Shoemate,
Vadhan and Wagaman 2022). Here each clipped update becomes a whole number of units in every
coordinate, kept in float64. Sums of them are exact in any order, on any number of shards or
machines, as long as they are below 2^53 units, which twice the planned cohort cannot reach; beyond,
each addition is rounded by 2^-53 of the sum.

What one client contributes has a norm of at most the clip norm, with a margin of 2^-17 of it for
everything that is rounded between the clients and the noise:

- rounding to units: half a unit in each coordinate, at most 2^-18 clip norms (checked);
- the server's arithmetic in float64: a few times 2^-53 of a sum, which is at most
  `clients_per_round` clip norms, in each of two neighbouring runs: below 2^-18 up to 10^8 clients.
"""

import math

import tensorflow as tf

from dpfl import accounting, errors
from dpfl.aggregators import estimators, query

_MARGIN = 2.0**-17
_MOST_BITS = 40
_MOST_CLIENTS = 10**8


def units_per_clip_norm(clients_per_round: int) -> float:
    """How many units make a clip norm: a power of two, such that two planned cohorts stay exact."""
    return 2.0 ** min(_MOST_BITS, 52 - math.ceil(math.log2(clients_per_round)))


class ExactSumQuery(query.WrappedQuery):
    """Sums what the inner query's clients send in whole units, and gives its server that sum.

    The parameters that its clients need must be the clip norm in use. Its result has the type of
    the records, float64 where `record_specs` is None.
    """

    def __init__(self, inner: query.SumQuery, plan: accounting.PrivacyPlan, record_specs=None):
        """Args: inner: clips; plan: of it; record_specs: of an update, or None.

        Raises:
          ValueError: if updates have too many coordinates, or cohorts too many clients, for the
            margin.
        """
        super().__init__(inner)
        clients = plan.clients_per_round
        if clients > _MOST_CLIENTS:
            raise errors.ArgumentError(
                'clients_per_round', clients, f'must be at most {_MOST_CLIENTS}'
            )
        self._units = units_per_clip_norm(clients)
        self._specs = record_specs
        if record_specs is not None:
            self._check_size(tf.nest.flatten(record_specs))

    def _check_size(self, leaves):
        size = sum(math.prod(leaf.shape) for leaf in leaves)
        most = int((self._units * _MARGIN) ** 2)
        if size > most:
            raise errors.ArgumentError(
                'record_specs',
                errors.NOT_SHOWN,
                f'{size} coordinates, must be at most {most} for sums of this many clients',
            )

    def initial_sample_state(self, template=None):
        shapes = self._specs if template is None else estimators.update_of(template)
        return tf.nest.map_structure(lambda leaf: tf.zeros(leaf.shape, tf.float64), shapes)

    def preprocess_record(self, params, record):
        """A client's update in units: whole numbers as float64, in the structure of the update.

        Args:
          params: of the inner query: the clip norm in use.
          record: of a client.
        """
        update = self._inner.preprocess_record(params, record)
        leaves = [tf.cast(leaf, tf.float64) for leaf in tf.nest.flatten(update)]
        self._check_size(leaves)
        # The bound that the guarantee rests on: norms in float32 may be a little off.
        norm = tf.sqrt(2 * tf.add_n([tf.nn.l2_loss(leaf) for leaf in leaves]))
        clip_norm = tf.cast(params, tf.float64)
        bound = clip_norm * (1 - _MARGIN)
        scale = self._units / clip_norm * tf.minimum(bound / norm, 1.0)
        return tf.nest.pack_sequence_as(update, [tf.math.rint(leaf * scale) for leaf in leaves])

    def get_noised_result(self, sample_state, global_state):
        unit = tf.cast(self.clip_norm(global_state), tf.float64) / self._units
        total = tf.nest.map_structure(lambda leaf: tf.cast(leaf, tf.float64) * unit, sample_state)
        return self._inner.get_noised_result(total, global_state)
