"""Lower bounds of delta for sampled Gaussian releases. No accountant may go below them.

Each privacy loss is rounded down to a grid, which can only make the releases look more private (the
opposite of `dpfl.accounting.losses.loss_distribution`), and the masses come from normal tails in
logarithms. They are composed by a Fourier transform of the tilted masses, which keeps the digits of
the smallest deltas.
"""

import math

import numpy as np
from scipy import fft, optimize, special

_POINTS = 2**16
# Losses with a probability below exp of this are ignored.
_LOG_TAIL = -800.0


def least_log_delta(
    probability: float, noise_multiplier: float, rounds: int, epsilon: float, log_delta: float
) -> float:
    """Logarithm of a lower bound of the true delta, for removed and added clients.

    Args:
      probability: probability that a client is in the sample of a round, within (0, 1).
      noise_multiplier: standard deviation of the noise for a client that moves a sum by 1.
      rounds: number of releases.
      epsilon: at least 0.
      log_delta: rough estimate of the result; noise that is far less probable is left out.
    """
    reach = math.sqrt(2 * (40 - log_delta))
    return max(
        _log_delta(*_losses(probability, noise_multiplier, removed, reach), rounds, epsilon)
        for removed in (True, False)
    )


def _losses(probability, noise_multiplier, removed, reach) -> tuple[np.ndarray, np.ndarray]:
    """Losses on a grid, each rounded down, and logarithms of their masses."""
    absent, present = math.log1p(-probability), math.log(probability)
    variance = noise_multiplier**2

    def loss_of(x):
        return float(np.logaddexp(absent, present + (2 * x - 1) / (2 * variance)))

    sign, ends = 1 if removed else -1, (-reach * noise_multiplier, 1 + reach * noise_multiplier)
    low, high = sorted(sign * loss_of(x) for x in ends)
    edges = np.linspace(low, high, _POINTS)
    with np.errstate(divide='ignore', invalid='ignore'):
        logs = sign * edges
        odds = np.where(logs > absent, logs + np.log(-np.expm1(absent - logs)), -np.inf) - present
        x = variance * odds + 0.5
        if removed:
            masses = np.logaddexp(
                absent + _log_mass(x / noise_multiplier),
                present + _log_mass((x - 1) / noise_multiplier),
            )
        else:
            masses = _log_mass(x[::-1] / noise_multiplier)[::-1]
    kept = np.isfinite(masses) & (masses > _LOG_TAIL)
    return edges[:-1][kept], masses[kept]


def _log_mass(z: np.ndarray) -> np.ndarray:
    """Logarithm of the normal mass between neighbours of an increasing sequence."""
    upper, lower = special.log_ndtr(-z), special.log_ndtr(z)
    right = upper[:-1] + np.log(-np.expm1(upper[1:] - upper[:-1]))
    left = lower[1:] + np.log(-np.expm1(lower[:-1] - lower[1:]))
    return np.where(z[:-1] > 0, right, left)


def _log_delta(losses, log_masses, rounds, epsilon) -> float:
    def tilted(theta):
        logs = log_masses + theta * losses
        log_sum = special.logsumexp(logs)
        weights = np.exp(logs - log_sum)
        return log_sum, weights, float(weights @ losses)

    def excess(log_theta):
        return rounds * tilted(math.exp(log_theta))[2] - epsilon

    if excess(20) < 0:
        return -math.inf  # All losses together are below epsilon.
    theta = math.exp(optimize.brentq(excess, -20, 20)) if excess(-20) < 0 else math.exp(-20)
    log_sum, weights, mean = tilted(theta)
    stddev = math.sqrt(rounds * float(weights @ (losses - mean) ** 2))
    step = np.diff(losses).min() if losses.size > 1 else 1.0
    length = fft.next_fast_len(int(min(2 * (20 * stddev + np.ptp(losses)) / step, 2**23)) + 1)
    places = np.round((losses - losses[0]) / step).astype(np.int64)
    folded = np.bincount(places % length, weights, minlength=length)
    composed = fft.irfft(fft.rfft(folded) ** rounds, length)
    center = round(rounds * (mean - losses[0]) / step)
    sums = np.arange(center - length // 2, center - length // 2 + length)
    values = composed[sums % length]
    totals = sums * step + rounds * losses[0]
    # Masses below the rounding error of the transform are left out, so it stays a lower bound.
    counted = (totals > epsilon) & (values > 1e-11 * values.max())
    counted &= np.abs(totals - rounds * mean) < 12 * stddev
    if not counted.any():
        return -math.inf
    return float(
        special.logsumexp(
            np.log(values[counted])
            - theta * totals[counted]
            + rounds * log_sum
            + np.log(-np.expm1(epsilon - totals[counted]))
        )
    )
