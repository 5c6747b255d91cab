"""Power of detection: from which share of damaged data on a fault is found.

The power is computed, not measured: that of one diagnosis, from its own samples. A fault is called
not seen only if it reaches `TOLD`.
"""

from collections.abc import Callable

import numpy as np

# Least probability with which a fault that was not seen would have been found.
TOLD = 0.5
_COMPUTED_SHARES = np.geomspace(0.001, 1, 61)


def smallest_share(
    power: Callable[[float], float], share: float | None = None
) -> tuple[float, float]:
    """The smallest share of the data in which a fault is found with the power `TOLD`.

    Args:
      power: probability that the fault is found, given the share that it affects.
      share: the only share to look at; None for any from 0.1 % to all.

    Returns:
      The share and its power. If none has the power, the largest share.
    """
    shares = _COMPUTED_SHARES.tolist() if share is None else [share]
    for each in shares:
        if (reached := power(each)) >= TOLD:
            return each, reached
    return shares[-1], power(shares[-1])
