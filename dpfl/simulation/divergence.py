"""Says when a run has made its model worse, which accuracy alone hides."""

import math
from collections.abc import Mapping, Sequence

# Factors above which a loss is far above that of a uniform guess, and that of its start.
_ABOVE_UNIFORM = 1.2
_ABOVE_START = 1.5


def warning(rows: Sequence[Mapping[str, float]], uniform_loss: float | None = None) -> str | None:
    """A sentence if the last held-out loss is far too large; None if it is not.

    Args:
      rows: metrics of the rounds, some with `loss`, the mean cross entropy on held-out clients.
      uniform_loss: that of a model that finds every answer equally likely; None if not known.
    """
    losses = [row['loss'] for row in rows if 'loss' in row]
    if not losses:
        return None
    last, start = losses[-1], losses[0]
    is_far = not math.isfinite(last) or last > _ABOVE_START * abs(start)
    if uniform_loss is not None:
        is_far |= last > _ABOVE_UNIFORM * uniform_loss
    if not is_far:
        return None
    uniform = '' if uniform_loss is None else f', that of a uniform guess is {uniform_loss:.3g}'
    return (
        f'the loss on held-out clients ended at {last:.3g}; its first measurement is {start:.3g}'
        f'{uniform}: training diverged. A lower server_learning_rate, a lower clip_norm or more '
        'clients_per_round leave less noise in a step'
    )
