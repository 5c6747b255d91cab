"""The report of a plan that flags describe, without a run."""

import sys
from collections.abc import Mapping
from typing import Any

from dpfl import accounting
from dpfl.accounting import gaussian
from dpfl.accounting.sampling import kinds
from dpfl.cli.command import command_line
from dpfl.cli.flags.participation_log import LogConfig
from dpfl.errors import ArgumentError
from dpfl.simulation.training.mechanism import MechanismConfig, build
from dpfl.simulation.training.privacy_config import NoiseConfig, SecureAggregationConfig
from dpfl.simulation.training.round_config import SamplingConfig, participation


def of(
    sampling: Mapping[str, Any],
    mechanism: MechanismConfig,
    noise: NoiseConfig,
    secagg: SecureAggregationConfig,
    *,
    clip_norm: float,
    group_size: int,
    source: LogConfig,
    has_cohort: bool,
) -> accounting.PrivacyReport:
    """The report of a plan.

    Args:
      sampling: Settings of `SamplingConfig` by name; `sampling` is 'none', or the name of a kind.
      mechanism: The mechanism.
      noise: The noise, delta and accountant; it has a noise multiplier.
      secagg: Rounding for secure aggregation.
      clip_norm: L2 bound of a client's update.
      group_size: Number of clients that count as one.
      source: The log that the plan is compared with, and the times that its limits follow from, if
        they are known.
      has_cohort: Whether the planned cohort size was given.

    Raises:
      UsageError: If there is no such plan, or the log cannot be used.
    """
    noise_multiplier = command_line.required(noise, 'noise_multiplier')
    with command_line.refusing_bad_values():
        if secagg.model_dimension is not None and not secagg.secagg:
            raise ArgumentError('model_dimension', secagg.model_dimension, 'needs secagg')
        values, by_timer = source.by_timer(sampling)
        kind, cohort = values.pop('sampling'), values['clients_per_round']
        config = SamplingConfig(**values, **({} if kind == kinds.NONE else {'sampling': kind}))
        schema = participation(config)
        # The noise of a run that has a log was drawn already.
        is_planned = kind == kinds.NONE and source.participation_log is None
        made = build(mechanism, schema.rounds, optimize_for=schema if is_planned else None)
        if kind == kinds.NONE:
            kinds.from_settings(kind, {'population': config.population})  # Refuses one.
        sampled: dict[str, Any] = {'participation': schema}
        sampled |= config.plan_fields(made, schema, lambda: config.population)
        plan = accounting.PrivacyPlan(
            mechanism=made,
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            clients_per_round=cohort,
            adjacency=noise.adjacency,
            group_size=group_size,
            noise=noise.noise,
            **sampled,
            discretization=secagg.discretization(clip_norm, cohort),
        )
        from_log = source.found(plan, has_cohort=has_cohort)
        from_log['remarks'] = (*by_timer, *from_log['remarks'])
        report = accounting.PrivacyReport.from_plan(
            plan, [noise.delta], accountant=noise.accountant_of(plan), **from_log
        )
    if text := gaussian.delta_warning(noise.delta, config.population):
        print(text, file=sys.stderr)
    return report
