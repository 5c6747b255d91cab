"""Plans a private run before it starts: document 000, section 2.5, as a tool.

What separation can be reached with a population, a report goal and a timer, and what it is worth:

  python -m experiments.plan_privacy --population=4210000 --clients_per_round=6500 --rounds=1900 \
    --timer_hours=24 --round_minutes=4.6 --mechanism=tree --noise_multiplier=7

The noise and the mechanism for a target (--mechanism=auto compares those that fit a memory limit):

  python -m experiments.plan_privacy --population=4210000 --clients_per_round=6500 --rounds=1900 \
    --target_epsilon=5 --mechanism=auto --model_dimension=2400000 --memory_limit=0.1

The report goal that a target needs with the noise that a small simulation found good enough, which
grows in proportion; and more noise than that if --max_clients_per_round is not enough (strategy 3):

  python -m experiments.plan_privacy --population=4210000 --rounds=1900 --mechanism=tree \
    --simulated_noise_multiplier=0.54 --simulated_clients_per_round=500 --target_rho=0.2 \
    --max_clients_per_round=20000

Sweeps over one or two quantities, as in document 000, figure 4:

  python -m experiments.plan_privacy --population=3000000 --clients_per_round=6500 --rounds=2000 \
    --mechanism=tree --simulated_noise_multiplier=7 --simulated_clients_per_round=6500 \
    --sweep_clients_per_round=1000,2000,4000,6500,10000,20000 \
    --sweep_population=1000000,3000000,10000000 --plot=plan.png
"""

import dataclasses
import itertools
import json

from absl import flags
from tqdm import tqdm

from dpfl import accounting, mechanisms
from dpfl.accounting import planning
from experiments.command import command_line
from experiments.flags import privacy_flags, schema_flags, secagg_flags
from experiments.pages import plan_rows

flags.adopt_module_key_flags(privacy_flags)
flags.adopt_module_key_flags(secagg_flags)
_POPULATION = flags.DEFINE_integer('population', None, 'Number of clients, an estimate.')
_AVAILABILITY = flags.DEFINE_float(
    'availability', 1.0, 'Share of the population that reports at some time, within (0, 1].'
)
_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'clients_per_round', None, 'Cohort size: the report goal.'
)
_TIMER_HOURS = flags.DEFINE_float(
    'timer_hours',
    None,
    'Hours until a client may take part again; needs --round_minutes. By '
    'default, and without --min_separation, the separation is all that the population allows.',
)
_ROUND_MINUTES = flags.DEFINE_float(
    'round_minutes', None, 'Minutes that a round takes; the longest ones, where they differ.'
)
_MECHANISM = flags.DEFINE_enum(
    'mechanism',
    'auto',
    [*privacy_flags.MECHANISMS, 'auto'],
    'How the noise of the rounds is correlated. auto: compares what fits --memory_limit and takes '
    'the least noise for the same guarantee, optimised on the spot.',
)
_MEMORY_LIMIT = flags.DEFINE_float(
    'memory_limit',
    1.0,
    'Gigabytes that the state of the noise may take, for --mechanism=auto, '
    'which needs --model_dimension too.',
    lower_bound=0,
)
_SIMULATED_NOISE_MULTIPLIER = flags.DEFINE_float(
    'simulated_noise_multiplier',
    None,
    'Noise multiplier that was good enough in a small simulation of the same mechanism; it is '
    'scaled with the cohort size.',
)
_SIMULATED_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'simulated_clients_per_round', None, 'Cohort size of that simulation.'
)
_TARGET_RHO = flags.DEFINE_float('target_rho', None, 'zCDP guarantee to be met.')
_TARGET_EPSILON = flags.DEFINE_float(
    'target_epsilon', None, 'Epsilon at --delta to be met, by --accountant.'
)
_MAX_CLIENTS_PER_ROUND = flags.DEFINE_integer(
    'max_clients_per_round',
    None,
    'Largest cohort that the system supports. With a target and a simulation the least cohort up '
    'to it that meets the target is sought, in place of --clients_per_round.',
)
_SWEEPS = {
    name: flags.DEFINE_list(f'sweep_{name}', None, f'Values of {name}, comma-separated.')
    for name in ('clients_per_round', 'population', 'rounds', 'min_separation')
}
_CLIP_NORM = flags.DEFINE_float('clip_norm', 1.0, "L2 bound of a client's update.")
_PLOT = flags.DEFINE_string('plot', None, 'File of the plot of a sweep.')
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the plan.')


def main() -> None:
    """Prints the plan or the plans of a sweep, and draws the plot."""
    _check_flags()
    sweeps = _sweeps()
    if _PLOT.value and not sweeps:
        raise command_line.UsageError(f'--plot={_PLOT.value}: needs a sweep')
    with command_line.refusing_bad_values():
        target, simulation = _target(), _simulation()
        rows, plans, left = [], [], []
        for point in tqdm(_points(sweeps), disable=None if sweeps else True):
            deployment = _deployment(point)
            candidates, left = _candidates(deployment)
            if sweeps:  # A row for each point: the best, or the given one.
                candidates, left = candidates[:1], []
            for name, mechanism, verdict in candidates:
                plans.append(_plan(mechanism, deployment, target, simulation))
                rows.append(
                    plan_rows.row(
                        name,
                        verdict,
                        *plans[-1],
                        simulation=simulation,
                        delta=flags.FLAGS.delta,
                        accountant=flags.FLAGS.accountant,
                    )
                )
    assumptions = plan_rows.assumptions(plans, simulation)
    if _PLOT.value:
        _draw(rows, list(sweeps))
    if _FORMAT.value == 'json':
        values = {'plans': rows, 'left': left, 'assumptions': assumptions}
        print(json.dumps(values, indent=2, allow_nan=False))
    else:
        print(plan_rows.text(rows, left, assumptions))


def _check_flags() -> None:
    """Raises UsageError if flags are missing or contradict each other."""
    target = _given('target_rho') or _given('target_epsilon')
    simulation = _given('simulated_noise_multiplier')
    if _given('target_rho') and _given('target_epsilon'):
        raise command_line.UsageError('--target_rho: goes without --target_epsilon')
    for one, other in (
        ('simulated_noise_multiplier', 'simulated_clients_per_round'),
        ('timer_hours', 'round_minutes'),
    ):
        if _given(one) != _given(other):
            raise command_line.UsageError(f'--{one}, --{other}: go together')
    if _given('noise_multiplier') and (target or simulation):
        raise command_line.UsageError('--noise_multiplier: goes without a target or a simulation')
    if not (_given('noise_multiplier') or target or simulation):
        raise command_line.UsageError(
            '--noise_multiplier: must be given, or a target, or a simulation'
        )
    if bool(target and simulation) != _given('max_clients_per_round'):
        raise command_line.UsageError(
            '--max_clients_per_round: goes with a target and a simulation, and both need it'
        )
    if _searches():
        for name in ('clients_per_round', 'sweep_clients_per_round'):
            if _given(name):
                raise command_line.UsageError(f'--{name}: goes without --max_clients_per_round')
    if _MECHANISM.value == 'auto':
        _check_auto()


def _check_auto() -> None:
    if _given('simulated_noise_multiplier'):
        raise command_line.UsageError(
            '--mechanism=auto: goes without a simulation, whose noise multiplier is that of one '
            'mechanism'
        )
    for name in ('strategy', 'blt_decay', 'blt_scale', 'restart_first', 'restart_every'):
        if _given(name):
            raise command_line.UsageError(f'--{name}: needs a --mechanism other than auto')
    schema_flags.required('model_dimension')


def _given(name: str) -> bool:
    return flags.FLAGS[name].value is not None


def _searches() -> bool:
    """Whether the cohort size is what is sought."""
    return _given('max_clients_per_round')


def _sweeps() -> dict[str, list[int]]:
    """Values of the swept quantities, by name; the first is on the horizontal axis of the plot."""
    sweeps = {}
    for name, flag in _SWEEPS.items():
        if flag.value is None:
            continue
        try:
            sweeps[name] = [int(value) for value in flag.value]
        except ValueError:
            sweeps[name] = []
        if not sweeps[name]:
            raise command_line.UsageError(
                f'--{flag.name}={",".join(flag.value)}: must be comma-separated integers'
            )
    if len(sweeps) > 2:
        raise command_line.UsageError(f'--sweep_{list(sweeps)[2]}: at most two sweeps go together')
    rounds = schema_flags.required('rounds')
    if max(sweeps.get('rounds', [rounds])) > rounds:
        raise command_line.UsageError(
            f'--sweep_rounds={max(sweeps["rounds"])}: must be <= {rounds}, the value of --rounds'
        )
    return sweeps


def _points(sweeps: dict[str, list[int]]) -> list[dict[str, int]]:
    """All combinations of the values; the first quantity changes fastest."""
    names = list(reversed(sweeps))
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(sweeps[name] for name in names))
    ]


def _target() -> planning.Target | None:
    """The target of the flags, or None."""
    if not (_given('target_rho') or _given('target_epsilon')):
        return None
    with command_line.refusing_bad_values(rho='target_rho', epsilon='target_epsilon'):
        return planning.Target(
            rho=_TARGET_RHO.value,
            epsilon=_TARGET_EPSILON.value,
            delta=flags.FLAGS.delta,
            accountant=flags.FLAGS.accountant,
        )


def _simulation() -> planning.Simulation | None:
    if _SIMULATED_NOISE_MULTIPLIER.value is None:
        return None
    return planning.Simulation(
        _SIMULATED_NOISE_MULTIPLIER.value, _SIMULATED_CLIENTS_PER_ROUND.value
    )


def _deployment(point: dict[str, int]) -> planning.Deployment:
    """The deployment of the flags, with the values of a point of the sweep."""
    separation = flags.FLAGS['min_separation']
    fields = dict(
        population=_POPULATION.value,
        # A search begins with one client.
        clients_per_round=1 if _searches() else _CLIENTS_PER_ROUND.value,
        rounds=flags.FLAGS.rounds,
        availability=_AVAILABILITY.value,
        timer_hours=_TIMER_HOURS.value,
        round_minutes=_ROUND_MINUTES.value,
        min_separation=separation.value if separation.present else None,
        max_participations=flags.FLAGS.max_participations,
    )
    fields |= point
    for name in ('population', 'clients_per_round'):
        if fields[name] is None:
            raise command_line.UsageError(f'--{name}: must be given')
    deployment = planning.Deployment(**fields)
    most = deployment.max_participations
    reachable = dataclasses.replace(deployment, max_participations=None).participation
    if not point and not _searches() and most is not None and most > reachable.count:
        raise command_line.UsageError(
            f'--max_participations={most}: must be <= {reachable.count}, what {reachable.rounds} '
            f'rounds and a separation of {reachable.min_separation} allow'
        )
    return deployment


def _candidates(
    deployment: planning.Deployment,
) -> tuple[list[tuple[str, mechanisms.Mechanism, str | None]], list[dict]]:
    """Names, mechanisms and verdicts, the best first; and those that were left unmade."""
    if _MECHANISM.value != 'auto':
        return [(_MECHANISM.value, privacy_flags.mechanism(_MECHANISM.value), None)], []
    _, candidates = mechanisms.choose(
        deployment.participation, flags.FLAGS.model_dimension, _MEMORY_LIMIT.value
    )
    made = [(each.name, each.mechanism, each.verdict) for each in candidates if each.mechanism]
    left = [
        {
            'mechanism': each.name,
            'buffers': each.buffers,
            'gigabytes': each.gigabytes,
            'verdict': each.verdict,
        }
        for each in candidates
        if not each.mechanism
    ]
    return made, left


def _plan(
    mechanism: mechanisms.Mechanism,
    deployment: planning.Deployment,
    target: planning.Target | None,
    simulation: planning.Simulation | None,
) -> tuple[planning.Deployment, accounting.PrivacyPlan]:
    """The plan, and the deployment with the cohort size that was found for it."""
    planner = planning.Planner(
        mechanism=mechanism,
        clip_norm=_CLIP_NORM.value,
        adjacency=flags.FLAGS.adjacency,
        discretize=lambda cohort: secagg_flags.discretization(_CLIP_NORM.value, cohort),
    )
    if _searches():
        most = _MAX_CLIENTS_PER_ROUND.value
        return planner.with_simulation(deployment, target, simulation, most)
    if target is not None:
        return deployment, planner.with_target(deployment, target)
    noise = flags.FLAGS.noise_multiplier
    if simulation is not None:
        noise = simulation.scaled(deployment.clients_per_round)
    return deployment, planner.with_noise(deployment, noise)


def _draw(rows: list[dict], sweeps: list[str]) -> None:
    """Saves the plot: what the plans were made to find out, and what it goes with."""
    if _searches():
        measures = ['clients_per_round', 'noise_multiplier']
    elif _given('target_rho') or _given('target_epsilon'):
        measures = ['noise_multiplier', 'prefix_noise']
    else:
        measures = ['rho', 'min_separation']
    from dpfl.reporting import plots  # matplotlib takes a second to import.

    measures = [name for name in measures if name not in sweeps]
    figure = plots.plans(rows, sweeps[0], measures, *sweeps[1:])
    try:
        figure.savefig(_PLOT.value, dpi=120)
    except (OSError, ValueError) as error:
        raise command_line.UsageError(f'--plot={_PLOT.value}: {error}') from None


if __name__ == '__main__':
    command_line.run(main)
