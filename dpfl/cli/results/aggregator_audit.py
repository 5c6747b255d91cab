"""The audit of an aggregator that flags describe, and how it is printed."""

from dpfl import _progress
from dpfl.auditing import aggregator_audit
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.cli.command import command_line
from dpfl.reporting import plain_text
from dpfl.simulation.training import plan as plans
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.round_config import ParticipationConfig, SamplingConfig

# Coordinates of a run with rounding: fewer, because every update is rotated.
_ROTATED_COORDINATES = 1024


def of(
    schema: ParticipationConfig, privacy: PrivacyConfig, config: AggregatorAuditConfig
) -> aggregator_audit.AggregatorAudit:
    """Audits the aggregator of a plan, with a progress bar on standard error.

    Args:
      schema: the participation schema.
      privacy: mechanism, noise, clipping and rounding.
      config: how many trials, and how they are run.

    Raises:
      UsageError: If there is no such plan, or it cannot be audited.
    """
    size = aggregator_audit.COORDINATES
    if privacy.secagg:
        size = privacy.model_dimension or _ROTATED_COORDINATES
    with command_line.refusing_bad_values():
        sampling = SamplingConfig(**schema.flat(), clients_per_round=size)
        plan = plans.build_plan(privacy, sampling, population=lambda: size, dimension=lambda: size)
        plans.check_schedule(plan)
        total = plan.participation.rounds * aggregator_audit.runs(plan, config)
        with _progress.bar(total=total, unit='round', delay=1.0) as bar:
            return aggregator_audit.audit(
                plan, config, privacy.delta, privacy.accountant_of(plan), bar.update
            )


def text(audit: aggregator_audit.AggregatorAudit) -> str:
    """The audit as a table, with its assumptions."""
    values = audit.to_dict()
    assumptions = values.pop('assumptions')
    values['pattern'] = ','.join(map(str, values['pattern']))
    values['exceeded'] = 'yes' if values.pop('exceeds_claim') else 'no'
    powers = values.pop('power').items()
    values['power'] = ', '.join(f'{name} {value:.3g}' for name, value in powers)
    return '\n'.join(
        [plain_text.table(values), '', *(f'- {assumption}' for assumption in assumptions)]
    )
