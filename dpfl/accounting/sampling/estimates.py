"""Kinds of sampling whose epsilon is estimated by Monte Carlo; estimates are kept on disk."""

import abc
import dataclasses
import functools
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import dp_accounting

from dpfl import _cache, _progress, errors
from dpfl.accounting import gaussian
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.sampling import base, monte_carlo
from dpfl.accounting.sampling.bins import Mixtures
from dpfl.accounting.sampling.monte_carlo import Estimate, Mixed
from dpfl.mechanisms import rounding

if TYPE_CHECKING:
    from dpfl.accounting.plan import PrivacyPlan

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
_ROUNDING = 1e-8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimated(base.Sampling):
    """Sampling that releases mixtures of Gaussians, whose epsilon is an estimate.

    Attributes:
      groups: b, of the kind.
    """

    has_own_bound: ClassVar[bool] = True
    caveat: ClassVar[str] = (
        'Epsilon is an estimate by Monte Carlo, an upper bound but for a failure probability of '
        f'{monte_carlo.FAILURE:g} over the choice of its samples (docs/reference/sampling.md).'
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

    def is_attained(self) -> bool:
        return False

    def norm(self, plan: 'PrivacyPlan') -> float:
        """The norm of all rounds of a client."""
        return rounding.root_up(self.mixtures(plan).squared_norm)

    def event(self, plan: 'PrivacyPlan', noise_multiplier: float) -> dp_accounting.DpEvent:
        """The release without amplification: no `DpEvent` describes this sampling."""
        return dp_accounting.GaussianDpEvent(noise_multiplier / plan.shift / self.norm(plan))

    def estimate(self, plan: 'PrivacyPlan', delta: float) -> Estimate:
        """Epsilon of a plan with noise, without regard to earlier runs.

        It is the same in every call: samples and seed are constants of this version. Long ones are
        kept in the directory of `dpfl._cache`.
        """
        return _estimate(self.mixtures(plan), plan.noise_multiplier / plan.shift, delta)

    def bound(self, plan: 'PrivacyPlan', delta: float) -> Bound:
        """`estimate` as a bound, and how it was found."""
        estimate = self.estimate(plan, delta)
        accountant = 'monte_carlo' if estimate.is_amplified else 'analytic_gaussian'
        return Bound(estimate.epsilon, accountant)

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
    certain = math.sqrt(mixed.squared_norm) / mu * (1 + _ROUNDING)
    samples = monte_carlo.samples_for(mixed)
    few = max(samples // _SHARE, min(samples, _FEW))

    def searched(stddev: float, count: int, failure: float) -> float:
        return _estimate(mixed, stddev, delta, count, monte_carlo.SEED + 1, failure).epsilon

    # Few samples show less, so that they find more noise than is necessary.
    low, high = certain / 2, certain
    while searched(low, few, monte_carlo.FAILURE) <= epsilon:
        low, high = low / 2, low
    while high > low * (1 + _COARSE):
        middle = math.sqrt(low * high)
        shown = searched(middle, few, monte_carlo.FAILURE)
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
    seed: int = monte_carlo.SEED,
    failure: float = monte_carlo.FAILURE,
) -> Estimate:
    samples = samples or monte_carlo.samples_for(mixed)
    is_long = samples * mixed.cost > _LONG_SEARCH_COST
    compute = functools.partial(_computed, mixed, stddev, delta, samples, seed, failure, is_long)
    if not is_long:
        return compute()
    key = json.dumps([_VERSION, _key(mixed), stddev, delta, samples, seed, failure])
    return _cache.cached_json(
        'estimate', key, compute, from_values=_from_values, to_values=dataclasses.asdict
    )


def _from_values(values: dict) -> Estimate:
    return Estimate(**{**values, 'tilts': tuple(values['tilts'])})


def _key(mixed: Mixed) -> list:
    if isinstance(mixed, Mixtures):
        return [_cache.array_key(gram) for gram in mixed.grams]
    return [_cache.array_key(mixed.matrix), mixed.separation, mixed.probability]


def _computed(
    mixed: Mixed,
    stddev: float,
    delta: float,
    samples: int,
    seed: int,
    failure: float,
    is_long: bool,
) -> Estimate:
    with _progress.bar(
        desc='epsilon', total=samples, unit='sample', leave=False, disable=not is_long
    ) as bar:
        return monte_carlo.epsilon(
            mixed,
            stddev,
            delta,
            samples=samples,
            seed=seed,
            failure=failure,
            on_progress=lambda share: bar.update(round(share * samples) - bar.n),
        )
