"""Values of delta that promise little."""

# Publishing all data of a random hundredth of the clients is (0, 0.01)-DP.
USUAL_MOST = 0.01
# A delta of 1 / population that is written with three digits gives no warning.
_ROUNDED = 1.01


def warning(delta: float, population: int | None) -> str:
    """What a delta above 1 / population permits, as a sentence; empty for a smaller delta.

    Args:
      delta: of a guarantee.
      population: number of clients; None if it is not known.
    """
    if population is None or delta * population <= _ROUNDED:
        return ''
    return (
        f'delta={delta:g} is above 1 / population ({population} clients): publishing the data of '
        f'{delta * population:.3g} clients on average would satisfy it.'
    )
