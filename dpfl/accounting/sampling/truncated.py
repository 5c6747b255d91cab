"""Truncated Poisson sampling: cohorts have a largest size ([Ganesh25]).

A Poisson sample of more than `cap` clients is reduced to a uniformly random subset of that size.
What one client changes is split by whether at least `cap` others are in the sample, which happens
with probability t and does not depend on the client:

- fewer: the client takes part with probability q, and displaces nobody, as without a cap;
- at least cap: the cohort is a uniform set T of `cap` others, or, with probability p, the client in
  the place of a random one of T. Zeroing it out leaves p and T as they are.

So hockey-stick divergences are at most those of the mixture, (1 - t) of the first case plus t of
the second. docs/research/sampling_proofs.md has the proof, and the bound for the second case.
"""

import dataclasses
import math

import dp_accounting
import numpy as np
from dp_accounting.pld import pld_pmf
from scipy import special, stats

# Relative, for tails of the binomial distribution and Gaussian integrals.
_ROUNDING = 1e-9
# The least number with all digits of a float. A probability below it counts as this.
LEAST = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True)
class TruncatedPoissonDpEvent(dp_accounting.DpEvent):
    """A Gaussian release of the sum over a truncated Poisson sample.

    Its neighbours zero a client out, which stays in the population.

    Attributes:
      population: number of clients.
      sampling_probability: q, of each client before truncation.
      cap: largest size of the sample, at least 1.
      event: the Gaussian release.
    """

    population: int
    sampling_probability: float
    cap: int
    event: dp_accounting.GaussianDpEvent

    def full(self) -> tuple[float, float]:
        """Probabilities t and p, rounded up; see `full_sample`."""
        return full_sample(self.population, self.sampling_probability, self.cap)


def full_sample(population: int, probability: float, cap: int) -> tuple[float, float]:
    """Probability t that at least `cap` other clients are in a Poisson sample, and p.

    p is the probability that a client takes part if they are: q cap E[1 / (R + 1) | R >= cap] for
    R others. Both are rounded up.
    """
    if cap >= population or not probability:
        return 0.0, 0.0
    full = float(stats.binom.sf(cap - 1, population - 1, probability))
    # The mean is at most that of the least R.
    most = probability * cap / (cap + 1)
    if full < LEAST:
        return LEAST, most
    # P(R = r) q / (r + 1) = P(R' = r + 1) / n for the size R' of the sample of all n clients.
    beyond = float(stats.binom.sf(cap, population, probability))
    if beyond >= LEAST:
        most = min(most, beyond * cap / population / full * (1 + _ROUNDING))
    return min(1.0, full * (1 + _ROUNDING)), most


def spread(placed: float, noise_multiplier: float, log_tail: float) -> float:
    """Largest loss of the second case, without the tails; the smallest is its negative."""
    mu = 2 / noise_multiplier
    reach = math.sqrt(-2 * log_tail) * mu + mu * mu / 2
    return float(np.logaddexp(math.log1p(-placed), math.log(placed) + reach))


def full_losses(
    placed: float, noise_multiplier: float, step: float, log_tail: float
) -> tuple[pld_pmf.PLDPmf, pld_pmf.PLDPmf]:
    """Losses of the second case on a grid, for a client that is removed and for one that is added.

    With a the sum of the client and the displaced one, b that of the displaced one alone, |b| <= 1,
    |a - b| <= 1 and |a| <= 2, in clip norms, these are the losses between
    `(1 - p) N(0) + p N(a)` and `(1 - p) N(0) + p N(b)`.

    Args:
      placed: p.
      noise_multiplier: standard deviation of N.
      step: of the grid.
      log_tail: logarithm of the mass that may count as an infinite loss.
    """
    most = math.ceil(spread(placed, noise_multiplier, log_tail) / step)
    epsilons = np.arange(most + 1) * step
    # [Balle18-sampling], theorem 2: the divergence at e^epsilon is p times that of N(a) and a
    # mixture of N(0) and N(b), at another order.
    order = 1 + np.expm1(epsilons) / placed
    share = np.exp(epsilons - np.log(order))
    near = _gaussian_delta(1 / noise_multiplier, np.log(order))
    far = _gaussian_delta(2 / noise_multiplier, np.log(order))
    # By joint convexity it is also at most p times that of N(a) and N(b).
    plain = _gaussian_delta(1 / noise_multiplier, epsilons)
    removed = placed * np.minimum((1 - share) * far + share * near, plain)
    added = placed * near
    return _pmf(removed, added, epsilons, step), _pmf(added, removed, epsilons, step)


def _pmf(
    deltas: np.ndarray, reverse: np.ndarray, epsilons: np.ndarray, step: float
) -> pld_pmf.PLDPmf:
    """The pessimistic masses of a divergence, from it and that of the other direction at >= 0."""
    # delta(-epsilon) = 1 - e^-epsilon + e^-epsilon reverse(epsilon).
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * reverse[:0:-1]
    both = np.concatenate([below, deltas]) * (1 + _ROUNDING)
    places = np.concatenate([-epsilons[:0:-1], epsilons])
    most = epsilons.size - 1
    hull = _lower_hull(np.exp(places), np.minimum(both, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -most, most, hull)


def _lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The largest convex function below the points, at x: as a divergence is convex in x."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1:
            j, k = kept[-2], kept[-1]
            if (y[k] - y[j]) * (x[i] - x[k]) <= (y[i] - y[k]) * (x[k] - x[j]):
                break
            kept.pop()
        kept.append(i)
    hull = np.interp(x, x[kept], y[kept])
    return np.minimum.accumulate(hull)


def _gaussian_delta(mu: float, epsilons: np.ndarray) -> np.ndarray:
    """The curve of the Gaussian mechanism ([Balle18], theorem 8) at epsilons >= 0, for mu > 0."""
    t = epsilons / mu - mu / 2
    tails = special.erfcx(np.maximum(t, -5.0) / math.sqrt(2)) - special.erfcx(
        (np.maximum(t, -5.0) + mu) / math.sqrt(2)
    )
    by_tails = np.exp(-np.square(np.maximum(t, -5.0)) / 2) * tails / 2
    plain = special.ndtr(-t) - np.exp(np.minimum(epsilons, 700.0)) * special.ndtr(-t - mu)
    return np.where(t > -5.0, by_tails, plain)


def divergences(
    poisson: np.ndarray, event: TruncatedPoissonDpEvent, orders: np.ndarray
) -> np.ndarray:
    """Renyi divergences of the release, from those without a cap, float64 [orders].

    exp((a - 1) D_a) is jointly convex, so that it is at most the mean over both cases. In the
    second one it is at most `1 - p + p exp(a (a - 1) / (2 noise^2))`, by the same argument.
    """
    full, placed = event.full()
    if not full:
        return poisson
    least = full * (1 - 4 * _ROUNDING)
    noise = event.event.noise_multiplier
    of_full = np.logaddexp(
        math.log1p(-placed), math.log(placed) + orders * (orders - 1) / (2 * noise**2)
    )
    weights = np.log1p(-least) if least < 1 else -np.inf
    log_full = math.log(full) if full > LEAST else _log_full(event)
    return np.logaddexp(weights + (orders - 1) * poisson, log_full + of_full) / (orders - 1)


def _log_full(event: TruncatedPoissonDpEvent) -> float:
    """Upper bound of log t for a t that no float holds ([Hoeffding63], theorem 1)."""
    others, q = event.population - 1, event.sampling_probability
    share = event.cap / others  # Above q, or t would not be so small.
    entropy = special.rel_entr(share, q) + special.rel_entr(1 - share, 1 - q)
    return min(math.log(LEAST), -others * float(entropy) * (1 - _ROUNDING))
