"""Runs that go on with another plan: more rounds than they were planned for, or another matrix.

Its guarantee is that of all rounds, as if they had been planned from the beginning, so the rounds
that were released must be the first rounds of the new plan: the same strategy, the same noise, the
same cohorts. Nothing but the number of rounds may differ, the limit of participations that follows
from it, and the matrix of the rounds that are left.

Released are the rounds in the ledger, which may be more than those of the checkpoint. The line in
the ledger is the switch. Before it, the directory holds the run of the plan before. From it on, it
holds the new one, and everything else follows from the configuration: files that a killed process
has not written are written when the run continues.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfl import accounting, errors, mechanisms
from dpfl.accounting.records import archive, ledger_lines
from dpfl.simulation import ledger as ledger_lib
from dpfl.simulation.checkpoint import Checkpoint

if TYPE_CHECKING:
    import pathlib

    from dpfl.simulation import outputs, program

# Settings of the matrix. Another one of them is a wish to go on with another matrix.
_OF_THE_MATRIX = ('mechanism', 'strategy', 'blt_decay', 'blt_scale', 'bands')
# Settings that may change, because the plan, which is made of them, is compared itself.
_OF_THE_PLAN = (
    'rounds',
    'max_participations',
    'noise_multiplier',
    'target_epsilon',
    *_OF_THE_MATRIX,
    'stop_at_epsilon',
    'stop_at_accuracy',
)


_LONGER = 'goes on to {} rounds; the guarantee becomes that of all of them'
_SWITCHED = (
    'goes on with another matrix after {} of {} rounds; the guarantee becomes that of the whole '
    'matrix'
)


def is_wanted(
    start: Checkpoint, configuration: Mapping[str, Any], plan: accounting.PrivacyPlan
) -> bool:
    """Whether a configuration asks for more rounds than the run of a checkpoint, or another matrix.

    Args:
      start: the checkpoint.
      configuration: the settings of the new run.
      plan: its plan.
    """
    before, now = start.configuration, json.loads(json.dumps(dict(configuration)))
    if not (isinstance(before.get('rounds'), int) and isinstance(now.get('rounds'), int)):
        return False
    changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
    if 'rounds' in changed:
        return now['rounds'] > before['rounds']
    if 'stop_at_epsilon' in changed:
        return True
    # Without any change, a file of the same name may have another strategy.
    is_other = not changed or bool(changed & {*_OF_THE_MATRIX})
    return is_other and plan.digest() != start.plan_digest


def check(
    start: Checkpoint,
    configuration: Mapping[str, Any],
    plan: accounting.PrivacyPlan,
    directory: 'pathlib.Path',
) -> str:
    """Checks that the run of a checkpoint can go on with another plan.

    Args:
      start: the checkpoint.
      configuration: the settings of the new run.
      plan: its plan.
      directory: the directory of the run.

    Returns:
      How the run goes on, in one line.

    Raises:
      ArgumentError: if anything but the number of rounds and the matrix of later rounds differs, or
        the first rounds of the new plan are not those that were planned, or released.
      RunError: if the plan or the ledger in the directory is not that of the checkpoint.
    """
    if configuration.get('audit'):
        raise errors.ArgumentError(
            'rounds',
            configuration['rounds'],
            f'must be {start.configuration["rounds"]}, with the same matrix: the canaries of an '
            'audit take part in planned rounds',
        )
    start.require_configuration(configuration, _OF_THE_PLAN)
    before = _plan_before(start, plan, directory)
    rounds = plan.participation.rounds
    if before is None:
        return _LONGER.format(rounds)
    planned = before.participation.rounds
    is_other = _is_other(plan, before)
    if rounds < planned or (rounds == planned and not is_other):
        raise errors.ArgumentError('rounds', rounds, f'must be above {planned} to extend the run')
    schedule = configuration.get('server_schedule', 'constant')
    if schedule != 'constant' and rounds > planned:
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
    released = max(len(ledger_lib.read(directory / archive.LEDGER).entries), start.rounds)
    if is_other:
        _require_released(plan, before, released, directory)
    was, now = before.to_dict(), plan.to_dict()
    for name in was:
        if name not in ('mechanism_digest', 'participation') and was[name] != now.get(name):
            raise errors.ArgumentError(
                name, now.get(name), f'must be {was[name]}, as when the run began'
            )
    if is_other:
        return _switch_shown(configuration, plan, before, released)
    return _LONGER.format(rounds)


def _matrix(plan: accounting.PrivacyPlan) -> mechanisms.Mechanism:
    """The mechanism of the rounds of a plan, as it is streamed."""
    return plan.mechanism.with_rounds(plan.participation.rounds)


def _is_other(plan: accounting.PrivacyPlan, before: accounting.PrivacyPlan) -> bool:
    """Whether rounds that were planned before have another matrix."""
    rounds = min(plan.participation.rounds, before.participation.rounds)
    return not _matrix(plan).begins_like(_matrix(before), rounds)


def _require_released(
    plan: accounting.PrivacyPlan,
    before: accounting.PrivacyPlan,
    released: int,
    directory: 'pathlib.Path',
) -> None:
    """Refuses a matrix that differs in a round that was released, or has no round to begin in."""
    name, planned = plan.mechanism.name, before.participation.rounds
    strategy = directory / archive.STRATEGY
    if released >= planned:
        raise errors.ArgumentError(
            'mechanism',
            name,
            f'must have the strategy of the run in its first {planned} rounds, which are all '
            f'released; {strategy} holds it',
        )
    if not released:
        raise errors.ArgumentError(
            'mechanism', name, 'must be that of the run: no round is released, so begin a new run'
        )
    if not _matrix(plan).streams_like(_matrix(before), released):
        raise errors.ArgumentError(
            'mechanism',
            name,
            f'must have the strategy of the run in its first {released} rounds, which are '
            f'released; {strategy} holds it',
        )


def _switch_shown(
    configuration: Mapping[str, Any],
    plan: accounting.PrivacyPlan,
    before: accounting.PrivacyPlan,
    released: int,
) -> str:
    """What another matrix does to the guarantee, as one line."""
    shown = _SWITCHED.format(released, plan.participation.rounds)
    if plan.sampling != 'none' or not plan.noise_multiplier:
        return shown
    accountant = configuration.get('accountant') or 'pld'
    epsilons = [each.epsilon(configuration['delta'], accountant) for each in (before, plan)]
    if not all(map(math.isfinite, epsilons)):
        return shown
    was, now = epsilons
    return f'{shown}, with epsilon {now:.6g} at delta {configuration["delta"]:g}, planned {was:.6g}'


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
    is_longer = plan.participation.rounds > before.participation.rounds
    what, then = ('more rounds', 'becomes larger') if is_longer else ('another matrix', 'changes')
    raise errors.ArgumentError(
        'target_epsilon',
        configuration['target_epsilon'],
        f'cannot hold for {what}, because the noise of the run has been used; with '
        f'noise_multiplier={used} instead it goes on, and epsilon {then}',
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
            f'must be {extensions[-1].rounds}, to which the run was extended'
            + (', with the matrix that it got' if extensions[-1].switched else ''),
        )
    raise errors.RunError(f'{directory / archive.PLAN}: is not the plan of the checkpoint')


def commit(
    experiment: 'program.Experiment',
    directory: 'outputs.RunDirectory',
    start: Checkpoint,
    files: Mapping[str, str],
) -> Checkpoint:
    """Makes the run of a checkpoint the first rounds of one with more rounds or another matrix.

    Args:
      experiment: the new run; `check` has accepted its plan.
      directory: the directory of the run, which is in use.
      start: the checkpoint.
      files: text files that describe the new run, by name; they replace earlier ones.

    Returns:
      The checkpoint as one of the new run. `program.run_training` saves it.

    Raises:
      RunError: if the ledger has other cohorts than the new run, or rounds with another matrix, or
        is that of another extended run; if past noise would be kept in another place; or if a file
        cannot be read or written.
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
                f'{path}: the run was extended to {lines.extensions[-1].rounds} rounds, or got '
                'another matrix for them; it must continue with these first'
            )
        switched = _is_other(experiment.plan, before.plan)
        # Read again, because another process may have released rounds since `check`.
        matrix, released = _matrix(experiment.plan), len(lines.entries)
        if switched and not (released and matrix.streams_like(_matrix(before.plan), released)):
            raise errors.RunError(
                f'{path}: has {len(lines.entries)} rounds, in which the other matrix differs'
            )
        directory.forget_digests()
        ledger_lib.Ledger(path, before.digest()).extend(
            ledger_lines.Extension(
                released=len(lines.entries),
                planned=planned,
                rounds=experiment.plan.participation.rounds,
                plan=digest,
                switched=switched,
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
