"""Checks of sensitivities and epsilons against the oracle: none may be below the truth."""

import math

import numpy as np

from dpfl import Participation, accounting, mechanisms
from tests.attacks.hostile import oracle
from tests.attacks.hostile.target import require

# Relative error of what the oracle computes, for factors that are neither tiny nor huge.
_TOLERANCE = 1e-9


def check_mechanism(mechanism: mechanisms.Mechanism, rng) -> None:
    """Checks round trip and digest, and the sensitivity of a small mechanism.

    Raises:
      WrongResultError: if one of them is wrong.
    """
    require(mechanisms.from_dict(mechanism.to_dict()).digest() == mechanism.digest(), 'round trip')
    rounds = mechanism.rounds
    if rounds > oracle.MOST_ROUNDS:
        return
    separation, most = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    stops = rounds if rng.integers(2) else int(rng.integers(1, rounds + 1))
    if mechanism.name == 'full_honaker_tree' or mechanism.name == 'restarted':
        stops = rounds
    bound = mechanism.sensitivity_bound(Participation(stops, separation, most))
    require_sensitivity(mechanism, stops, separation, most, bound.squared)


def require_sensitivity(mechanism, rounds: int, separation: int, most: int, squared: float) -> None:
    """Raises WrongResultError if a squared sensitivity is below the truth."""
    with np.errstate(all='ignore'):
        mechanism = mechanism.with_rounds(rounds)
        values = mechanism.to_dict()
        if values.get('released') == 'nodes':
            matrix = oracle.nodes(rounds)
        else:
            matrix = oracle.strategy_matrix(values)
        if matrix is None:
            matrix = mechanism.released_matrix()
        truth = oracle.squared_sensitivity(matrix, rounds, separation, most)
    require(
        squared >= truth * (1 - _TOLERANCE) or truth > 1e280,
        f'{values}: squared sensitivity {squared} for b={separation}, k={most}, n={rounds}: '
        f'the truth is at least {truth}',
    )


def true_epsilon(plan: accounting.PrivacyPlan, delta: float) -> float | None:
    """The true epsilon of a plan, from the oracle; None if the oracle cannot compute it."""
    rounds = plan.participation.rounds
    if plan.sampling is not None or rounds > oracle.MOST_ROUNDS or not plan.noise_multiplier:
        return None
    mechanism = plan.mechanism
    if mechanism.rounds > oracle.MOST_ROUNDS:
        mechanism = mechanism.with_rounds(rounds)
    matrix = oracle.strategy_matrix(mechanism.to_dict())
    if matrix is None:
        matrix = mechanism.strategy_matrix()
    norm = 1.0
    if plan.discretization is not None:
        norm = plan.discretization.inflated_norm / plan.clip_norm
    factor = norm * (2 if plan.adjacency == 'replace_one' else 1)
    squared = oracle.squared_sensitivity(
        matrix[:rounds, :rounds],
        rounds,
        plan.participation.min_separation,
        plan.participation.count,
    )
    mu = factor * math.sqrt(squared) / plan.noise_multiplier
    # If doubles cannot hold exp(epsilon), there is nothing to compare.
    return oracle.epsilon(mu, delta) if 1e-6 < mu < 20 and delta > 1e-200 else None


def check_plan(plan: accounting.PrivacyPlan, deltas) -> None:
    """Raises WrongResultError if the epsilon of a plan is below the true one."""
    truth = true_epsilon(plan, deltas[0])
    if truth is not None:
        for accountant in ('analytic_gaussian', 'rdp'):
            stated = plan.epsilon(deltas[0], accountant)
            require(stated >= truth * (1 - 1e-6) - 1e-12, f'{accountant}: {stated} < {truth}')
