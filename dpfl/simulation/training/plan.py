"""Builds the privacy plan of a run from its configuration. Does not import TensorFlow."""

from collections.abc import Callable
from typing import Any

from dpfl import accounting, mechanisms
from dpfl.errors import ArgumentError, renaming
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.mechanism import AUTO, NONE
from dpfl.simulation.training.privacy_config import AMOUNTS, PrivacyConfig
from dpfl.simulation.training.round_config import SamplingConfig, participation, required

# (first, every): the restarts of adaptive clipping in [Xu23], algorithm 1.
ADAPTIVE_RESTARTS = (128, 1024)


def build_plan(
    privacy: PrivacyConfig,
    sampling: SamplingConfig,
    *,
    population: Callable[[], int],
    dimension: Callable[[], int],
    on_choice: Callable[[list], None] = lambda candidates: None,
    earlier: tuple[accounting.PrivacyPlan, ...] = (),
    before: tuple[accounting.ReleaseBefore, ...] = (),
) -> accounting.PrivacyPlan:
    """The privacy plan of a run.

    Args:
      privacy: mechanism, noise and clipping.
      sampling: schema and cohorts.
      population: returns the number of clients; only called if the guarantee relies on sampling.
      dimension: returns the number of parameters of the model; only called for mechanism 'auto' and
        for secure aggregation.
      on_choice: called with the candidates of mechanism 'auto', the chosen one first.
      earlier: plans of the runs that the run continues from.
      before: the releases of the run before its first round.

    Raises:
      ArgumentError: if values are missing, not allowed, or contradict each other.
    """
    schema = participation(sampling)
    clipping, cohort = privacy.clipping_fields(), sampling.clients_per_round
    restarts = ADAPTIVE_RESTARTS if privacy.adaptive_clip else None
    is_silent = privacy.mechanism == NONE
    if is_silent:
        mechanism = mechanism_lib.with_restarts(
            mechanisms.Identity(schema.rounds), privacy, restarts
        )
    elif privacy.mechanism == AUTO:
        chosen, candidates = mechanisms.choose(
            schema,
            dimension(),
            privacy.memory_limit,
            noise=privacy.noise,
        )
        on_choice(candidates)
        mechanism = mechanism_lib.with_restarts(chosen, privacy, restarts)
    else:
        required(privacy, 'mechanism')
        # With amplification a mechanism is not best for the schema, but for the sampling.
        optimize_for = None if sampling.is_amplified else schema
        mechanism = mechanism_lib.build(privacy, schema.rounds, restarts, optimize_for)
    fields: dict[str, Any] = dict(
        mechanism=mechanism,
        participation=schema,
        clients_per_round=cohort,
        adjacency=privacy.adjacency,
        noise=privacy.noise,
        earlier=earlier,
        before=before,
        **clipping,
    )
    fields |= sampling.plan_fields(mechanism, schema, population)
    if privacy.secagg:
        fields['discretization'] = privacy.discretization(privacy.clip_norm, cohort, dimension())
    elif privacy.model_dimension is not None:
        raise ArgumentError('model_dimension', privacy.model_dimension, 'needs secagg')
    plan = _with_noise(privacy, is_silent, fields)
    check_adapts(privacy, plan)
    return plan


def check_adapts(privacy: PrivacyConfig, plan: accounting.PrivacyPlan) -> None:
    """Checks that an adaptive clip norm can change in one round of the plan at least.

    Raises:
      ArgumentError: if not; it names `rounds` and the number that would do.
    """
    if not privacy.adaptive_clip or plan.fresh_rounds:
        return
    rounds = plan.participation.rounds
    if plan.mechanism.is_independent:
        raise ArgumentError('rounds', rounds, 'must be >= 2 for adaptive_clip')
    first = ADAPTIVE_RESTARTS[0] if privacy.restart_first is None else privacy.restart_first
    raise ArgumentError(
        'rounds',
        rounds,
        f'must be >= {first + 2} for adaptive_clip, whose clip norm first changes after the round '
        f'restart_first={first}, counted from 0; a smaller restart_first needs fewer rounds',
    )


def check_schedule(plan: accounting.PrivacyPlan) -> None:
    """Checks that all clip norms of a schedule are for rounds of the run; others are never used.

    Raises:
      ArgumentError: if not; it names the last round.
    """
    last = plan.participation.rounds - 1
    if plan.clip_schedule and plan.clip_schedule[-1][0] > last:
        raise ArgumentError(
            'clip_schedule',
            ','.join(f'{first}:{norm:g}' for first, norm in plan.clip_schedule),
            f'must have no round after {last}, the last one, counted from 0',
        )


def _with_noise(privacy: PrivacyConfig, is_silent: bool, fields: dict) -> accounting.PrivacyPlan:
    noise, target = privacy.noise_multiplier, privacy.target_epsilon
    if is_silent:
        name = next((name for name in AMOUNTS if getattr(privacy, name) is not None), None)
        if name is not None:
            raise ArgumentError(name, getattr(privacy, name), 'mechanism=none has no noise')
        return accounting.PrivacyPlan(noise_multiplier=0.0, **fields)
    silent_plan = accounting.PrivacyPlan(noise_multiplier=0.0, **fields)
    if target is None:
        noise = required(privacy, 'noise_multiplier') if noise is None else noise
        return accounting.PrivacyPlan(noise_multiplier=noise, **fields)
    method = privacy.accountant_of(silent_plan)
    with renaming(epsilon='target_epsilon'):
        return accounting.PrivacyPlan.calibrated(
            epsilon=target, delta=privacy.delta, accountant=method, **fields
        )
