"""Epsilon of mixtures of Gaussians by Monte Carlo, as an upper bound with a stated confidence.

`Estimated` is what kinds of sampling with such an epsilon have in common. Long estimates are kept
on disk.

The divergences of both directions are means of weighted payoffs whose largest value is known
(`Range`). The Chernoff bound for bounded variables ([Hoeffding63], theorem 1) turns the mean of
the samples into an upper bound of the divergence. It falls with epsilon, so the epsilon at which it
meets delta is too small only if the bound fails at one fixed epsilon, the true one: nothing is lost
by trying many.
"""

import abc
import concurrent.futures
import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np
import scipy

from dpfl import _cache, _progress, _validate, errors
from dpfl.accounting import dp, gaussian
from dpfl.accounting.sampling import base
from dpfl.mechanisms import rounding

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

# Points of the grid to which losses are rounded up.
_POINTS = 2**16
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
# Part of every key: raised when the estimate of the same plan changes.
_VERSION = 1
# Products of samples and components above which a progress bar is shown, and the result kept.
_LONG_SEARCH_COST = 2e8
# The first part of a search for noise takes one in `_SHARE` of the samples, but at least `_FEW`. It
# ends within the share `_COARSE` of the noise.
_SHARE, _FEW, _COARSE = 64, 20_000, 0.03
# Of the second part: most estimates, how near to the target is enough, and the largest change of
# the logarithm of epsilon for one of noise.
_STEPS, _CLOSE, _STEEPEST = 4, 0.99, 8.0
# So small that the bound of the search almost certainly is above that of the guarantee.
_FAILURE_OF_SEARCH = 1e-24
# Noise is rounded up by this share.
_NOISE_ROUNDING = 1e-8


class Range(NamedTuple):
    """How large the weighted payoff of a sample can be.

    A weight is at most `exp(most - order * loss)`. Times `1 - exp(epsilon - loss)`, that is largest
    at `loss = epsilon + log(1 + 1 / order)`.

    Attributes:
      order, most: of the weight.
      at_best: logarithm of the payoff there, minus `order` times that logarithm.
      end: of the grid; larger losses count as infinite.
      loss_rounding: what is added to losses, and to logarithms of weights, for their rounding.
    """

    order: float
    most: float
    at_best: float
    end: float
    loss_rounding: float

    def log_largest(self, epsilon: float) -> float:
        """Logarithm of the largest weighted payoff, if losses were rounded up to the grid."""
        # Rounding a loss up by less than this is like lowering epsilon by it.
        rounding = self.end / _POINTS + 2 * self.loss_rounding
        within = self.at_best - self.order * (epsilon - rounding)
        return self.most + max(within, -self.order * self.end) + 2 * self.loss_rounding


# Losses and logarithms of weights of samples, [samples] each.
Samples = tuple[np.ndarray, np.ndarray]


class Release(abc.ABC):
    """Mixtures in units of the noise, the grid of their losses, and samples from two proposals.

    With A = dP/dQ, the density ratio B of a proposal to Q is at least A^s / Z for a proposal for P
    with the tilt s, and `A^-r exp(-r h / 2 - r^2 |v|^2 / 2)` for one for Q with the tilt r; see
    `balls_in_bins`.

    Attributes:
      rounding: added to losses, and to logarithms of weights.
      width: entries of memory that a sample takes.
      largest: g, the largest squared norm of a mean.
      mean_square: h, the mean of the squared norms.
      square_of_mean: |v|^2, the squared norm of the mean.
    """

    rounding: ClassVar[float]
    width: int
    largest: float
    mean_square: float
    square_of_mean: float

    @property
    def end(self) -> float:
        """End of the grid of losses: where the farthest mean alone has no mass left."""
        return self.largest / 2 + 14.0 * math.sqrt(self.largest)

    @abc.abstractmethod
    def most_log_total(self, tilt: float) -> float:
        """Upper bound on the logarithm of Z."""

    def removed_range(self, tilt: float) -> Range:
        """Of payoffs of samples from the proposal for P."""
        return self._range(tilt - 1, tilt, self.most_log_total(tilt))

    def added_range(self, tilt: float) -> Range:
        """Of payoffs of samples from the proposal for Q."""
        most = tilt * self.mean_square / 2 + tilt**2 * self.square_of_mean / 2
        return self._range(tilt, tilt + 1, most)

    def _range(self, order: float, above: float, most: float) -> Range:
        """The range for weights of this order; `above` is `order + 1`."""
        at_best = scipy.special.xlogy(order, order) - scipy.special.xlogy(above, above)
        return Range(order, most, float(at_best), self.end, self.rounding)

    @abc.abstractmethod
    def samples(
        self, generator: np.random.Generator, count: int, tilts: tuple[float, float]
    ) -> tuple[Samples, Samples]:
        """Samples of a removed and of an added client, `count` of each.

        Both directions share the noise, as only the mean of each counts.

        Raises:
          OverflowError: if rounding may have been larger than is allowed for.
        """


class Mixed(Protocol):
    """What a client releases, in clip norms.

    Attributes:
      squared_norm: the largest of a mean.
      cost: of one sample, in units of one component of a mixture.
      is_mixed: whether there are several means.
      key: JSON values that tell it from all others of its kind.
    """

    @property
    def squared_norm(self) -> float: ...

    @property
    def cost(self) -> int: ...

    @property
    def is_mixed(self) -> bool: ...

    @property
    def key(self) -> list: ...

    def __hash__(self) -> int: ...

    def release(self, stddev: float) -> Release:
        """The same in units of the noise."""


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


def _samples_for(mixtures: Mixed) -> int:
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
    release = mixtures.release(stddev)
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
    release: Release,
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
        step, sums = release.end / _POINTS, []
        for losses, log_weights in release.samples(generator, sizes[place], tilts):
            counted = losses > -release.rounding  # Smaller ones pay nothing at epsilons from 0 on.
            places = np.ceil((losses[counted] + release.rounding) / step)
            places = np.clip(places, 0, _POINTS + 1).astype(np.int64)
            weights = np.exp(log_weights[counted] + release.rounding)
            sums.append(np.bincount(places, weights, _POINTS + 2))
        return sums[0], sums[1]

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
    grid = np.linspace(0, ranges[0].end, _POINTS + 1)

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
        entropy = scipy.special.rel_entr(share, middle) + scipy.special.rel_entr(
            1 - share, 1 - middle
        )
        low, high = (middle, high) if entropy <= budget else (low, middle)
    return high * largest * (1 + _ROUNDING)


def _best_tilts(
    release: Release, delta: float, count: int, seed: int, failure: float
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimated(base.Sampling):
    """Sampling that releases mixtures of Gaussians, whose epsilon is an estimate.

    Attributes:
      groups: b, of the kind.
    """

    is_attained = False
    has_own_bound: ClassVar[bool] = True
    caveat: ClassVar[str] = (
        'Epsilon is an estimate by Monte Carlo, an upper bound but for a failure probability of '
        f'{FAILURE:g} over the choice of its samples (docs/reference/sampling.md).'
    )

    groups: int

    @abc.abstractmethod
    def mixtures(self, plan: 'PrivacyPlan') -> Mixed:
        """What the rounds of a plan release about one client, in clip norms."""

    def _check(self, plan: 'PrivacyPlan') -> None:
        for part in plan.other_parts(self):
            if part.changes_run:
                raise errors.ArgumentError(
                    'sampling',
                    self.name,
                    'has a guarantee that is estimated, which cannot be composed with '
                    f'{part.words}',
                )

    def norm(self, plan: 'PrivacyPlan') -> float:
        """The norm of all rounds of a client."""
        return rounding.root_up(self.mixtures(plan).squared_norm)

    def event(self, plan: 'PrivacyPlan', noise_multiplier: float) -> dp.Event:
        """The release without amplification: no `DpEvent` describes this sampling."""
        return dp.GaussianDpEvent(noise_multiplier / plan.shift / self.norm(plan))

    def estimate(self, plan: 'PrivacyPlan', delta: float) -> Estimate:
        """Epsilon of a plan with noise, without regard to earlier runs.

        It is the same in every call: samples and seed are constants of this version. Long ones are
        kept in the directory of `dpfl._cache`.
        """
        return _estimate(self.mixtures(plan), plan.noise_multiplier / plan.shift, delta)

    def bound(self, plan: 'PrivacyPlan', delta: float) -> gaussian.Bound:
        """`estimate` as a bound, and how it was found."""
        estimate = self.estimate(plan, delta)
        accountant = 'monte_carlo' if estimate.is_amplified else 'analytic_gaussian'
        return gaussian.Bound(estimate.epsilon, accountant)

    def noise_for(self, plan: 'PrivacyPlan', epsilon: float, delta: float) -> float:
        return noise_multiplier(self.mixtures(plan), plan.shift, epsilon, delta)

    @property
    def turn(self) -> int:
        return self.groups

    def accounted(self, plan: 'PrivacyPlan', deltas: Sequence[float]) -> list[str]:
        """What is estimated, and with which confidence."""
        items = [
            'A client releases a mixture of Gaussians, one of each set of rounds in which it may '
            'take part. Updates that point in one direction, through the absolute values of the '
            'strategy C, are the worst (docs/reference/sampling.md).'
        ]
        for delta in deltas if plan.noise_multiplier else ():
            each, at = self.estimate(plan, delta), rounding.shown_delta(delta)
            if each.is_amplified:
                items.append(
                    f'Epsilon at delta = {at} IS AN ESTIMATE from {each.samples} random '
                    f'samples of each direction with seed {each.seed}. It is an upper confidence '
                    'bound: over the choice of the samples, the probability that it is too small '
                    f'is at most {each.failure:g}. That does not cover a plan that was tuned until '
                    'its estimate was small, since the seed is public and always the same; it '
                    'covers the noise for a target epsilon, which is searched with samples of '
                    'another seed. Without the sampling of clients, epsilon is certainly at most '
                    f'{rounding.round_up(each.unamplified)}.'
                )
            else:
                items.append(
                    f'Epsilon at delta = {at} is the one without amplification: the '
                    'samples of the estimate did not show a smaller one.'
                )
        return items


def noise_multiplier(mixed: Mixed, shift: float, epsilon: float, delta: float) -> float:
    """About the least noise multiplier whose estimate meets a target.

    The search uses samples of another seed than `Estimated.estimate`, whose estimate of the result
    is the only one that the guarantee relies on. So its failure probability is that of a given
    noise multiplier. If that estimate misses the target, which margins of the search make
    improbable, the result is the noise that certainly suffices without amplification. A search
    costs about as much as five estimates; all of them are kept on disk.

    Args:
      mixed: what a plan releases.
      shift: of the plan.
      epsilon: target, above 0.
      delta: strictly between 0 and 1.

    Raises:
      ValueError: if an argument is out of its range.
    """
    mu = gaussian.mu_from_epsilon(epsilon, delta, 'analytic_gaussian')
    certain = math.sqrt(mixed.squared_norm) / mu * (1 + _NOISE_ROUNDING)
    samples = _samples_for(mixed)
    few = max(samples // _SHARE, min(samples, _FEW))

    def searched(stddev: float, count: int, failure: float) -> float:
        return _estimate(mixed, stddev, delta, count, SEED + 1, failure).epsilon

    # Few samples show less, so that they find more noise than is necessary.
    low, high = certain / 2, certain
    while searched(low, few, FAILURE) <= epsilon:
        low, high = low / 2, low
    while high > low * (1 + _COARSE):
        middle = math.sqrt(low * high)
        shown = searched(middle, few, FAILURE)
        low, high = (low, middle) if shown <= epsilon else (middle, high)
    # From there down by all samples, along a line through the last two estimates.
    smallest, stddev, before = high, high, None
    for _ in range(_STEPS):
        reached = searched(stddev, samples, _FAILURE_OF_SEARCH)
        if reached <= epsilon:
            smallest = min(smallest, stddev)
        if not 0 < reached < math.inf or _CLOSE * epsilon <= reached <= epsilon:
            break
        point = math.log(stddev), math.log(reached)
        slope = -1.0
        if before is not None and point[0] != before[0]:
            slope = (point[1] - before[1]) / (point[0] - before[0])
        # Epsilon falls with noise; a slope is not trusted beyond what is usual.
        slope = min(max(slope, -_STEEPEST), -1 / _STEEPEST)
        aim = math.log(epsilon * (1 + _CLOSE) / 2)
        stddev = min(math.exp(point[0] + (aim - point[1]) / slope), certain)
        before = point
    multiplier = smallest * shift
    is_met = _estimate(mixed, multiplier / shift, delta).epsilon <= epsilon
    return multiplier if is_met else certain * shift


@functools.lru_cache(64)
def _estimate(
    mixed: Mixed,
    stddev: float,
    delta: float,
    samples: int | None = None,
    seed: int = SEED,
    failure: float = FAILURE,
) -> Estimate:
    samples = samples or _samples_for(mixed)
    is_long = samples * mixed.cost > _LONG_SEARCH_COST

    def compute() -> Estimate:
        with _progress.bar(
            desc='epsilon', total=samples, unit='sample', leave=False, disable=not is_long
        ) as bar:
            return epsilon(
                mixed,
                stddev,
                delta,
                samples=samples,
                seed=seed,
                failure=failure,
                on_progress=lambda share: bar.update(round(share * samples) - bar.n),
            )

    if not is_long:
        return compute()
    key = json.dumps([_VERSION, mixed.key, stddev, delta, samples, seed, failure])
    return _cache.cached_json(
        'estimate', key, compute, from_values=_from_values, to_values=dataclasses.asdict
    )


def _from_values(values: dict) -> Estimate:
    return Estimate(**{**values, 'tilts': tuple(values['tilts'])})
