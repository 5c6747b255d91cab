"""Runs that go on with more rounds than they were planned for.

The guarantee is that of all rounds, as if they had been planned from the beginning, so the planned
rounds must be the first rounds of the new plan: the same strategy, the same noise, the same
cohorts. Nothing but the number of rounds may differ, and the limit of participations that follows
from it.

The line in the ledger decides. Before it is written, the directory holds the shorter run; from then
on it holds the longer one, and everything else follows from the configuration: files that a killed
process has not written are written when the run continues.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfl import accounting, errors
from dpfl.accounting.records import archive, ledger_lines
from dpfl.simulation import ledger as ledger_lib
from dpfl.simulation.checkpoint import Checkpoint

if TYPE_CHECKING:
    import pathlib

    from dpfl.simulation import outputs, program

# Settings that may change, because the plan, which is made of them, is compared itself.
_OF_THE_PLAN = (
    'rounds',
    'max_participations',
    'noise_multiplier',
    'target_epsilon',
    'mechanism',
    'strategy',
    'blt_decay',
    'blt_scale',
    'bands',
    'stop_at_epsilon',
    'stop_at_accuracy',
)


def is_wanted(
    start: Checkpoint, configuration: Mapping[str, Any], plan: accounting.PrivacyPlan
) -> bool:
    """Whether a configuration asks for more rounds than the run of a checkpoint.

    Args:
      start: the checkpoint.
      configuration: the settings of the new run.
      plan: its plan.
    """
    before, now = start.configuration, json.loads(json.dumps(dict(configuration)))
    if not (isinstance(before.get('rounds'), int) and isinstance(now.get('rounds'), int)):
        return False
    if before['rounds'] != now['rounds']:
        return now['rounds'] > before['rounds']
    is_other_rule = before.get('stop_at_epsilon') != now.get('stop_at_epsilon')
    return is_other_rule and plan.digest() != start.plan_digest


def check(
    start: Checkpoint,
    configuration: Mapping[str, Any],
    plan: accounting.PrivacyPlan,
    directory: 'pathlib.Path',
) -> str:
    """Checks that the run of a checkpoint can go on with a plan of more rounds.

    Args:
      start: the checkpoint.
      configuration: the settings of the new run.
      plan: its plan.
      directory: the directory of the run.

    Returns:
      How the run goes on, in one line.

    Raises:
      ArgumentError: if anything but the number of rounds differs, or the first rounds of the new
        plan are not those that were planned.
      RunError: if the plan or the ledger in the directory is not that of the checkpoint.
    """
    if configuration.get('audit'):
        raise errors.ArgumentError(
            'rounds',
            configuration['rounds'],
            f'must be {start.configuration["rounds"]}: the canaries of an audit take part in '
            'planned rounds',
        )
    start.require_configuration(configuration, _OF_THE_PLAN)
    before = _plan_before(start, plan, directory)
    rounds = plan.participation.rounds
    shown = f'goes on to {rounds} rounds; the guarantee becomes that of all of them'
    if before is None:
        return shown
    planned = before.participation.rounds
    if rounds <= planned:
        raise errors.ArgumentError('rounds', rounds, f'must be above {planned} to extend the run')
    schedule = configuration.get('server_schedule', 'constant')
    if schedule != 'constant':
        raise errors.ArgumentError(
            'server_schedule',
            schedule,
            'must be constant to extend the run: the learning rates of its '
            f'{planned} rounds depend on their number',
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
            f'{directory / archive.STRATEGY} holds it',
        )
    was, now = before.to_dict(), plan.to_dict()
    for name in was:
        if name not in ('mechanism_digest', 'participation') and was[name] != now.get(name):
            raise errors.ArgumentError(
                name, now.get(name), f'must be {was[name]}, as when the run began'
            )
    return shown


def _begins_like(plan: accounting.PrivacyPlan, before: accounting.PrivacyPlan) -> bool:
    """Whether a plan has the matrix of a shorter one in all of its rounds."""
    longer, shorter = (
        each.mechanism.with_rounds(each.participation.rounds) for each in (plan, before)
    )
    return longer.begins_like(shorter, shorter.rounds)


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


def _plan_before(
    start: Checkpoint, plan: accounting.PrivacyPlan, directory: 'pathlib.Path'
) -> accounting.PrivacyPlan | None:
    """The plan of the checkpoint's run; None if it is only waiting for its new checkpoint."""
    try:
        found = archive.read_plan(directory).plan
    except ValueError as error:
        raise errors.RunError(str(error)) from None
    if found.digest() == start.plan_digest:
        return found
    extensions = ledger_lib.read(directory / archive.LEDGER).extensions
    if extensions and found.digest() == plan.digest():
        return None  # A process was killed between the new plan and the new checkpoint.
    if extensions:
        raise errors.ArgumentError(
            'rounds',
            plan.participation.rounds,
            f'must be {extensions[-1].rounds}, to which the run was extended',
        )
    raise errors.RunError(f'{directory / archive.PLAN}: is not the plan of the checkpoint')


def commit(
    experiment: 'program.Experiment',
    directory: 'outputs.RunDirectory',
    start: Checkpoint,
    files: Mapping[str, str],
) -> Checkpoint:
    """Makes the run of a checkpoint the first rounds of one with more rounds.

    Args:
      experiment: the new run; `check` has accepted its plan.
      directory: the directory of the run, which is in use.
      start: the checkpoint.
      files: text files that describe the new run, by name; they replace earlier ones.

    Returns:
      The checkpoint as one of the new run. `program.run_training` saves it.

    Raises:
      RunError: if the ledger has other cohorts than the new run, or is that of another extended
        run; if past noise would be kept in another place; or if a file cannot be read or written.
    """
    from dpfl.simulation import state as state_lib  # Imports TensorFlow.

    path, digest = directory.path / archive.LEDGER, experiment.record.digest()
    lines = ledger_lib.read(path)
    ledger_lib.require_cohorts(path, lines.entries, experiment.sampler)
    state_lib.require_places(start.state, experiment.process.initialize(), experiment.plan)
    if lines.plan != digest:
        before = archive.read_plan(directory.path)
        planned = before.plan.participation.rounds
        if lines.extensions and lines.plan != before.digest():
            raise errors.RunError(
                f'{path}: the run was extended to {lines.extensions[-1].rounds} rounds; it must '
                'continue with these first'
            )
        # Read again, because another process may have extended the run since `check`.
        rounds = experiment.plan.participation.rounds
        if rounds <= planned or not _begins_like(experiment.plan, before.plan):
            raise errors.RunError(
                f'{path}: the run has meanwhile {planned} rounds, and these are not the first '
                f'rounds of the plan of {rounds}'
            )
        directory.forget_digests()
        ledger_lib.Ledger(path, before.digest()).extend(
            ledger_lines.Extension(
                released=len(lines.entries),
                planned=planned,
                rounds=rounds,
                plan=digest,
            )
        )
    # Results of the shorter run would say too little about what is released from now on.
    directory.forget_results()
    for name, text in files.items():
        directory.write_text(name, text)
    configuration = json.loads(json.dumps(dict(experiment.configuration)))
    return dataclasses.replace(
        start, configuration=configuration, plan_digest=experiment.plan.digest()
    )
