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

from dpfl import errors
from dpfl.accounting.measured.measured import audit_section
from dpfl.auditing.config import AggregatorAuditConfig
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import verified_run
from dpfl.simulation.training.mechanism import NAMES
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.round_config import ParticipationConfig

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
    schema, privacy, config = _SCHEMA.read(), _PRIVACY.read(), _AUDIT.read()
    # Loads TensorFlow, which takes seconds: a bad flag is refused before.
    from dpfl.cli.results import aggregator_audit

    found = aggregator_audit.of(schema, privacy, config)
    text = aggregator_audit.text(found)
    output_flags.show(_FORMAT, found.to_dict(), text, allow_nan=False)
    if found.exceeds_claim:
        raise errors.RunError('a lower bound is above what the plan claims')


def _show_run(directory: str) -> None:
    """Verifies a finished run as `report_privacy --run_dir` does, and prints its audit."""
    command_line.refuse_others('run_dir', *_FORMAT.names)
    _, report = verified_run.verify(pathlib.Path(directory))
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
