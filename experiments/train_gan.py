"""Trains a generator of images by DP-FedAvg-GAN under a privacy plan (document 004, algorithm 1).

Example:
  python -m experiments.train_gan --rounds=200 --population=850 --clients_per_round=10 \
    --sampling=without_replacement --noise_multiplier=0.01 --delta=1e-3 --output_dir=runs/gan

The directory then holds what experiments.train leaves, with the generator as the model; sheets of
generated images in plots/; the generator as a SavedModel in generator/; and gan_report.md, which
says why the generator has the guarantee of the run. Losses are those of held-out clients.
"""

import json
import sys

from absl import flags

from dpfl import _storage, accounting, errors
from dpfl.accounting.records import archive
from experiments.command import command_line
from experiments.flags import (
    aggregation_flags,
    gan_flags,
    image_flags,
    privacy_flags,
    run_flags,
    sampling_flags,
)
from experiments.pages import gan_page

flags.adopt_module_key_flags(gan_flags)
flags.adopt_module_key_flags(image_flags)
flags.adopt_module_key_flags(privacy_flags)
flags.adopt_module_key_flags(aggregation_flags)
flags.adopt_module_key_flags(run_flags)
flags.adopt_module_key_flags(sampling_flags)
_TASK = flags.DEFINE_enum(
    'task', 'synthetic_glyphs', ['synthetic_glyphs', 'emnist'], 'Data set of images.'
)
_MODEL = flags.DEFINE_enum(
    'model',
    'small',
    gan_flags.MODELS,
    'Size of generator and discriminator; dcgan has that of document 004.',
)
_MECHANISM = flags.DEFINE_enum(
    'mechanism',
    'gaussian',
    [*privacy_flags.MECHANISMS, 'none'],
    'How the noise of the rounds is correlated; none: clipping only, and no guarantee.',
)
_TARGET_EPSILON = flags.DEFINE_float(
    'target_epsilon', None, 'Use the noise that this epsilon at --delta needs.'
)
_CLIP_NORM = flags.DEFINE_float('clip_norm', 0.3, "L2 bound of one client's update.")
_EVAL_EVERY = flags.DEFINE_integer(
    'eval_every', 20, 'Rounds between two evaluations, each with a sheet of images.', lower_bound=1
)
_EVAL_CLIENTS = flags.DEFINE_integer(
    'eval_clients', 5, 'Held-out clients of an evaluation.', lower_bound=1
)
_TRAIN_METRICS = flags.DEFINE_bool(
    'release_train_metrics',
    False,
    'Also record loss and critic gap of the training clients. They have no noise: not private.',
)
_SHARDS = flags.DEFINE_integer(
    'shards',
    2,
    'Parts of a cohort that are trained at a time, best one for each processor core. '
    'Another number rounds differently.',
    lower_bound=1,
)
_SEED = flags.DEFINE_integer(
    'seed',
    0,
    'Of data, order of the clients, initial weights and generator inputs.',
    lower_bound=0,
)
_NOISE_SEED = flags.DEFINE_integer(
    'noise_seed',
    None,
    'Makes the noise repeatable, and the run a simulation; by default keys come from the '
    'operating system.',
    lower_bound=0,
)
_FORMAT = flags.DEFINE_enum('format', 'text', ['text', 'json'], 'Form of the result printed last.')
_DEFAULT_POPULATION = 10_000


def main() -> None:
    """Checks the flags, trains, and prints the result."""
    try:
        _main()
    except (errors.RunError, errors.DataError) as error:
        sys.exit(f'error: {error}')


def _main() -> None:
    clients_per_round = sampling_flags.clients_per_round()
    plan = privacy_flags.plan(
        _MECHANISM.value,
        clip_norm=_CLIP_NORM.value,
        clients_per_round=clients_per_round,
        restarts=aggregation_flags.restarts(),
        **sampling_flags.plan_fields(_population),
        **aggregation_flags.plan_fields(_CLIP_NORM.value, clients_per_round, _dimension),
    )
    accountant = privacy_flags.accountant(plan)
    with command_line.refusing_bad_values():
        # Refuses a bad delta before anything takes long.
        plan.epsilon(flags.FLAGS.delta, accountant)
    scaled = gan_flags.scaled_up(plan, accountant)
    output_dir = run_flags.output_dir()
    run_flags.workers()
    configuration = run_flags.configuration(
        free=['format', 'scale', 'scaled_population', 'scaled_delta']
    )
    start = run_flags.start(configuration, plan)
    if (
        start is not None
        and start.rounds == plan.participation.rounds
        and archive.has_ended(output_dir)
    ):
        print(f'{output_dir}: is finished, all {start.rounds} rounds are done', file=sys.stderr)
        report = _read_report(output_dir)
        rows = start.rows
    else:
        report, rows = _train(plan, output_dir, configuration, start)
    _finish(output_dir, report, scaled)
    _print_result(output_dir, report, scaled, rows)


def _population() -> int:
    """Number of clients to train on.

    Raises:
      UsageError: if the data have fewer.
    """
    given = sampling_flags.given_population()
    if _TASK.value == 'synthetic_glyphs':
        return _DEFAULT_POPULATION if given is None else given
    there = image_flags.num_clients()
    if given is not None and given > there:
        raise command_line.UsageError(
            f'--population={given}: must be <= {there}, the clients to train on that the data have'
        )
    return there if given is None else given


def _dimension() -> int:
    """Number of parameters of the discriminator, which is what clients send."""
    import math

    from dpfl.tasks.images import gan_models

    return sum(map(math.prod, gan_models.PRESETS[_MODEL.value].discriminator_shapes()))


def _train(plan, output_dir, configuration, start):
    """Trains from a checkpoint, or from the beginning; the report and the rows of metrics."""
    # TensorFlow takes seconds to import: only after the flags that can be checked without it.
    from dpfl.simulation import outputs, program

    experiment = _experiment(plan, output_dir, configuration)
    with command_line.refusing_bad_values():
        directory = outputs.RunDirectory(
            output_dir, overwrite=run_flags.OVERWRITE.value, resume=run_flags.RESUME.value
        )
    with directory.in_use():
        run_flags.require_start(directory, start)
        if start is None:
            directory.write_text('flags.txt', run_flags.flags_text())
        result = program.run_training(experiment, directory, start)
    if result.profile is not None:
        print(result.profile.render(), file=sys.stderr, end='')
    return result.report, [result.metrics]


def _experiment(plan, output_dir, configuration):
    from dpfl import aggregators
    from experiments import gan_run

    with command_line.refusing_bad_values():
        population = _population()
        data = image_flags.data(_TASK.value, flags.FLAGS.inverted_share, _SEED.value)
        pixels, _ = data.heldout_examples(_EVAL_CLIENTS.value)
        return gan_run.experiment(
            _training(),
            plan,
            sampler=sampling_flags.sampler(plan.participation, population, _SEED.value),
            client_batches=data.client_batches,
            heldout=pixels,
            sheets=output_dir / 'plots',
            train_metrics=_TRAIN_METRICS.value,
            clip=aggregators.PerLayer()
            if aggregation_flags.is_per_layer()
            else aggregators.clip_flat,
            delta=flags.FLAGS.delta,
            accountant=privacy_flags.accountant(plan),
            eval_every=_EVAL_EVERY.value,
            num_shards=_SHARDS.value,
            checkpoint_every=run_flags.CHECKPOINT_EVERY.value,
            keep_checkpoints=run_flags.KEEP_CHECKPOINTS.value,
            workers=run_flags.workers(),
            profile=run_flags.PROFILE.value,
            configuration=configuration,
        )


def _training():
    from experiments import gan_run

    with command_line.refusing_bad_values():
        return gan_run.Training(
            model=_MODEL.value,
            seed=_SEED.value,
            noise_seed=_NOISE_SEED.value,
            **gan_flags.training_fields(),
        )


def _finish(output_dir, report, scaled) -> None:
    """Writes what is made of a run that is done: the generator as a SavedModel, and its page."""
    from dpfl.simulation import outputs
    from experiments import gan_run

    directory = outputs.RunDirectory(output_dir, resume=True)
    with directory.in_use():
        gan_run.save_generator(_training(), output_dir)
        directory.write_text(gan_page.NAME, gan_page.render(report, scaled, gan_run.SAVED_MODEL))
        directory.write_digests()


def _read_report(output_dir) -> accounting.PrivacyReport:
    path = output_dir / 'privacy_report.json'
    with _storage.naming(path), command_line.refusing_bad_values():
        return accounting.PrivacyReport.from_json(path.read_text())


def _print_result(output_dir, report, scaled, rows) -> None:
    metrics = {name: value for row in rows for name, value in row.items() if name != 'round'}
    summary = {
        'output_dir': str(output_dir),
        'rounds': report.guarantee.rounds,
        **metrics,
        'rho': report.guarantee.rho,
        'epsilon': report.guarantee.epsilons[0],
        'delta': report.deltas[0],
    }
    if scaled is not None:
        summary |= {'scaled_epsilon': scaled.epsilon, 'scaled_delta': scaled.delta}
    print(json.dumps(summary) if _FORMAT.value == 'json' else command_line.table(summary))


if __name__ == '__main__':
    command_line.run(main, threads_per_operation=1)
