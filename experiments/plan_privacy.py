r"""Plans a private run before it starts, as in [Xu23], section 2.5.

Example: the separation that a population, a report goal and a timer allow, and its guarantee,

  dpfl plan_privacy --population=4210000 --clients_per_round=6500 --rounds=1900 \
    --timer_hours=24 --round_minutes=4.6 --mechanism=tree --noise_multiplier=7

The same from the times at which the rounds of an earlier run were opened, or with nights in which
rounds are slow; the timer counts the window with the fewest rounds
(docs/production.md):

  dpfl plan_privacy --population=4210000 --clients_per_round=6500 --rounds=1900 \
    --timer_hours=24 --round_times=times.csv --mechanism=tree --noise_multiplier=7

The noise and the mechanism for a target (--mechanism=auto compares those that fit the memory
limit):

  dpfl plan_privacy --population=4210000 --clients_per_round=6500 --rounds=1900 \
    --target_epsilon=5 --mechanism=auto --model_dimension=2400000 --memory_limit=0.1

The report goal for a target, with the noise that was good enough in a small simulation, scaled in
proportion; with more noise if --max_clients_per_round is too small for the target (strategy 3):

  dpfl plan_privacy --population=4210000 --rounds=1900 --mechanism=tree \
    --simulated_noise_multiplier=0.54 --simulated_clients_per_round=500 --target_rho=0.2 \
    --max_clients_per_round=20000

Sweeps over one or two quantities, as in [Xu23], figure 4:

  dpfl plan_privacy --population=3000000 --clients_per_round=6500 --rounds=2000 \
    --mechanism=tree --simulated_noise_multiplier=7 --simulated_clients_per_round=6500 \
    --sweep_clients_per_round=1000,2000,4000,6500,10000,20000 \
    --sweep_population=1000000,3000000,10000000 --plot=plan.png

The noise for a target with privacy amplification by sampling, from 342 groups that take turns:

  dpfl plan_privacy --population=171000 --clients_per_round=100 --rounds=2052 \
    --sampling=cyclic_poisson --mechanism=fichtenberger_toeplitz --bands=342 --target_epsilon=1

Several mechanisms in one figure, each with the noise multiplier of its run, as in [McMahan24],
figures 8 and 9. The 3.155 of BandMF, whose columns have norm 1 here, is the published 1.411 for
columns of squared norm 0.2:

  dpfl plan_privacy --population=2600000 --clients_per_round=6500 --rounds=4000 \
    --mechanisms=honaker_tree=7,blt_b400=7.379,banded:400@2000/400=3.155 \
    --sweep_rounds=400,800,1200,1600,2000,3000,4000 --plot=rounds.png --data=rounds.csv

A finished run with a small cohort shows which accuracy is possible with its noise on the mean
update. Its plan for larger populations and cohorts, with the same noise on the mean
([McMahan18], section 3; [Augenstein20], section 6):

  dpfl plan_privacy --run_dir=runs/small --sweep_clients_per_round=1000,5000 \
    --sweep_population=1000000,100000000 --plot=scaled.png
"""

import dataclasses
import sys

from absl import flags

from dpfl.accounting import gaussian
from dpfl.accounting.records import archive
from dpfl.accounting.sampling import kinds
from dpfl.cli.command import command_line
from dpfl.cli.flags import output_flags
from dpfl.cli.flags.participation_log import PaceConfig
from dpfl.cli.flags.settings_flags import SettingsFlags
from dpfl.cli.results import plan_answer
from dpfl.cli.results.plan_request import PlanningConfig, Request
from dpfl.simulation.training.mechanism import AUTO, NAMES
from dpfl.simulation.training.privacy_config import ClippingConfig, PrivacyConfig
from dpfl.simulation.training.round_config import SamplingConfig

_SAMPLING = SettingsFlags(
    SamplingConfig,
    skip=('timer_hours',),
    defaults={'min_separation': None, 'clients_per_round': None, 'sampling': kinds.NONE},
    choices={'sampling': kinds.names()},
    help={
        'min_separation': 'A client that takes part in round i may do so again in round '
        'i + min_separation at the earliest; by default the largest value that the population or '
        'the timer allows.',
        'population': 'Estimated number of clients.',
        'clients_per_round': 'Cohort size, also called the report goal.',
        'sampling': 'Secret random sampling that the guarantee relies on. Clients are then not '
        'kept apart otherwise. docs/reference/sampling.md says which noise each of them needs.',
    },
)
_CLIPPING = {*ClippingConfig().flat()} - {'clip_norm'}
_PRIVACY = SettingsFlags(
    PrivacyConfig(mechanism=AUTO),
    skip=(*_CLIPPING, 'noise'),
    choices={'mechanism': (*NAMES, AUTO)},
    help={
        'mechanism': 'How the noise of the rounds is correlated. auto compares the mechanisms that '
        'fit --memory_limit, optimises them if necessary, and takes the one with the least noise '
        'for the same guarantee.',
        'memory_limit': 'Gigabytes that the state of the noise may take, for --mechanism=auto, '
        'which also needs --model_dimension.',
        'target_epsilon': 'Epsilon to meet at --delta, by --accountant.',
    },
)
_PLANNING = SettingsFlags(PlanningConfig)
_PLOT = SettingsFlags(output_flags.PlotConfig, help={'plot': 'File of the plot of a sweep.'})
_DATA = SettingsFlags(output_flags.DataConfig)
_FORMAT = SettingsFlags(output_flags.FormatConfig)
_RUN = SettingsFlags(
    output_flags.RunDirConfig,
    help={
        'run_dir': 'Directory of a finished run, whose plan is scaled to other cohort sizes, with '
        'the same noise on the mean update. Rounds, mechanism, sampling and adjacency are those '
        'of the run, and so are delta and accountant if they are not given.'
    },
)
# Flags that go with --run_dir.
_OF_RUN = (
    'accountant',
    'allow_large_delta',
    'availability',
    'clients_per_round',
    'data',
    'delta',
    'failure_probability',
    'format',
    'max_participations',
    'min_separation',
    'model_dimension',
    'plot',
    'population',
    'sweep_clients_per_round',
    'sweep_min_separation',
    'sweep_population',
    *PaceConfig().flat(),
)


def main() -> None:
    """Prints the plan, or the plans of a sweep, and draws the plot."""
    path, data = _PLOT.read().plot, _DATA.read().data
    command_line.check_writable(None, path, data)
    with command_line.refusing_bad_values():
        request = _request()
        if path and not request.sweeps:
            raise command_line.UsageError(f'--plot={path}: needs a sweep')
        found = plan_answer.answer(request)
        output_flags.write_rows(data, [*found.rows, *found.left])
        values, text = found.to_dict(), found.text(data)
    if warning := gaussian.delta_warning(request.privacy.delta, request.schema['population']):
        print(warning, file=sys.stderr)
    if path:
        command_line.save_plot(found.figure(), path)
    output_flags.show(_FORMAT, values, text, indent=2, allow_nan=False)


def _request() -> Request:
    """The request of the flags; with --run_dir, the plan of that run takes the place of flags."""
    run_dir, privacy = _RUN.read().run_dir, _PRIVACY.read()
    planning, schema = _PLANNING.read(), _SAMPLING.values()
    if run_dir is None:
        return Request(privacy=privacy, planning=planning, schema=schema)
    command_line.refuse_others('run_dir', *_OF_RUN)
    record = archive.read_plan(run_dir)
    plan = record.plan
    if not plan.noise_multiplier:
        raise command_line.UsageError(f'--run_dir={run_dir}: the run has no noise')
    if not flags.FLAGS['delta'].present:
        privacy = dataclasses.replace(privacy, delta=record.deltas[0], allow_large_delta=True)
    privacy = dataclasses.replace(
        privacy,
        mechanism=plan.mechanism,
        noise_multiplier=plan.noise_multiplier,
        accountant=privacy.accountant or record.accountant,
    )
    return Request(
        privacy=privacy,
        planning=planning,
        schema={
            **schema,
            'rounds': plan.participation.rounds,
            'sampling': plan.sampling_name,
        },
        run=plan,
    )


if __name__ == '__main__':
    command_line.run(main)
