"""Trains a model by federated learning under a privacy plan, and reports what it guarantees.

Example:
  python -m experiments.train --flagfile=configs/synthetic_text.blt.flags --output_dir=runs/blt

The directory then holds metrics.csv, the privacy report, the participation log, the ledger, the
model, checkpoints, plots and events for TensorBoard. Accuracy and loss are those of held-out
clients. With --resume, a run that was interrupted goes on from its last checkpoint.
"""

import json
import math
import sys

from absl import flags

from dpfl import _storage, accounting, errors, mechanisms
from dpfl.accounting.records import archive
from dpfl.tasks import federated_task
from experiments import run_model
from experiments.command import command_line
from experiments.flags import (
    aggregation_flags,
    noise_flags,
    privacy_flags,
    run_flags,
    sampling_flags,
    schema_flags,
    task_flags,
    warm_start_flags,
)

flags.adopt_module_key_flags(task_flags)
flags.adopt_module_key_flags(warm_start_flags)
flags.adopt_module_key_flags(privacy_flags)
flags.adopt_module_key_flags(noise_flags)
flags.adopt_module_key_flags(aggregation_flags)
flags.adopt_module_key_flags(run_flags)
flags.adopt_module_key_flags(sampling_flags)
_MECHANISM = flags.DEFINE_enum(
    'mechanism',
    'blt',
    [*privacy_flags.MECHANISMS, 'auto', 'none'],
    'How the noise of the rounds is correlated. auto: what has the least noise for the schema and '
    'fits --memory_limit, optimised on the spot; none: clipping only, no noise and no guarantee.',
)
_MEMORY_LIMIT = flags.DEFINE_float(
    'memory_limit',
    1.0,
    'Gigabytes of memory that past noise may take. --mechanism=auto chooses within it; of another '
    'mechanism, more is kept in a file in --output_dir, without a name and gone with the process.',
    lower_bound=0,
)
_TARGET_EPSILON = flags.DEFINE_float(
    'target_epsilon', None, 'Use the noise that this epsilon at --delta needs.'
)
_CLIP_NORM = flags.DEFINE_float('clip_norm', 1.0, "L2 bound of one client's update.")
_CLIP_SCHEDULE = flags.DEFINE_list(
    'clip_schedule',
    [],
    'Clip norms from later rounds on, as round:norm,...; rounds count from 0, and the noise starts '
    'afresh in them. It follows the norm, so the guarantee stays (document 001, section 3).',
)
_CLIENT_UPDATE = flags.DEFINE_enum(
    'client_update',
    'fedavg',
    ['fedavg', 'fedsgd'],
    'What a client sends: how local training changed the model, or one gradient over its data '
    '(DP-FedSGD: no --client_learning_rate).',
)
_CLIENT_LEARNING_RATE = flags.DEFINE_float('client_learning_rate', 0.5, "Of the clients' SGD.")
_CLIENT_BATCH_SIZE = flags.DEFINE_integer(
    'client_batch_size', 16, 'Examples in a batch, such as sentences.', lower_bound=1
)
_CLIENT_EPOCHS = flags.DEFINE_integer(
    'client_epochs', 1, "Passes over a client's data.", lower_bound=1
)
_CLIENT_MAX_BATCHES = flags.DEFINE_integer(
    'client_max_batches', None, 'Most batches that a client trains on in a round.', lower_bound=1
)
_SERVER_LEARNING_RATE = flags.DEFINE_float('server_learning_rate', 1.0, "Of the server's SGD.")
_SERVER_MOMENTUM = flags.DEFINE_float('server_momentum', 0.9, "Of the server's SGD.")
_EVAL_EVERY = flags.DEFINE_integer(
    'eval_every', 10, 'Rounds between two evaluations.', lower_bound=1
)
_EVAL_CLIENTS = flags.DEFINE_integer(
    'eval_clients', 50, 'Held-out clients of an evaluation.', lower_bound=1
)
_TRAIN_METRICS = flags.DEFINE_bool(
    'release_train_metrics',
    False,
    'Also record loss and accuracy of the training clients. They have no noise: not private.',
)
_SHARDS = flags.DEFINE_integer(
    'shards',
    2,
    'Parts of a cohort that are trained at a time, best one for each processor core. '
    'Another number rounds differently.',
    lower_bound=1,
)
_SEED = flags.DEFINE_integer(
    'seed', 0, 'Of data, order of the clients, and initial model.', lower_bound=0
)
_NOISE_SEED = flags.DEFINE_integer(
    'noise_seed',
    None,
    'Makes the noise repeatable, and the run a simulation; by default keys come from the '
    'operating system.',
    lower_bound=0,
)
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the result printed last.')
_EVAL_BATCH_SIZE = 256


def main() -> None:
    """Checks the flags, trains, and prints the result."""
    try:
        _main()
    except (errors.RunError, errors.DataError) as error:
        sys.exit(f'error: {error}')


def _main() -> None:
    plan = privacy_flags.plan(
        _MECHANISM.value,
        clip_norm=_CLIP_NORM.value,
        clients_per_round=sampling_flags.clients_per_round(),
        chosen=_choose() if _MECHANISM.value == 'auto' else None,
        restarts=aggregation_flags.restarts(),
        clip_schedule=_clip_schedule(),
        **noise_flags.plan_fields(),
        **sampling_flags.plan_fields(_population),
        **aggregation_flags.plan_fields(
            _CLIP_NORM.value, sampling_flags.clients_per_round(), task_flags.num_parameters
        ),
    )
    with command_line.refusing_bad_values():
        # Refuses a bad delta before anything takes long.
        plan.epsilon(flags.FLAGS.delta, privacy_flags.accountant(plan))
    output_dir = run_flags.output_dir()
    run_flags.workers()  # Refused before anything takes long.
    configuration = run_flags.configuration(free=['format'])
    start = run_flags.start(configuration, plan)
    if start is not None and _is_finished(output_dir, start, plan):
        _print_finished(output_dir, start)
    else:
        _train(plan, output_dir, configuration, start)


def _is_finished(output_dir, start, plan) -> bool:
    """Whether all rounds are done, and all files written, of which the digests are the last."""
    return start.rounds == plan.participation.rounds and archive.has_ended(output_dir)


def _population() -> int:
    return task_flags.population(sampling_flags.given_population())


def _train(plan, output_dir, configuration, start) -> None:
    """Trains from a checkpoint, or from the beginning, and prints the result."""
    population = _population()  # Opens the data.
    # TensorFlow takes seconds to import: only after what can be checked without it.
    from dpfl.simulation import outputs, program

    task = task_flags.load(_SEED.value)
    language = task_flags.language_model(_SEED.value)
    task = warm_start_flags.apply(task, language)
    experiment = _experiment(task, population, plan, configuration, language)
    with command_line.refusing_bad_values():
        directory = outputs.RunDirectory(
            output_dir, overwrite=run_flags.OVERWRITE.value, resume=run_flags.RESUME.value
        )
    with directory.in_use():
        run_flags.require_start(directory, start)
        run_flags.record_data(directory, task, is_new=start is None)
        if start is None:
            directory.write_text('flags.txt', run_flags.flags_text())
        print(experiment.noise_place, file=sys.stderr)
        result = program.run_training(experiment, directory, start)
    if result.profile is not None:
        print(result.profile.render(), file=sys.stderr, end='')
    _print_result(
        output_dir,
        result.report,
        {
            **result.metrics,
            **experiment.reference_accuracies,
            'noise_place': experiment.noise_place.name,
        },
    )


def _print_finished(output_dir, end) -> None:
    """Prints the result of a run whose last checkpoint is its end."""
    path = output_dir / 'privacy_report.json'
    with _storage.naming(path), command_line.refusing_bad_values():
        report = accounting.PrivacyReport.from_json(path.read_text())
    print(f'{output_dir}: is finished, all {end.rounds} rounds are done', file=sys.stderr)
    metrics = {name: value for row in end.rows for name, value in row.items() if name != 'round'}
    _print_result(output_dir, report, metrics)


def _print_result(output_dir, report: accounting.PrivacyReport, metrics) -> None:
    summary = {
        'output_dir': str(output_dir),
        'rounds': report.guarantee.rounds,
        **metrics,
        'rho': report.guarantee.rho,
        'epsilon': report.guarantee.epsilons[0],
        'delta': report.deltas[0],
    }
    print(json.dumps(summary) if _FORMAT.value == 'json' else command_line.table(summary))


def _choose() -> mechanisms.Mechanism:
    """The mechanism for the schema, the model and the memory limit; prints why."""
    with command_line.refusing_bad_values():
        mechanism, candidates = mechanisms.choose(
            schema_flags.participation(), task_flags.num_parameters(), _MEMORY_LIMIT.value
        )
    rows = [
        {
            'mechanism': candidate.name,
            'copies of the model': candidate.buffers,
            'GB': candidate.gigabytes,
            'max loss': '' if candidate.loss is None else f'{candidate.loss:.4g}',
            'verdict': candidate.verdict,
        }
        for candidate in candidates
    ]
    print(command_line.columns(rows), file=sys.stderr)
    return mechanism


def _experiment(task: federated_task.FederatedTask, population: int, plan, configuration, language):
    import tensorflow_federated as tff

    from dpfl import aggregators, learning
    from dpfl.simulation import program

    optimizers = tff.learning.optimizers
    place = _noise_place(plan, task)
    with command_line.refusing_bad_values():
        sampler = sampling_flags.sampler(plan.participation, population, _SEED.value)
        process = learning.build_dp_fedavg(
            task.model,
            plan,
            client_optimizer=_client_optimizer(),
            client_update=_CLIENT_UPDATE.value,
            server_optimizer=optimizers.build_sgdm(
                _positive(_SERVER_LEARNING_RATE), momentum=_momentum()
            ),
            noise_seed=_NOISE_SEED.value,
            train_metrics=_TRAIN_METRICS.value,
            clip=aggregators.PerLayer()
            if aggregation_flags.is_per_layer()
            else aggregators.clip_flat,
            supplied_noise=place.is_supplied,
        )
        batch_size = _CLIENT_BATCH_SIZE.value
        heldout = task.heldout(_EVAL_CLIENTS.value, _EVAL_BATCH_SIZE)
        return program.Experiment(
            process=process,
            plan=plan,
            delta=flags.FLAGS.delta,
            accountant=privacy_flags.accountant(plan),
            sampler=sampler,
            client_data=lambda client: task.client_batches(
                int(client), batch_size, _CLIENT_EPOCHS.value, _CLIENT_MAX_BATCHES.value
            ),
            evaluate=learning.build_evaluation(task.model, heldout),
            eval_every=_EVAL_EVERY.value,
            release_train_metrics=_TRAIN_METRICS.value,
            reference_accuracies=task.reference_accuracies,
            not_covered=task.not_covered,
            noise_is_seeded=_NOISE_SEED.value is not None,
            noise_place=place,
            num_shards=_SHARDS.value,
            checkpoint_every=run_flags.CHECKPOINT_EVERY.value,
            keep_checkpoints=run_flags.KEEP_CHECKPOINTS.value,
            workers=run_flags.workers(),
            finish=None if language is None else lambda path: run_model.save(path, *language),
            profile=run_flags.PROFILE.value,
            configuration=configuration,
        )


def _clip_schedule() -> tuple[tuple[int, float], ...]:
    try:
        changes = [change.split(':') for change in _CLIP_SCHEDULE.value]
        return tuple((int(first), float(norm)) for first, norm in changes)
    except ValueError:
        raise command_line.UsageError(
            f'--clip_schedule={",".join(_CLIP_SCHEDULE.value)}: must be round:norm, comma-separated'
        ) from None


def _noise_place(plan, task: federated_task.FederatedTask) -> mechanisms.NoisePlace:
    """Where past noise is kept."""
    size = sum(math.prod(weight.shape) for weight in task.model.initial_weights[0])
    kernel = plan.mechanism.with_rounds(plan.participation.rounds).kernel()
    place = mechanisms.place_noise
    if plan.noise == 'hardened':
        place = mechanisms.place_hardened_noise
    return place(kernel, size, _MEMORY_LIMIT.value)


def _client_optimizer():
    import tensorflow_federated as tff

    if _CLIENT_UPDATE.value == 'fedsgd':
        return None
    return tff.learning.optimizers.build_sgdm(_positive(_CLIENT_LEARNING_RATE))


def _positive(flag) -> float:
    if not flag.value > 0:
        raise command_line.UsageError(f'--{flag.name}={flag.value}: must be > 0')
    return flag.value


def _momentum() -> float:
    value = _SERVER_MOMENTUM.value
    if not 0 <= value < 1:
        raise command_line.UsageError(f'--{_SERVER_MOMENTUM.name}={value}: must be >= 0 and < 1')
    return value


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
