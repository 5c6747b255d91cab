"""Audit of an aggregator alone: thousands of trials of its real code, held against its plan.

It bounds from below how much the releases of all rounds tell about one client, and compares that
with the plan's guarantee. Nothing is trained, so it takes seconds; faults of clients and of the
training loop it cannot see.

Two attackers see all releases and know everything but whether the client took part. Each has
clients of its own, and half of the error, so the larger bound has the confidence:

- One relies on the plan (`aggregator_runs.likelihood_ratio`). Its client has the pattern that moves
  the releases most, and three quarters of the trials.
- One learns from half of its trials (`aggregator_runs.learned`). Its client takes part in the same
  rounds with other signs: two rounds with the same noise and the same update would cancel each
  other.

Both rely on independent trials. A third bound does not: `lower_bounds.mu_of_guesses` for the
clients of the first attacker, whose presence is decided by fair coins.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy

from dpfl import _json, _random, accounting, errors
from dpfl.accounting import gaussian
from dpfl.accounting.measured import sums
from dpfl.auditing import aggregator_runs, lower_bounds
from dpfl.auditing.config import AggregatorAuditConfig

# Coordinates of one run.
COORDINATES = 4096
# One trial in four of a run is for the attacker that learns.
_LEARNER_EVERY = 4
# Draws of wrong answers for a power.
_DRAWS = 400
_NO_NOISE = 1e-9
# Canaries for each guess, in the bound that does not need independent trials.
_CANARIES_FOR_A_GUESS = 10
# Probability with which a lower bound is not above the truth.
CONFIDENCE = 0.95
_ASSUMPTIONS = (
    'Trials are independent: noise is independent between coordinates and runs.',
    'The client has the largest update that clipping admits, in the rounds of the pattern, and '
    'all other clients are known.',
)
_SECAGG = (
    'Rounding to integers mixes coordinates: trials are independent up to the rounding of the '
    'other canaries.'
)
_SIMULATED = 'The noise has a seed: a simulation.'
_DEPENDENT = 'mu_lower_one_run does not assume that trials are independent.'


@dataclasses.dataclass(frozen=True)
class AggregatorAudit:
    """Result of an audit of an aggregator.

    Attributes:
      plan: the audited plan.
      config: how.
      delta: at which epsilon is given.
      epsilon_claimed: epsilon of the plan.
      mu_of_canaries: the largest mu that these canaries can show if all is as planned. It is below
        the claim if the claim counts more than is released, or is an upper bound.
      mu_lower: lower confidence bound on mu, for any distribution of the releases.
      mu_lower_one_run: lower confidence bound on mu that holds even if trials depend on each other.
      epsilon_lower: lower confidence bound on epsilon, for any distribution of the releases.
      method: the attacker that showed `mu_lower`: 'likelihood_ratio' or 'learned'.
      pattern: rounds of the canaries.
      present: trials with the client.
      trials: all trials.
      power: probability that `mu_lower` exceeds the claim, by fault; a lower bound, that of the
        likelihood ratio alone.
    """

    plan: accounting.PrivacyPlan
    config: AggregatorAuditConfig
    delta: float
    epsilon_claimed: float
    mu_of_canaries: float
    mu_lower: float
    mu_lower_one_run: float
    epsilon_lower: float
    method: str
    pattern: tuple[int, ...]
    present: int
    trials: int
    power: Mapping[str, float]

    @property
    def verdict(self) -> str:
        """'refuted', 'not refuted' or, if a fault could be there unseen, 'cannot tell'."""
        if self.exceeds_claim:
            return 'refuted'
        return 'cannot tell' if min(self.power.values()) < sums.LEAST_POWER else 'not refuted'

    @property
    def exceeds_claim(self) -> bool:
        """Whether a bound is above the claim: the plan's promise is broken, or bad luck.

        For a true claim the chance is at most twice the error: one for mu, one for epsilon.
        """
        return self.mu_lower > _mu(self.plan) or self.epsilon_lower > self.epsilon_claimed

    def to_dict(self) -> dict[str, Any]:
        """JSON values; infinite numbers are None."""
        assumptions = [*_ASSUMPTIONS, _DEPENDENT]
        if self.plan.discretization is not None:
            assumptions.append(_SECAGG)
        if self.config.seed is not None:
            assumptions.append(_SIMULATED)
        values = {
            'mechanism': self.plan.mechanism.name,
            'rounds': self.plan.participation.rounds,
            'pattern': list(self.pattern),
            'noise_multiplier': self.plan.noise_multiplier,
            'mu_claimed': _mu(self.plan),
            'mu_of_canaries': self.mu_of_canaries,
            'mu_lower': self.mu_lower,
            'mu_lower_one_run': self.mu_lower_one_run,
            'delta': self.delta,
            'epsilon_claimed': self.epsilon_claimed,
            'epsilon_lower': self.epsilon_lower,
            'epsilon_of_mu_lower': gaussian.epsilon_from_mu(
                self.mu_lower, self.delta, 'analytic_gaussian'
            ),
            'exceeds_claim': self.exceeds_claim,
            'verdict': self.verdict,
            'power': dict(self.power),
            'trials': self.trials,
            'present': self.present,
            'confidence': CONFIDENCE,
            'method': self.method,
            'seed': self.config.seed,
            'resume_after': self.config.resume_after,
            'assumptions': assumptions,
        }
        return {name: _json.finite(value) for name, value in values.items()}


def audit(
    plan: accounting.PrivacyPlan,
    config: AggregatorAuditConfig,
    delta: float,
    accountant: str = 'pld',
    on_round: Callable[[], object] = lambda: None,
) -> AggregatorAudit:
    """Audits the aggregator of a plan.

    Args:
      plan: with noise and without sampling. Its cohort must have room for the canaries of a run:
        `min(config.trials, coordinates(plan))` clients, times `group_size`.
      config: how many trials, and how they are run.
      delta: strictly between 0 and 1.
      accountant: of the claimed epsilon.
      on_round: called after each round of each run, `runs(plan, config)` times the rounds.

    Raises:
      ArgumentError: if the plan cannot be audited this way, or a value is not allowed.
    """
    _check(plan)
    matrix = plan.mechanism.with_rounds(plan.participation.rounds).strategy_matrix()
    worst = aggregator_runs.worst_pattern(matrix, plan.participation)
    for_plan, for_learner = _sequences(plan, config, worst, on_round)
    multiplier = plan.update_noise_multiplier
    # How far the client moves a round, in clip norms, without the increase by rounding.
    shift = plan.group_size * (2.0 if plan.adjacency == 'replace_one' else 1.0)
    reachable = shift * float(np.linalg.norm(matrix @ worst)) / multiplier
    planned = aggregator_runs.likelihood_ratio(for_plan, matrix, worst, multiplier)
    known, others = aggregator_runs.learned(*for_learner.halves(), matrix, multiplier)
    # Each attacker has half of the error.
    confidence = 1 - (1 - CONFIDENCE) / 2

    def largest(measure: lower_bounds.Measure) -> dict[str, float]:
        tests = others.present.size, others.absent.size
        chosen = lower_bounds.chosen_threshold(known.present[0], known.absent[0], measure, tests)
        tests = planned[0].size, planned[1].size
        fixed = lower_bounds.planned_threshold(reachable, measure, tests)
        # Without the client the mean is 0, or that of the opposite updates.
        fixed -= reachable / 2 if plan.adjacency == 'replace_one' else 0.0
        return {
            'likelihood_ratio': float(measure(lower_bounds.count(*planned, fixed))),
            'learned': float(
                measure(lower_bounds.count(others.present[0], others.absent[0], chosen))
            ),
        }

    mus = largest(functools.partial(lower_bounds.mu, confidence=confidence))
    epsilons = largest(functools.partial(lower_bounds.epsilon, delta=delta, confidence=confidence))
    method = max(mus, key=lambda name: mus[name])
    present, absent = (
        sum(sequences[kind].shape[1] for sequences in (for_plan, for_learner)) for kind in (0, 1)
    )
    return AggregatorAudit(
        plan=plan,
        config=config,
        delta=delta,
        epsilon_claimed=plan.epsilon(delta, accountant),
        mu_of_canaries=reachable,
        mu_lower=mus[method],
        mu_lower_one_run=_one_run(*planned),
        epsilon_lower=max(epsilons.values()),
        method=method,
        pattern=tuple(np.flatnonzero(worst).tolist()),
        present=present,
        trials=present + absent,
        power=_powers(plan, reachable, (planned[0].size, planned[1].size), confidence),
    )


def _powers(
    plan: accounting.PrivacyPlan, reachable: float, tests: tuple[int, int], confidence: float
) -> dict[str, float]:
    """Probability that the bound of the likelihood ratio exceeds the claim, by fault.

    Statistics are then normal with a known mean, so that wrong answers are binomial.

    Args:
      plan: that is audited.
      reachable: mu of the canaries if all is as planned.
      tests: trials with and without the client.
      confidence: of the bound.
    """
    measure = functools.partial(lower_bounds.mu, confidence=confidence)
    threshold = lower_bounds.planned_threshold(reachable, measure, tests)

    def rates(share: float, mean: float = reachable) -> np.ndarray:
        """Rates of wrong answers, without and with the client, for a share of the noise."""
        return scipy.special.ndtr(np.array([-threshold, threshold - mean]) / share)

    first = aggregator_runs.tensor_sizes(coordinates(plan))[0] / coordinates(plan)
    faults = {
        'half the noise': rates(0.5),
        'no noise': rates(_NO_NOISE),
        'noise on the first tensor only': first * rates(1.0) + (1 - first) * rates(_NO_NOISE),
        'no clipping': rates(1.0, aggregator_runs.LENGTH * reachable),
    }
    present, absent = tests
    random = _random.generator('audit power')
    powers = {}
    for name, (positive, negative) in faults.items():
        counts = lower_bounds.Counts(
            random.binomial(absent, positive, _DRAWS),
            absent,
            random.binomial(present, negative, _DRAWS),
            present,
        )
        powers[name] = float(np.mean(measure(counts) > _mu(plan)))
    return powers


def _one_run(present: np.ndarray, absent: np.ndarray) -> float:
    scores = np.concatenate([present, absent])
    is_present = np.arange(scores.size) < present.size
    count = max(1, scores.size // _CANARIES_FOR_A_GUESS)
    return lower_bounds.mu_of_guesses(
        scores.size, *lower_bounds.guessed(scores, is_present, count), CONFIDENCE
    )


def coordinates(plan: accounting.PrivacyPlan) -> int:
    """Most coordinates of one run: those of the discretization, if there is one."""
    return COORDINATES if plan.discretization is None else plan.discretization.dimension


def runs(plan: accounting.PrivacyPlan, config: AggregatorAuditConfig) -> int:
    """Number of runs of an audit. All have the same number of coordinates."""
    return math.ceil(config.trials / coordinates(plan))


def _sequences(
    plan: accounting.PrivacyPlan,
    config: AggregatorAuditConfig,
    worst: np.ndarray,
    on_round: Callable[[], object],
) -> tuple[aggregator_runs.Sequences, aggregator_runs.Sequences]:
    """The released sequences of the trials for either attacker."""
    count, most = runs(plan, config), coordinates(plan)
    size = most if plan.discretization is not None else math.ceil(config.trials / count)
    is_learner = np.arange(size) % _LEARNER_EVERY == _LEARNER_EVERY - 1
    patterns = np.where(is_learner, _without_repetition(worst)[:, None], worst[:, None])
    absence = -1.0 if plan.adjacency == 'replace_one' else 0.0
    by_kind: tuple[list, ...] = ([], [], [], [])
    for run in range(count):
        # A run of its own for each seed: equal seeds would give equal noise.
        seed = None if config.seed is None else config.seed * count + run
        rng = np.random.default_rng() if seed is None else _random.generator('audit', seed)
        is_present = rng.random(size) < 0.5
        released = aggregator_runs.released(
            plan,
            patterns * np.where(is_present, 1.0, absence),
            seed=seed,
            resume_after=config.resume_after,
            on_round=on_round,
        )
        kinds = [
            own & there for own in (~is_learner, is_learner) for there in (is_present, ~is_present)
        ]
        for parts, kind in zip(by_kind, kinds, strict=True):
            parts.append(released[:, kind])
    stacked = [np.hstack(parts) for parts in by_kind]
    return aggregator_runs.Sequences(*stacked[:2]), aggregator_runs.Sequences(*stacked[2:])


def _without_repetition(pattern: np.ndarray) -> np.ndarray:
    """The rounds of a pattern with signs that do not repeat: those of Thue and Morse, [rounds]."""
    rounds = np.flatnonzero(pattern)
    signs = np.zeros(pattern.size)
    signs[rounds] = [(-1.0) ** i.bit_count() for i in range(rounds.size)]
    return signs


def _check(plan: accounting.PrivacyPlan) -> None:
    if plan.sampling is not None:
        raise errors.ArgumentError('sampling', plan.sampling.name, 'must be none for an audit')
    if plan.earlier:
        raise errors.ArgumentError('earlier', errors.NOT_SHOWN, 'must be empty for an audit')
    if plan.before:
        raise errors.ArgumentError('before', errors.NOT_SHOWN, 'must be empty for an audit')
    if coordinates(plan) < _LEARNER_EVERY:
        raise errors.ArgumentError(
            'model_dimension', coordinates(plan), f'must be >= {_LEARNER_EVERY} for an audit'
        )
    if not plan.noise_multiplier:
        raise errors.ArgumentError('noise_multiplier', 0.0, 'must be > 0 for an audit')


def _mu(plan: accounting.PrivacyPlan) -> float:
    assert plan.mu is not None  # It is without sampling.
    return plan.mu
