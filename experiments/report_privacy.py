"""Reports the guarantee of a privacy plan without training, or that of a finished run.

Example: the numbers of the production run of [Xu23-accounting],

  python -m experiments.report_privacy --mechanism=tree --rounds=2000 --min_separation=314 \
    --max_participations=6 --noise_multiplier=7 --delta=1e-10 --accountant=rdp

[McMahan18]: --mechanism=gaussian --sampling=poisson --population=763430
--clients_per_round=5000 --rounds=5000 --noise_multiplier=1 --delta=1e-9 --accountant=moments.

--participation_log=<file> compares the plan with what happened: rows of client and round that a
production system wrote, or the log of simulate_population (docs/production_logs.md). If the log
breaks the plan, the guarantee is that of the log.

--group_size=3 counts three clients of one person, --tradeoff tells what a membership test can
reach, and --selected_from=poisson:10 counts that the run is the best of several.

--run_dir=<directory> checks the files of a finished run, recomputes its report from its plan and
participation log, and prints it. If something differs, it says what and exits with status 1.
"""

import json
from typing import Any

from absl import flags

from dpfl import accounting
from dpfl.simulation.training import plan as plans
from dpfl.simulation.training.mechanism import NAMES, build
from dpfl.simulation.training.privacy_config import (
    ClippingConfig,
    MechanismConfig,
    NoiseConfig,
    SecureAggregationConfig,
)
from dpfl.simulation.training.sampling_config import SamplingConfig, participation
from experiments.command import command_line
from experiments.flags import composition, guarantee_flags, output_flags, participation_log
from experiments.flags.settings_flags import SettingsFlags
from experiments.results import verified_run

_MECHANISM = SettingsFlags(MechanismConfig, choices={'mechanism': NAMES})
_NOISE = SettingsFlags(NoiseConfig)
_SECAGG = SettingsFlags(SecureAggregationConfig)
_CLIPPING = SettingsFlags(
    ClippingConfig,
    only=('clip_norm',),
    help={
        'clip_norm': 'L2 bound of the update of a client. The report states it; it does not change '
        'the guarantee.'
    },
)
_SAMPLING = SettingsFlags(
    SamplingConfig,
    only=(
        'rounds',
        'min_separation',
        'max_participations',
        'sampling',
        'population',
        'clients_per_round',
        'groups',
        'cohort_cap',
    ),
    defaults={'sampling': 'none', 'clients_per_round': 1},
    choices={'sampling': accounting.SAMPLINGS},
    help={
        'sampling': 'Secret random sampling that the guarantee relies on; for '
        '--mechanism=gaussian, and cyclic_poisson also for banded mechanisms.',
        'population': 'Number of clients from which cohorts are sampled; for --sampling.',
        'clients_per_round': 'Planned cohort size. The report states it; without --sampling it '
        'does not change the guarantee.',
    },
)
_LOG = SettingsFlags(participation_log.LogConfig)
_COMPOSITION = SettingsFlags(composition.CompositionConfig)
_GUARANTEE = SettingsFlags(guarantee_flags.GuaranteeConfig)
_RUN = SettingsFlags(
    output_flags.RunDirConfig,
    help={
        'run_dir': 'Directory of a finished run to verify. The flags of a plan do not apply then.'
    },
)
_FORMAT = SettingsFlags(
    output_flags.FormatConfig,
    choices={'format': (*output_flags.FORMATS, 'html')},
    help={'format': 'Format of the report: Markdown, JSON, or an HTML page with figures.'},
)


def main() -> None:
    """Prints the report of the plan that the flags describe, or of the run in a directory."""
    directory, form = _RUN.read().run_dir, _FORMAT.values()['format']
    guarantee = _GUARANTEE.read()
    if directory:
        with command_line.refusing_bad_values():
            _LOG.read().refuse('cannot be combined with run_dir')
        report = verified_run.verified(directory, guarantee.group_size)
    else:
        report = _planned(guarantee.group_size)
    together = composition.together(report, _COMPOSITION.read())
    report = guarantee_flags.with_more(report, guarantee, is_composed=together is not None)
    if form == 'html':
        from dpfl.reporting import privacy_page  # matplotlib takes a second to import.

        print(privacy_page.render(report, composition.render(together) if together else ''))
    elif form == 'json':
        values = report.to_dict()
        if together:
            values['composition'] = together
        print(json.dumps(values, indent=2, allow_nan=False))
    else:
        print(report.render() + (composition.render(together) if together else ''))


def _planned(group_size: int | None) -> accounting.PrivacyReport:
    sampling, mechanism, noise, secagg = (
        dict(_SAMPLING.values()),
        _MECHANISM.read(),
        _NOISE.read(),
        _SECAGG.read(),
    )
    kind, clip_norm = sampling.pop('sampling'), _CLIPPING.read().clip_norm
    if kind != 'none' and sampling['population'] is None:
        raise command_line.UsageError(f'--sampling={kind}: needs --population')
    command_line.required(mechanism, 'mechanism')
    source = _LOG.read()
    with command_line.refusing_bad_values():
        config = SamplingConfig(**sampling, **({} if kind == 'none' else {'sampling': kind}))
        schema = participation(config)
        noise_multiplier = command_line.required(noise, 'noise_multiplier')
        made = build(mechanism, schema.rounds)
        sampled: dict[str, Any] = dict(
            sampling=kind, population=config.population, participation=schema
        )
        sampled |= plans.sampling_fields(config, made, schema, lambda: config.population)
        plan = accounting.PrivacyPlan(
            mechanism=made,
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            clients_per_round=sampling['clients_per_round'],
            adjacency=noise.adjacency,
            group_size=group_size or 1,
            noise=noise.noise,
            **sampled,
            discretization=plans.discretization(secagg, clip_norm, sampling['clients_per_round']),
        )
        method = plans.accountant(noise, plan)
        found = source.found(plan, has_cohort=flags.FLAGS['clients_per_round'].present)
        return accounting.PrivacyReport.from_plan(plan, [noise.delta], accountant=method, **found)


if __name__ == '__main__':
    command_line.run(main)
