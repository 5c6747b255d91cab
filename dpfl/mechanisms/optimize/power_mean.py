"""Power means of losses, from their mean to their maximum."""

import numpy as np
from scipy import special


def power_mean(
    log_squares: np.ndarray, log_weights: np.ndarray, power: float
) -> tuple[float, np.ndarray]:
    """Log of the squared power mean, `(sum_i w_i x_i^p)^(2/p)`, of positive numbers x_i.

    Args:
      log_squares: logs of the squared numbers x_i, [any].
      log_weights: logs of the weights w_i, [any].
      power: p, positive.

    Returns:
      The value, and its gradient with respect to `log_squares`.
    """
    if log_squares.size == 1:  # Without rounding.
        return float(log_squares[0] + 2 / power * log_weights[0]), np.ones(1)
    terms = log_weights + power / 2 * log_squares
    return float(2 / power * special.logsumexp(terms)), special.softmax(terms)
