r"""Reports the guarantee of a privacy plan without training, or that of a finished run.

Example: the numbers of the production run of [Xu23-accounting],

  dpfl report_privacy --mechanism=tree --rounds=2000 --min_separation=314 \
    --max_participations=6 --noise_multiplier=7 --delta=1e-10 --accountant=rdp

[McMahan18]: --mechanism=gaussian --sampling=poisson --population=763430
--clients_per_round=5000 --rounds=5000 --noise_multiplier=1 --delta=1e-9 --accountant=moments.

--participation_log=<file> compares the plan with what happened: rows of client and round that a
production system wrote, or the log of simulate_population (docs/production.md). If the
log breaks the plan, the guarantee is that of the log.

--round_times=<file> --timer_hours=24 take rounds, separation and participations from the times at
which the rounds of the run were opened, and the timer of its clients.

--group_size=3 counts three clients of one person, --tradeoff tells what a membership test can
reach, and --selected_from=poisson:10 counts that the run is the best of several.

--run_dir=<directory> checks the files of a finished run, recomputes its report from its plan and
participation log, and prints it. If something differs, it says what and exits with status 1. Of a
run that trains now it prints the report so far; it neither stops the run nor changes its files.
--after=<report> also compares the run with an earlier report of it, which was kept elsewhere.

--compare <report> <report> says which of two runs is more private, and why. --sign=<private key>
signs a report, --verify=<report> --public_key=<file> verifies it (docs/reference/files.md).
"""

import sys
from typing import Any

from absl import flags

from dpfl import accounting
from dpfl.accounting import gaussian
from dpfl.accounting.sampling import kinds
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags, participation_log
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import report_files, verified_run
from dpfl.simulation.training.mechanism import NAMES, build
from dpfl.simulation.training.privacy_config import ClippingConfig, PrivacyConfig
from dpfl.simulation.training.round_config import SamplingConfig, participation

_PRIVACY = SettingsFlags(
    PrivacyConfig,
    defaults={'mechanism': None},
    choices={'mechanism': NAMES},
    help={
        'mechanism': 'How the noise of the rounds is correlated.',
        'clip_norm': 'L2 bound of the update of a client. The report states it; it does not change '
        'the guarantee.',
    },
    skip={*ClippingConfig().flat(), 'target_epsilon', 'memory_limit'} - {'clip_norm'},
)
_SAMPLING = SettingsFlags(
    SamplingConfig,
    skip=('timer_hours',),
    defaults={'sampling': 'none', 'clients_per_round': 1},
    choices={'sampling': kinds.names()},
    help={
        'sampling': 'Secret random sampling that the guarantee relies on. '
        'docs/reference/sampling.md says which noise each of them needs.',
        'population': 'Number of clients from which cohorts are sampled; for --sampling.',
        'clients_per_round': 'Planned cohort size. The report states it; without --sampling it '
        'does not change the guarantee.',
    },
)
_LOG = SettingsFlags(participation_log.LogConfig)
_GUARANTEE = SettingsFlags(output_flags.GuaranteeConfig)
_RUN = SettingsFlags(
    output_flags.VerifiedRunConfig,
    help={
        'run_dir': 'Directory of a finished run to verify, or of one that trains now, to show the '
        'report so far. It cannot be combined with flags of a plan.'
    },
)
_FILES = SettingsFlags(output_flags.ReportFilesConfig)
_FORMAT = SettingsFlags(
    output_flags.FormatConfig,
    choices={'format': (*output_flags.FORMATS, 'html')},
    help={'format': 'Format of the report: Markdown, JSON, or an HTML page with figures.'},
)


def main() -> None:
    """Prints the report of a plan or of a run, or what is asked about reports in files."""
    files, form = _FILES.read(), _FORMAT.values()['format']
    command_line.check_writable(files.output, None)
    text = report_files.answer(files, form)
    if text is not None:
        report_files.show(text, files.output)
        return
    run, guarantee = _RUN.read(), _GUARANTEE.read()
    directory = run.run_dir
    sign = report_files.signer(files, directory, form)
    running = None
    if directory:
        own = (_GUARANTEE, _RUN, _FILES, _FORMAT)
        command_line.refuse_others('run_dir', *(name for one in own for name in one.names))
        if run.write_pages:
            verified_run.write_pages(directory)
        if not (sign or run.after or run.forget_keys or run.open):
            running = verified_run.in_progress(directory)
    if running is not None:
        report = running.report(guarantee.group_size)
    elif directory:
        signs_run = sign if files.output is None else None
        report = verified_run.verified(
            directory,
            guarantee.group_size,
            signs_run,
            forget_keys=run.forget_keys,
            after=run.after,
        )
    else:
        report = _planned(guarantee.group_size)
    together = report_files.together(report, guarantee.compose_with)
    report = report_files.with_more(report, guarantee)
    text = report_files.rendered(report, together, form, directory, running)
    report_files.show(text, files.output, sign)
    if directory and run.open:
        verified_run.show_page(directory)


def _planned(group_size: int | None) -> accounting.PrivacyReport:
    """The report of the plan that the flags describe, without a run."""
    privacy, source, values = _PRIVACY.read(), _LOG.read(), _SAMPLING.values()
    kind = values['sampling']
    if kind != kinds.NONE and values['population'] is None:
        raise command_line.UsageError(f'--sampling={kind}: needs --population')
    command_line.required(privacy, 'mechanism')
    noise_multiplier = command_line.required(privacy, 'noise_multiplier')
    with command_line.refusing_bad_values():
        values, by_timer = source.by_timer(values)
        if kind == kinds.NONE:
            del values['sampling']
            kinds.from_settings(kind, {'population': values['population']})  # Refuses one.
        config = SamplingConfig(**values)
        schema = participation(config)
        # The noise of a run that has a log was drawn already.
        is_planned = kind == kinds.NONE and source.participation_log is None
        made = build(privacy, schema.rounds, optimize_for=schema if is_planned else None)
        dimension: Any = privacy.model_dimension  # Rounding refuses None.
        fields = privacy.plan_fields(config.clients_per_round, lambda: dimension)
        fields |= {'participation': schema}
        fields |= config.plan_fields(made, schema, lambda: config.population)
        plan = accounting.PrivacyPlan(
            mechanism=made,
            noise_multiplier=noise_multiplier,
            group_size=group_size or 1,
            **fields,
        )
        from_log = source.found(plan, bool(flags.FLAGS['clients_per_round'].present))
        from_log['remarks'] = (*by_timer, *from_log['remarks'])
        report = accounting.PrivacyReport.from_plan(
            plan, [privacy.delta], accountant=privacy.accountant_of(plan), **from_log
        )
    if text := gaussian.delta_warning(privacy.delta, config.population):
        print(text, file=sys.stderr)
    return report


if __name__ == '__main__':
    command_line.run(main, operands_of='compare')
