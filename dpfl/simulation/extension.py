"""Runs that go on with more rounds than they were planned for.

Their guarantee is that of all rounds, as if they had been planned from the beginning, so the rounds
that were released must be the first rounds of the new plan: the same strategy, the same noise, the
same cohorts. Nothing but the number of rounds may differ, and the limit of participations that
follows from it.

The event in the journal is the switch. Before it, the directory holds the run of the plan before.
From it on, it holds the new one, and everything else follows from the journal: files that a killed
process has not written are written when the run continues.
"""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from dpfl import accounting, errors
from dpfl.accounting.records import archive, journal
from dpfl.accounting.reports import inputs
from dpfl.simulation import earlier_settings
from dpfl.simulation.run_journal import RunJournal
from dpfl.simulation.training.mechanism import PARAMETERS

if TYPE_CHECKING:
    from dpfl.simulation.experiment import Experiment
    from dpfl.simulation.run_directory import RunDirectory

# Settings that may change, because the plan, which is made of them, is compared itself.
PLAN_SETTINGS = (
    'rounds',
    'max_participations',
    'noise_multiplier',
    'target_epsilon',
    'stop_at_accuracy',
    'mechanism',
    *PARAMETERS,
)


def is_wanted(before: Mapping[str, Any], configuration: Mapping[str, Any]) -> bool:
    """Whether a configuration asks for more rounds than the run of another one.

    Args:
      before: the configuration of the run.
      configuration: the settings now.
    """
    now = json.loads(json.dumps(dict(configuration)))
    if not (isinstance(before.get('rounds'), int) and isinstance(now.get('rounds'), int)):
        return False
    return now['rounds'] > before['rounds']


def require_configuration(
    before: Mapping[str, Any], configuration: Mapping[str, Any], free: Collection[str] = ()
) -> None:
    """Checks that a configuration is that of the run, except for the values in `free`.

    Raises:
      ArgumentError: if another value differs. The message begins with its name.
    """
    before = earlier_settings.left_out(before)
    now = json.loads(json.dumps(dict(configuration)))
    for name in sorted({*before, *now} - {*free}):
        if before.get(name) != now.get(name):
            raise errors.ArgumentError(
                name, now.get(name), f'must be {before.get(name)}, as when the run began'
            )


def check(
    run: RunJournal, configuration: Mapping[str, Any], plan: accounting.PrivacyPlan, path: Any
) -> str:
    """Checks that a run can go on with the plan of another configuration.

    Args:
      run: its journal.
      configuration: the settings of the longer run.
      plan: its plan.
      path: the directory of the run.

    Returns:
      How the run goes on, in one line.

    Raises:
      ArgumentError: if anything but the number of rounds differs, or the first rounds of the new
        plan are not those that were planned.
      RunError: if the records of the run are damaged.
    """
    earlier = run.state.configuration
    if configuration.get('audit'):
        raise errors.ArgumentError(
            'rounds',
            configuration['rounds'],
            f'must be {earlier["rounds"]}: the canaries of an audit take part in planned rounds',
        )
    require_configuration(earlier, configuration, PLAN_SETTINGS)
    try:
        before = archive.read_plan(path).plan
    except ValueError as error:
        raise errors.RunError(str(error)) from None
    rounds, planned = plan.participation.rounds, before.participation.rounds
    if rounds <= planned:
        raise errors.ArgumentError('rounds', rounds, f'must be above {planned} to extend the run')
    schedule = configuration.get('server_schedule', 'constant')
    if schedule != 'constant':
        raise errors.ArgumentError(
            'server_schedule',
            schedule,
            f'must be constant to extend the run: its {planned} rounds had learning rates that '
            'more rounds would have made others',
        )
    if plan.participation.count < before.participation.count:
        raise errors.ArgumentError(
            'max_participations',
            plan.participation.max_participations,
            f'must be at least {before.participation.count}, as when the run began',
        )
    if plan.noise_multiplier != before.noise_multiplier:
        _refuse_noise(configuration, plan, before)
    if not _begins_like(plan, before):
        raise errors.ArgumentError(
            'mechanism',
            plan.mechanism.name,
            f'must have the strategy of the run in its first {planned} rounds; '
            f'{path / archive.STRATEGY} holds it',
        )
    was, now = before.to_dict(), plan.to_dict()
    for name in was:
        if name not in ('mechanism_digest', 'participation') and was[name] != now.get(name):
            raise errors.ArgumentError(
                name, now.get(name), f'must be {was[name]}, as when the run began'
            )
    return f'goes on to {rounds} rounds; the guarantee becomes that of all of them'


def _begins_like(plan: accounting.PrivacyPlan, before: accounting.PrivacyPlan) -> bool:
    """Whether the rounds that were planned before have the same strategy in a longer plan."""
    rounds = before.participation.rounds
    longer = plan.mechanism.with_rounds(plan.participation.rounds)
    return longer.begins_like(before.mechanism.with_rounds(rounds), rounds)


def _refuse_noise(
    configuration: Mapping[str, Any],
    plan: accounting.PrivacyPlan,
    before: accounting.PrivacyPlan,
) -> None:
    used = before.noise_multiplier
    if configuration.get('target_epsilon') is None:
        raise errors.ArgumentError(
            'noise_multiplier', plan.noise_multiplier, f'must be {used}, as when the run began'
        )
    raise errors.ArgumentError(
        'target_epsilon',
        configuration['target_epsilon'],
        'cannot hold for more rounds, because the noise of the run has been used; with '
        f'noise_multiplier={used} instead it goes on, and epsilon becomes larger',
    )


def commit(
    experiment: 'Experiment',
    directory: 'RunDirectory',
    state: Any,
    *,
    settings: Mapping[str, Any] | None,
    files: Mapping[str, str],
) -> None:
    """Makes a run the first rounds of one with more rounds.

    Args:
      experiment: the longer run; `check` has accepted its plan.
      directory: the directory of the run, which is in use.
      state: leaves of the checkpoint from which it continues.
      settings: as in `journal.Planned`.
      files: as in `journal.Planned`.

    Raises:
      RunError: if the journal has other cohorts than the longer run; if past noise would be kept in
        another place; or if a file cannot be read or written.
    """
    from dpfl.runtime import contexts  # Imports TensorFlow.
    from dpfl.simulation import state as state_lib

    run, plan = directory.journal, experiment.plan
    run.require_cohorts(0, experiment.sampler.cohort)
    with contexts.local_runtime():
        state_lib.require_places(state, experiment.process.initialize(), plan)
    before = archive.read_plan(directory.path)
    step = inputs.Extension(
        run.state.begun, before.plan.participation.rounds, plan.participation.rounds
    )
    record = {
        **experiment.record.to_dict(),
        **{
            name: value
            for name, value in before.to_dict().items()
            if name in ('about', 'noise_key_digest', 'earlier_noise_key_digests')
        },
        'extensions': [extension.to_dict() for extension in (*before.extensions, step)],
    }
    directory.forget_digests()
    directory.write_strategy(plan.mechanism, is_next=True)
    run.append(
        journal.Extended(
            **step.to_dict(),
            record=record,
            configuration=json.loads(json.dumps(dict(experiment.configuration))),
            settings=settings,
            files=dict(files),
        )
    )
    directory.take_next_strategy()
    # Results of the shorter run would understate the releases from now on.
    directory.forget_results()
    directory.write_tables()
