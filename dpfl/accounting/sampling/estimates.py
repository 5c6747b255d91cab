"""Estimates of epsilon for plans with balls in bins or random allocation, kept on disk."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
import tempfile

import tqdm

from dpfl import _files
from dpfl.accounting.gaussian import Bound
from dpfl.accounting.plan_values import PlanValues
from dpfl.accounting.sampling import bins, monte_carlo
from dpfl.accounting.sampling.bins import Mixtures
from dpfl.accounting.sampling.monte_carlo import Estimate
from dpfl.mechanisms import Mechanism
from dpfl.mechanisms.optimize import cache

# Part of every key: raised when the estimate of the same plan changes.
_VERSION = 1
# Products of samples and components above which a progress bar is shown, and the result kept.
_LONG = 2e8


@functools.lru_cache(4)
def _mixtures(mechanism: Mechanism, sampling: str, groups: int) -> Mixtures:
    return bins.of_mechanism(mechanism, sampling, groups)


def mixtures(plan: PlanValues) -> Mixtures:
    """What the rounds of a plan release about one client, in clip norms."""
    assert plan.groups is not None  # As checked with these samplings.
    mechanism = plan.mechanism.with_rounds(plan.participation.rounds)
    return _mixtures(mechanism, plan.sampling, plan.groups)


def bound(plan: PlanValues, delta: float) -> Bound:
    """Epsilon of a plan with noise at a delta, and how it was found; see `of_plan`."""
    found = of_plan(plan, delta)
    return Bound(found.epsilon, 'monte_carlo' if found.is_amplified else 'analytic_gaussian')


def of_plan(plan: PlanValues, delta: float) -> Estimate:
    """The estimate for a plan with noise, without regard to earlier runs.

    It is the same in every call: samples and seed are constants of this version. Long ones are kept
    in the directory of `mechanisms.optimize.cache`.
    """
    return _estimate(mixtures(plan), plan.noise_multiplier / plan.shift, delta)


@functools.lru_cache(64)
def _estimate(mixed: Mixtures, stddev: float, delta: float) -> Estimate:
    samples = monte_carlo.samples_for(mixed)
    is_long = samples * sum(len(gram) for gram in mixed.grams) > _LONG
    directory = cache.cache_directory() if is_long else None
    if directory is None:
        return _computed(mixed, stddev, delta, samples, is_long)
    grams = [cache.array_key(gram) for gram in mixed.grams]
    fields = [_VERSION, grams, stddev, delta]
    fields += [samples, monte_carlo.SEED, monte_carlo.FAILURE]
    key = json.dumps(fields)
    path = directory / f'estimate-{hashlib.sha256(key.encode()).hexdigest()}.json'
    with contextlib.suppress(Exception):  # A damaged file is computed again.
        kept = json.loads(_files.read_text(path))
        values = {**kept['estimate'], 'tilts': tuple(kept['estimate']['tilts'])}
        if kept['seal'] == _seal(key, kept['estimate']):
            return Estimate(**values)
    found = _computed(mixed, stddev, delta, samples, is_long)
    # On a full disk, or in a directory without write permission, the result is still returned.
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        values = json.loads(json.dumps(dataclasses.asdict(found)))
        handle, name = tempfile.mkstemp(dir=directory, prefix='.unfinished-')
        with os.fdopen(handle, 'w') as file:
            json.dump({'estimate': values, 'seal': _seal(key, values)}, file)
        os.replace(name, path)
    return found


def _seal(key: str, values: dict) -> str:
    """Digest of the arguments that an entry was made for, and of its numbers."""
    return hashlib.sha256(f'{key} {json.dumps(values, sort_keys=True)}'.encode()).hexdigest()


def _computed(
    mixed: Mixtures, stddev: float, delta: float, samples: int, is_long: bool
) -> Estimate:
    with tqdm.tqdm(
        total=1.0, disable=not (is_long and sys.stderr.isatty()), desc='epsilon', leave=False
    ) as bar:
        return monte_carlo.epsilon(
            mixed,
            stddev,
            delta,
            samples=samples,
            on_progress=lambda share: bar.update(share - bar.n),
        )
