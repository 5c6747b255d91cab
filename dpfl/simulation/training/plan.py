"""Builds the privacy plan of a run from its configuration. Does not import TensorFlow."""

from collections.abc import Callable
from typing import Any

from dpfl import accounting, mechanisms
from dpfl.errors import ArgumentError, renaming
from dpfl.simulation.training import mechanism as mechanism_lib
from dpfl.simulation.training.mechanism import AUTO, NONE
from dpfl.simulation.training.privacy_config import AMOUNTS, PrivacyConfig
from dpfl.simulation.training.round_config import SamplingConfig, participation, required


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
    is_silent = privacy.mechanism == NONE
    if is_silent:
        identity = mechanisms.Identity(schema.rounds)
        mechanism = mechanism_lib.with_restarts(identity, privacy)
    elif privacy.mechanism == AUTO:
        chosen, candidates = privacy.choose_mechanism(schema, dimension())
        on_choice(candidates)
        mechanism = mechanism_lib.with_restarts(chosen, privacy)
    else:
        required(privacy, 'mechanism')
        optimize_for = sampling.optimize_for(schema)
        mechanism = mechanism_lib.build(privacy, schema.rounds, optimize_for)
    fields: dict[str, Any] = dict(
        mechanism=mechanism,
        participation=schema,
        earlier=earlier,
        before=before,
        **privacy.plan_fields(sampling.clients_per_round, dimension),
    )
    fields |= sampling.plan_fields(mechanism, schema, population)
    plan = _with_noise(privacy, is_silent, fields)
    privacy.check_plan(plan)
    return plan


def check_schedule(plan: accounting.PrivacyPlan) -> None:
    """Checks that all clip norms of a schedule are for rounds of the run; others are never used.

    For a run that begins: earlier versions allowed them, and their runs are still verified.

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
