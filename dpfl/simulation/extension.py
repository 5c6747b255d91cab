"""Runs that go on beyond the rounds they were planned for.

More rounds need another plan. Its guarantee is that of all rounds, as if they had been planned from
the beginning, so the rounds that were released must be the first rounds of the new plan: the same
strategy, the same noise, the same cohorts. Nothing but the number of rounds may differ, and the
limit of participations that follows from it.

The line in the ledger is the switch. Before it, the directory holds the shorter run. From it on, it
holds the longer one, and everything else follows from the configuration: files that a killed
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


def is_wanted(start: Checkpoint, configuration: Mapping[str, Any]) -> bool:
    """Whether a configuration asks for more rounds than the run of a checkpoint has."""
    before, now = start.configuration, configuration
    if not (isinstance(before.get('rounds'), int) and isinstance(now.get('rounds'), int)):
        return False
    is_longer = now['rounds'] > before['rounds']
    is_same = now['rounds'] == before['rounds']
    return is_longer or (is_same and now.get('stop_at_epsilon') != before.get('stop_at_epsilon'))


def check(
    start: Checkpoint,
    configuration: Mapping[str, Any],
    plan: accounting.PrivacyPlan,
    directory: 'pathlib.Path',
) -> None:
    """Checks that the run of a checkpoint can go on with more rounds.

    Args:
      start: the checkpoint.
      configuration: the settings of the longer run.
      plan: its plan.
      directory: the directory of the run.

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
    if before is None:
        return
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
    if not plan.mechanism.begins_like(before.mechanism, planned):
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
        f'cannot hold for more rounds, because the noise of the run has been used; with '
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
    """Makes the run of a checkpoint the first rounds of a longer run.

    Args:
      experiment: the longer run; `check` has accepted its plan.
      directory: the directory of the run, which is in use.
      start: the checkpoint.
      files: text files that describe the longer run, by name; they replace earlier ones.

    Returns:
      The checkpoint as one of the longer run. `program.run_training` saves it.

    Raises:
      RunError: if the ledger has other cohorts than the longer run, or is that of another extended
        run; or if a file cannot be read or written.
    """
    path, digest = directory.path / archive.LEDGER, experiment.record.digest()
    lines = ledger_lib.read(path)
    _require_cohorts(path, lines, experiment)
    if lines.plan != digest:
        before = archive.read_plan(directory.path)
        planned = before.plan.participation.rounds
        if lines.extensions and lines.plan != before.digest():
            raise errors.RunError(
                f'{path}: the run was extended to {lines.extensions[-1].rounds} rounds; it must '
                'continue with these first'
            )
        directory.forget_digests()
        ledger_lib.Ledger(path, before.digest()).extend(
            ledger_lines.Extension(
                released=len(lines.entries),
                planned=planned,
                rounds=experiment.plan.participation.rounds,
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


def _require_cohorts(
    path: 'pathlib.Path', lines: ledger_lines.Ledger, experiment: 'program.Experiment'
) -> None:
    """Checks that the longer run would have drawn the cohorts that were released."""
    for t, entry in enumerate(lines.entries):
        cohort: Any = experiment.sampler.cohort(t)
        if ledger_lines.cohort_digest(cohort) != entry.cohort:
            raise errors.RunError(
                f'{path}: with more rounds, round {t} would have had another cohort'
            )
