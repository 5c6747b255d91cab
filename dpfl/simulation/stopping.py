"""Rules by which a run ends before its last round."""

from collections.abc import Mapping, Sequence


def has_stopped(stop_at_accuracy: float | None, rows: Sequence[Mapping[str, float]]) -> bool:
    """Whether a run is over after the rounds of its metrics.

    Args:
      stop_at_accuracy: the accuracy at which it stops; None for a run without this rule.
      rows: metrics of the rounds so far; without an accuracy in rounds that were not evaluated.
    """
    if stop_at_accuracy is None or not rows:
        return False
    return rows[-1].get('accuracy', -1.0) >= stop_at_accuracy
