"""Max or rms loss of a mechanism, with its proven sensitivity."""

import numpy as np

from dpfl.mechanisms.base import Mechanism
from dpfl.participation import Participation


def loss_of(
    mechanism: Mechanism,
    participation: Participation,
    loss: str,
    workload: np.ndarray | None = None,
) -> float:
    """Loss of the mechanism, run for as many rounds as the schema has.

    Args:
      mechanism: any mechanism that can have these rounds.
      participation: the schema.
      loss: 'max' or 'rms', see `Mechanism.max_loss` and `Mechanism.rms_loss`.
      workload: A, see `mechanisms.workload`; None for the prefix sums.
    """
    mechanism = mechanism.with_rounds(participation.rounds)
    function = mechanism.max_loss if loss == 'max' else mechanism.rms_loss
    return function(participation, workload)
