r"""Audits the aggregator of a privacy plan alone: lower bounds by attacks, held against the claim.

Example:
  dpfl audit_privacy --mechanism=blt --rounds=64 --min_separation=16 \
      --blt_decay=0.9,0.4 --blt_scale=0.2,0.3 --noise_multiplier=2 --delta=1e-6

It runs the aggregator of a training run on canaries, thousands of trials with and without a client,
and attacks what is released in all rounds (docs/reference/audits.md). It prints the claimed mu and
epsilon, and lower bounds that are above the truth with a probability of at most 5 %. A
bound above the claim means that the claim is false, or bad luck; the exit status is then 1.

--restart_first and --restart_every, --adaptive_clip, --secagg, --noise=hardened and --resume_after
audit the code of these features.

--run_dir=<directory> prints the audit of a finished run of train --audit instead
(docs/reference/audits.md).
"""

import pathlib
from typing import TYPE_CHECKING

from dpfl import _progress, errors
from dpfl.accounting.measured.measured import audit_section
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import verified_run
from dpfl.reporting import plain_text
from dpfl.simulation.training import plan as plans
from dpfl.simulation.training.mechanism import NAMES
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.round_config import ParticipationConfig, SamplingConfig

if TYPE_CHECKING:
    from dpfl.auditing.aggregator_audit import AggregatorAudit

# Coordinates of a run with rounding: fewer, because every update is rotated.
_ROTATED_COORDINATES = 1024

_SCHEMA = SettingsFlags(ParticipationConfig)
_PRIVACY = SettingsFlags(
    PrivacyConfig,
    defaults={'mechanism': None},
    choices={'mechanism': NAMES},
    help={
        'mechanism': 'How the noise of the rounds is correlated.',
        'strategy': 'Parameters of the mechanism: a name in dpfl/strategies, or a file written by '
        'dpfl.mechanisms.save. They are used for --rounds rounds.',
        'model_dimension': 'Coordinates of a run with --secagg; by default 1024.',
        'count_stddev': 'Standard deviation of the noise on the counts of --adaptive_clip, in '
        'clients; by default a twentieth of the coordinates of a run.',
    },
    skip=(
        'clipping',
        'estimator',
        'cohort_weight',
        'example_cap',
        'memory_limit',
    ),
)
_AUDIT = SettingsFlags(AggregatorAuditConfig)
_RUN = SettingsFlags(
    output_flags.RunDirConfig,
    help={
        'run_dir': 'Directory of a finished run of train --audit. No flags of a plan apply then.'
    },
)
_FORMAT = SettingsFlags(output_flags.FormatConfig)


def main() -> None:
    """Audits what the flags ask for, and prints what was found."""
    directory = _RUN.read().run_dir
    if directory:
        _show_run(directory)
        return
    audit = _audited()
    output_flags.show(_FORMAT, audit.to_dict(), _text(audit), allow_nan=False)
    if audit.exceeds_claim:
        raise errors.RunError('a lower bound is above what the plan claims')


def _audited() -> 'AggregatorAudit':
    """Audits the aggregator of the plan that the flags describe, with a progress bar."""
    schema, privacy, config = _SCHEMA.read(), _PRIVACY.read(), _AUDIT.read()
    # Loads TensorFlow, which takes seconds: a bad flag is refused before.
    from dpfl.auditing import aggregator_audit

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


def _text(audit: 'AggregatorAudit') -> str:
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


def _show_run(directory: str) -> None:
    """Verifies a finished run as `report_privacy --run_dir` does, and prints its audit."""
    command_line.refuse_others('run_dir', *_FORMAT.names)
    report = verified_run.verify(pathlib.Path(directory))
    measured = report.measured
    if measured is None:
        raise command_line.UsageError(
            f'--run_dir={directory}: has no audit; train --audit makes one'
        )
    text = f'# Audit of {directory}\n\n{audit_section(measured)}'
    output_flags.show(_FORMAT, measured.to_dict(), text, indent=2, allow_nan=False)
    if measured.refutations:
        raise errors.RunError('; '.join(measured.refutations))


if __name__ == '__main__':
    command_line.run(main)
