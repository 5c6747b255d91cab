"""Epsilon of mixtures of Gaussians by Monte Carlo, as an upper bound with a stated confidence.

With A = dP/dQ, the mean over components of exp(<m_i, y> - |m_i|^2 / 2) in units of the noise, the
divergences are `E_P (1 - e^eps / A)_+` and `E_Q (1 - e^eps A)_+`. Both are small, so they are
estimated by importance sampling, from proposals under which large losses are common:

- for P the mixture of N(s m_i), s >= 1. Its density ratio B to Q is at least
  `A^s exp(-s (s - 1) g / 2)` by Jensen's inequality, with g the largest |m_i|^2;
- for Q the Gaussian N(-r v), v the mean of all m_i. Its B is at least
  `A^-r exp(-r h / 2 - r^2 |v|^2 / 2)`, with h the mean of all |m_i|^2, again by Jensen's
  inequality.

Therefore a sample's weighted payoff has a known largest value, and the Chernoff bound for bounded
variables ([Hoeffding63], theorem 1) turns their mean into an upper bound of the divergence. It is
monotone in epsilon, so that the epsilon at which it meets delta is too small only if the bound
failed at the true epsilon: nothing is lost by trying many epsilons. docs/sampling.md has the proof.
"""

import concurrent.futures
import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from dpfl import _validate
from dpfl.accounting import gaussian_curve
from dpfl.accounting.sampling.bins import Mixtures

# Default probability that the reported epsilon is too small.
FAILURE = 1e-6
SEED = 0
# Separates the random streams of the pilot samples and of the estimate.
_PILOT, _MAIN = 0x70696C6F, 0x6D61696E
_LEAST_SAMPLES, _MOST_SAMPLES, _SAMPLES_PER_DELTA = 100_000, 10_000_000, 100.0
_PILOT_SAMPLES = 8192
# Entries of a chunk of samples, which bound its memory.
_CHUNK_ENTRIES = 2**21
# Points of the grid to which losses are rounded up, and its reach in standard deviations.
_POINTS, _REACH = 2**16, 14.0
# Added to inner products, relative to the largest; above the rounding of their factor.
_ROUNDING = 1e-9
# Added to losses, and to logarithms of weights, for the rounding of exponentials.
_LOSS_ROUNDING = 1e-9
_TILTS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 16.0, 20.0, 26.0)
_COUNTER_TILTS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
# Values of epsilon are searched until they are as close as this, relatively.
_PRECISION = 1e-6


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


def samples_for(delta: float) -> int:
    """Default number of samples: more for a small delta, up to 10 million."""
    return int(min(max(_SAMPLES_PER_DELTA / delta, _LEAST_SAMPLES), _MOST_SAMPLES))


def epsilon(
    mixtures: Mixtures,
    stddev: float,
    delta: float,
    *,
    samples: int | None = None,
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
      samples: of each direction; `samples_for(delta)` by default.
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
    count = samples_for(delta) if samples is None else samples
    _validate.integer('samples', count, minimum=1)
    mu = math.sqrt(mixtures.squared_norm) / stddev * (1 + _ROUNDING)
    plain = gaussian_curve.epsilon(mu, delta) if mu else 0.0
    result = Estimate(plain, delta, failure, count, seed, plain, (1.0, 0.0))
    amplifies = any(len(gram) > 1 for gram in mixtures.grams)
    if not plain or not amplifies or not math.isfinite(plain):
        return result
    release = _Release.of(mixtures, stddev)
    tilts = _best_tilts(release, delta, count, seed, failure)
    removed, added = _sums(release, tilts, count, (_MAIN, seed), on_progress)
    found = max(
        _epsilon_of(removed, release.removed_range(tilts[0]), count, delta, failure),
        _epsilon_of(added, release.added_range(tilts[1]), count, delta, failure),
    )
    return dataclasses.replace(result, epsilon=min(found, plain), tilts=tilts)


@dataclasses.dataclass(frozen=True, eq=False)
class _Part:
    """One mixture: inner products [b, b], and F with F F^T equal to them, [b] if it is diagonal."""

    gram: np.ndarray
    factor: np.ndarray

    @classmethod
    def of(cls, gram: np.ndarray) -> '_Part':
        diagonal = gram.diagonal()
        if not (gram - np.diag(diagonal)).any():
            raised = diagonal * (1 + _ROUNDING)
            return cls(np.diag(raised), np.sqrt(raised))
        # The same added to all products is a common part of all means. Divergences grow with it.
        values, vectors = np.linalg.eigh(gram + _ROUNDING * diagonal.max())
        kept = values > 1e-15 * values[-1]
        factor = vectors[:, kept] * np.sqrt(values[kept])
        return cls(factor @ factor.T, factor)

    def noise(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Inner products of the noise with all means, [count, b]."""
        normal = generator.standard_normal((count, self.factor.shape[-1]))
        return normal * self.factor if self.factor.ndim == 1 else normal @ self.factor.T


@dataclasses.dataclass(frozen=True, eq=False)
class _Release:
    """Mixtures in units of the noise, and the grid of their losses."""

    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, mixtures: Mixtures, stddev: float) -> '_Release':
        return cls(tuple(_Part.of(gram / stddev**2) for gram in mixtures.grams))

    @functools.cached_property
    def largest(self) -> float:
        """g: the largest squared norm of means, summed over mixtures."""
        return float(sum(part.gram.diagonal().max() for part in self.parts))

    @property
    def end(self) -> float:
        """Of the grid of losses: where the Gaussian without sampling has no mass left."""
        return self.largest / 2 + _REACH * math.sqrt(self.largest)

    def removed_range(self, tilt: float) -> '_Range':
        """Of samples from N(s m_i): B >= A^s exp(-s (s - 1) g / 2)."""
        order = tilt - 1
        return _Range(order, tilt * order * self.largest / 2, -_entropy(order, tilt), self.end)

    def added_range(self, tilt: float) -> '_Range':
        """Of samples from N(-r v): B >= A^-r exp(-r h / 2 - r^2 |v|^2 / 2)."""
        mean_square = sum(part.gram.diagonal().mean() for part in self.parts)
        square_of_mean = sum(part.gram.mean() for part in self.parts)
        most = tilt * mean_square / 2 + tilt**2 * square_of_mean / 2
        return _Range(tilt, most, -_entropy(tilt, tilt + 1), self.end)

    def samples(
        self, generator: np.random.Generator, count: int, tilts: tuple[float, float]
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Losses and logarithms of weights, [count] each, of a removed and of an added client.

        Both directions share the noise, as only the mean of each counts.
        """
        s, r = tilts
        loss, weight = np.zeros(count), np.zeros(count)
        gain, counterweight = np.zeros(count), np.zeros(count)
        for part in self.parts:
            noise = part.noise(generator, count)
            half = part.gram.diagonal() / 2
            towards = part.gram.mean(axis=0)
            # <v, y> for y = noise - r v, and log dQ/dR.
            along = noise.mean(axis=1) - r * part.gram.mean()
            counterweight += r * along + r * r * part.gram.mean() / 2
            gain -= _log_mean_exp(noise - (half + r * towards))
            component = generator.integers(len(half), size=count)
            products = np.add(noise, s * part.gram[component], out=noise)
            if s == 1:
                loss += _log_mean_exp(np.subtract(products, half, out=products))
                continue
            tilted = _log_mean_exp(s * products - s * s * half)
            ratio = _log_mean_exp(np.subtract(products, half, out=products))
            loss += ratio
            weight += ratio - tilted
        return (loss, weight), (gain, counterweight)


class _Range(NamedTuple):
    """How large the weighted payoff of a sample can be.

    A weight is at most `exp(most - order * loss)`. Times `1 - exp(epsilon - loss)`, that is largest
    at `loss = epsilon + log(1 + 1 / order)`.

    Attributes:
      order, most: of the weight.
      at_best: logarithm of the payoff there, minus `order` times that logarithm.
      end: of the grid; larger losses count as infinite.
    """

    order: float
    most: float
    at_best: float
    end: float

    def log_largest(self, epsilon: float) -> float:
        """Logarithm of the largest weighted payoff, if losses were rounded up to the grid."""
        # Rounding a loss up by less than this is like lowering epsilon by it.
        rounding = self.end / _POINTS + 2 * _LOSS_ROUNDING
        within = self.at_best - self.order * (epsilon - rounding)
        return self.most + max(within, -self.order * self.end) + 2 * _LOSS_ROUNDING


def _entropy(order: float, above: float) -> float:
    """`above log(above) - order log(order)` for `above = order + 1`."""
    return float(special.xlogy(above, above) - special.xlogy(order, order))


def _log_mean_exp(values: np.ndarray) -> np.ndarray:
    """Logarithm of the mean of exponentials of each row; overwrites the values."""
    largest = values.max(axis=1)
    np.exp(np.subtract(values, largest[:, None], out=values), out=values)
    return np.log(values.mean(axis=1)) + largest


# Sums of the weights of samples by their loss, rounded up to the grid, [_POINTS + 2]. The last
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
    width = max(len(part.gram) for part in release.parts)
    chunk = max(1, _CHUNK_ENTRIES // width)
    sizes = [min(chunk, count - first) for first in range(0, count, chunk)]

    def of_chunk(place: int) -> tuple[_Sums, _Sums]:
        generator = np.random.default_rng([*stream, place])
        both = release.samples(generator, sizes[place], tilts)
        removed, added = (_binned(*each, release.end / _POINTS) for each in both)
        return removed, added

    removed, added = np.zeros(_POINTS + 2), np.zeros(_POINTS + 2)
    done = 0
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as threads:
        # `map` returns the chunks in order, so that sums of floats do not depend on timing.
        for place, (first, second) in enumerate(threads.map(of_chunk, range(len(sizes)))):
            removed += first
            added += second
            done += sizes[place]
            on_progress(done / count)
    return removed, added


def _binned(losses: np.ndarray, log_weights: np.ndarray, step: float) -> _Sums:
    counted = losses > -_LOSS_ROUNDING  # Smaller ones pay nothing at epsilons from 0 on.
    places = np.ceil((losses[counted] + _LOSS_ROUNDING) / step)
    places = np.clip(places, 0, _POINTS + 1).astype(np.int64)
    weights = np.exp(log_weights[counted] + _LOSS_ROUNDING)
    return np.bincount(places, weights, _POINTS + 2)


def _epsilon_of(
    sums: _Sums, payoffs: _Range, samples: int, delta: float, failure: float
) -> float:
    """Least epsilon whose upper bound of the divergence is at most delta; infinity if none is.

    `failure` is that of both directions, half of which this one may have.
    """
    grid = np.linspace(0, payoffs.end, _POINTS + 1)

    def is_shown(epsilon: float) -> bool:
        largest = math.exp(min(payoffs.log_largest(epsilon), 700.0))
        above = grid > epsilon
        paid = float(sums[:-1][above] @ -np.expm1(epsilon - grid[above])) + float(sums[-1])
        return upper_bound(paid / samples, largest, samples, failure / 2) <= delta

    low, high = 0.0, payoffs.end
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
    """Tilts that would give the least epsilon, by samples of their own."""

    def outcome(tilts: tuple[float, float]) -> tuple[float, float]:
        samples = min(_PILOT_SAMPLES, count)
        removed, added = _sums(release, tilts, samples, (_PILOT, seed))
        # As if the large sample had the same mean.
        common = (count, delta, failure)
        scale = count / samples
        return (
            _epsilon_of(scale * removed, release.removed_range(tilts[0]), *common),
            _epsilon_of(scale * added, release.added_range(tilts[1]), *common),
        )

    size = max(len(_TILTS), len(_COUNTER_TILTS))
    pairs = [(_TILTS[i % len(_TILTS)], _COUNTER_TILTS[i % len(_COUNTER_TILTS)]) for i in range(size)]
    found = [outcome(pair) for pair in pairs]
    removed = min(range(size), key=lambda i: found[i][0])
    added = min(range(size), key=lambda i: found[i][1])
    return pairs[removed][0], pairs[added][1]
