"""Epsilon of mixtures of Gaussians by Monte Carlo, as an upper bound with a stated confidence.

The divergences of both directions are means of weighted payoffs whose largest value is known
(`tilted`). The Chernoff bound for bounded variables ([Hoeffding63], theorem 1) turns the mean of
the samples into an upper bound of the divergence. It falls with epsilon, so the epsilon at which it
meets delta is too small only if the bound fails at one fixed epsilon, the true one: nothing is lost
by trying many.
"""

import concurrent.futures
import dataclasses
import math
import os
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from dpfl import _validate
from dpfl.accounting import gaussian
from dpfl.accounting.sampling import bins, separated
from dpfl.accounting.sampling.bins import POINTS, Mixtures, Range
from dpfl.accounting.sampling.separated import Separated

# What a client releases, and the same in units of the noise.
Mixed = Mixtures | Separated
_Release = bins.Release | separated.Release

# Default probability that the reported epsilon is too small.
FAILURE = 1e-6
SEED = 0
# Separates the random streams of the pilot samples and of the estimate.
_PILOT, _MAIN = 0x70696C6F, 0x6D61696E
# Most samples of each direction, and most products of samples and components.
MOST_SAMPLES, _MOST_PRODUCTS = 4_000_000, 1.5e9
_PILOT_SAMPLES = 8192
# Entries of a chunk of samples, which bound its memory.
_CHUNK_ENTRIES = 2**21
# s and r of the proposals among which the estimate chooses, and those of the pilot samples.
_TILTS = 1 + np.append(0.0, np.geomspace(0.05, 100, 60))
_COUNTER_TILTS = np.append(0.0, np.geomspace(0.1, 100, 40))
_PILOT_TILTS = ((1.0, 0.0), (1.5, 1.0), (2.0, 2.0), (3.0, 4.0), (5.0, 8.0), (9.0, 16.0))
# Share by which a bound is raised, for the rounding of sums.
_ROUNDING = 1e-9
# Values of epsilon are searched until they are as close as this, relatively.
_PRECISION = 1e-9


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An epsilon, and all that is needed to compute it again.

    Attributes:
      epsilon: at least the true one, but for the probability `failure`. Never more than
        `unamplified`.
      delta: of the guarantee.
      failure: largest probability, over the draws of the estimate, that `epsilon` is too small.
      samples: number of samples of each direction.
      seed: of the samples.
      unamplified: epsilon without sampling, which is certain.
      tilts: s and r of the proposals.
    """

    epsilon: float
    delta: float
    failure: float
    samples: int
    seed: int
    unamplified: float
    tilts: tuple[float, float]

    @property
    def is_amplified(self) -> bool:
        """Whether the estimate shows less than the guarantee without sampling."""
        return self.epsilon < self.unamplified


def samples_for(mixtures: Mixed) -> int:
    """Number of samples for the estimate of epsilon: fewer with thousands of components."""
    return max(1, min(MOST_SAMPLES, int(_MOST_PRODUCTS / mixtures.cost)))


def epsilon(
    mixtures: Mixed,
    stddev: float,
    delta: float,
    *,
    samples: int,
    seed: int = SEED,
    failure: float = FAILURE,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Estimate:
    """Epsilon of the mixtures and noise, in both directions, at a delta.

    The result is a pure function of the arguments but `on_progress`.

    Args:
      mixtures: of one client, in clip norms.
      stddev: standard deviation of the noise in clip norms, above 0.
      delta: strictly between 0 and 1.
      samples: of each direction, at least 1.
      seed: at least 0.
      failure: probability with which the estimate may be too small, strictly between 0 and 1.
      on_progress: called with the share of the samples that are done.

    Raises:
      ArgumentError: if an argument is out of its range.
    """
    _validate.number('stddev', stddev, above=0)
    _validate.number('delta', delta, above=0, below=1)
    _validate.number('failure', failure, above=0, below=1)
    _validate.integer('seed', seed, minimum=0)
    count = _validate.integer('samples', samples, minimum=1)
    mu = math.sqrt(mixtures.squared_norm) / stddev * (1 + _ROUNDING)
    plain = gaussian.exact_epsilon(mu, delta) if mu else 0.0
    result = Estimate(plain, delta, failure, count, seed, plain, (1.0, 0.0))
    if not plain or not mixtures.is_mixed or not math.isfinite(plain):
        return result
    release: _Release = (
        bins.Release.of(mixtures, stddev)
        if isinstance(mixtures, Mixtures)
        else separated.Release(mixtures, stddev)
    )
    try:
        tilts = _best_tilts(release, delta, count, seed, failure)
        removed, added = _sums(release, tilts, count, (_MAIN, seed), on_progress)
    except OverflowError:
        return result
    ranges = release.removed_range(tilts[0]), release.added_range(tilts[1])
    epsilon = max(
        _epsilon_of([sums / count], [largest], count, delta, failure)
        for sums, largest in zip((removed, added), ranges, strict=True)
    )
    return dataclasses.replace(result, epsilon=min(epsilon, plain), tilts=tilts)


# Sums of the weights of samples by their loss, rounded up to the grid, [POINTS + 2]. The last
# entry is for losses beyond the grid, which count as infinite.
_Sums = np.ndarray


def _sums(
    release: _Release,
    tilts: tuple[float, float],
    count: int,
    stream: tuple[int, ...],
    on_progress: Callable[[float], None] = lambda share: None,
) -> tuple[_Sums, _Sums]:
    """Sums of weights in both directions, the same for any number of processors."""
    chunk = max(1, _CHUNK_ENTRIES // release.width)
    sizes = [min(chunk, count - first) for first in range(0, count, chunk)]

    def of_chunk(place: int) -> tuple[_Sums, _Sums]:
        generator = np.random.default_rng([*stream, place])
        both = release.samples(generator, sizes[place], tilts)
        step = release.end / POINTS
        removed, added = (_binned(*samples, step, release.rounding) for samples in both)
        return removed, added

    removed, added = np.zeros(POINTS + 2), np.zeros(POINTS + 2)
    done = 0
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as threads:
        # `map` returns the chunks in order, so that sums of floats do not depend on timing.
        for place, (first, second) in enumerate(threads.map(of_chunk, range(len(sizes)))):
            removed += first
            added += second
            done += sizes[place]
            on_progress(done / count)
    return removed, added


def _binned(losses: np.ndarray, log_weights: np.ndarray, step: float, rounding: float) -> _Sums:
    counted = losses > -rounding  # Smaller ones pay nothing at epsilons from 0 on.
    places = np.ceil((losses[counted] + rounding) / step)
    places = np.clip(places, 0, POINTS + 1).astype(np.int64)
    weights = np.exp(log_weights[counted] + rounding)
    return np.bincount(places, weights, POINTS + 2)


def _epsilon_of(
    means: Sequence[_Sums], ranges: Sequence[Range], count: int, delta: float, failure: float
) -> float:
    """Least epsilon whose upper bound of the divergence is at most delta; infinity if none is.

    Args:
      means: sums divided by their numbers of samples; the largest mean payoff counts.
      ranges: of payoffs; the smallest counts.
      count: number of samples of which the bound is.
      delta: of the guarantee.
      failure: of both directions, half of which this one may have.
    """
    grid = np.linspace(0, ranges[0].end, POINTS + 1)

    def is_shown(epsilon: float) -> bool:
        above = grid > epsilon
        payoffs = -np.expm1(epsilon - grid[above])
        mean = max(float(weights[:-1][above] @ payoffs + weights[-1]) for weights in means)
        most = min(payoff.log_largest(epsilon) for payoff in ranges)
        largest = math.exp(np.clip(most, -700.0, 700.0))
        return upper_bound(mean, largest, count, failure / 2) <= delta

    low, high = 0.0, ranges[0].end
    if is_shown(low):
        return low
    if not is_shown(high):
        return math.inf
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return high


def upper_bound(mean: float, largest: float, count: int, failure: float) -> float:
    """Upper bound of the expectation of a variable within [0, `largest`] from its sample mean.

    The largest p with `count * kl(mean / largest, p) <= log(1 / failure)`, times `largest`, for the
    relative entropy kl of two coins ([Hoeffding63], theorem 1). It is below the expectation with
    probability at most `failure`.
    """
    budget = math.log(1 / failure) / count
    share = min(mean / largest, 1.0)
    low, high = share, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        entropy = special.rel_entr(share, middle) + special.rel_entr(1 - share, 1 - middle)
        low, high = (middle, high) if entropy <= budget else (low, middle)
    return high * largest * (1 + _ROUNDING)


def _best_tilts(
    release: _Release, delta: float, count: int, seed: int, failure: float
) -> tuple[float, float]:
    """Tilts with the smallest ranges of payoffs at the epsilon to expect, by samples of their own.

    Tilts that are too small miss the tail of the losses in few samples, so the largest mean of
    several tilts tells where to expect epsilon.
    """
    size = min(_PILOT_SAMPLES, count)
    pilots = [_sums(release, tilts, size, (_PILOT, seed)) for tilts in _PILOT_TILTS]
    best = []
    for sums, tilts, at in zip(
        zip(*pilots, strict=True),
        (_TILTS, _COUNTER_TILTS),
        (release.removed_range, release.added_range),
        strict=True,
    ):
        ranges = [at(tilt) for tilt in tilts]
        epsilon = _epsilon_of([weights / size for weights in sums], ranges, count, delta, failure)
        most = [payoff.log_largest(min(epsilon, release.end)) for payoff in ranges]
        best.append(float(tilts[int(np.argmin(most))]))
    return best[0], best[1]
