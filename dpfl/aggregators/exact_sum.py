"""Sums over clients without rounding, so no client changes how the updates of others are added.

In a float32 sum of thousands of updates each one is rounded relative to the sum so far. Colluding
clients can use that to raise the effect of another client to 1.6 clip norms ([Casacuberta22]).
Here each coordinate of a clipped update is rounded to a multiple of a unit, in float64. The unit is
a power of two, so sums below 2^53 units are exact in any order, on any number of shards or
machines; twice the planned cohort cannot reach that. Above it, each addition is rounded by 2^-53 of
the sum.

A client's contribution has a norm of at most the clip norm. A margin of 2^-17 of that norm covers
all rounding between the clients and the noise:

- rounding to units: half a unit per coordinate, at most 2^-18 clip norms (checked);
- the server's float64 arithmetic: a few times 2^-53 of a sum that is at most `clients_per_round`
  clip norms, in each of two neighbouring runs: below 2^-18 for up to 10^8 clients.
"""

import math
from typing import Any

import tensorflow as tf
import tensorflow_privacy as tfp

from dpfl import accounting, errors
from dpfl.aggregators import estimators, query

_MARGIN = 2.0**-17
_MOST_BITS = 40
_MOST_CLIENTS = 10**8
_EXPONENT_BITS = 0x7FF0000000000000  # Of a float64: sign and mantissa cleared.


def unit(clip_norm: Any, clients_per_round: int) -> tf.Tensor:
    """Power of two whose multiples add up exactly in float64, for two planned cohorts.

    Args:
      clip_norm: scalar, positive.
      clients_per_round: planned size of a cohort.

    Returns:
      float64 scalar: the power of two at or below the clip norm, divided by `_least_units`.
    """
    bits = tf.bitcast(tf.cast(clip_norm, tf.float64), tf.int64)
    below = tf.bitcast(tf.bitwise.bitwise_and(bits, _EXPONENT_BITS), tf.float64)
    return below / _least_units(clients_per_round)


def _least_units(clients_per_round: int) -> float:
    """Power of two: a clip norm has at least this number of units, and less than twice it."""
    return 2.0 ** min(_MOST_BITS, 51 - math.ceil(math.log2(clients_per_round)))


class ExactSumQuery(query.WrappedQuery):
    """Rounds what clients of the inner query send, so that its sums are exact.

    The inner query's sample parameters must be the clip norm. The result has the types of the
    records, or float64 if `record_specs` is None.
    """

    def __init__(
        self, inner: tfp.SumAggregationDPQuery, plan: accounting.PrivacyPlan, record_specs=None
    ):
        """Args: inner: a query that clips; plan: its plan; record_specs: of an update, or None.

        Raises:
          ValueError: if an update has too many coordinates, or a cohort too many clients, for the
            margin.
        """
        super().__init__(inner)
        clients = plan.clients_per_round
        if clients > _MOST_CLIENTS:
            raise errors.ArgumentError(
                'clients_per_round', clients, f'must be at most {_MOST_CLIENTS}'
            )
        self._clients = clients
        self._specs = record_specs
        if record_specs is not None:
            self._check_size(tf.nest.flatten(record_specs))

    def _check_size(self, leaves):
        size = sum(math.prod(leaf.shape) for leaf in leaves)
        most = int((_least_units(self._clients) * _MARGIN) ** 2)
        if size > most:
            raise errors.ArgumentError(
                'record_specs',
                errors.NOT_SHOWN,
                f'has {size} coordinates, must have at most {most} for sums of this many clients',
            )

    def initial_sample_state(self, template: Any = None) -> Any:
        shapes = self._specs if template is None else estimators.update_of(template)
        return tf.nest.map_structure(lambda leaf: tf.zeros(leaf.shape, tf.float64), shapes)

    def preprocess_record(self, params: Any, record: Any) -> Any:
        """A client's update, rounded to multiples of the unit: float64, in its structure.

        Args:
          params: the clip norm.
          record: of a client.
        """
        update = self._inner.preprocess_record(params, record)
        leaves = [tf.cast(leaf, tf.float64) for leaf in tf.nest.flatten(update)]
        self._check_size(leaves)
        # The guarantee relies on this bound. The clip's own norm, in float32, may be slightly off.
        norm = tf.sqrt(2 * tf.add_n([tf.nn.l2_loss(leaf) for leaf in leaves]))
        clip_norm = tf.cast(params, tf.float64)
        step = unit(clip_norm, self._clients)
        bound = clip_norm * (1 - _MARGIN)
        scale = tf.minimum(bound / norm, 1.0) / step
        rounded = [tf.math.rint(leaf * scale) * step for leaf in leaves]
        return tf.nest.pack_sequence_as(update, rounded)

    def get_noised_result(self, sample_state: Any, global_state: Any) -> query.NoisedResult:
        total = tf.nest.map_structure(lambda leaf: tf.cast(leaf, tf.float64), sample_state)
        return self._inner.get_noised_result(total, global_state)
