"""`train_gan`: trains a generator of images under a privacy plan."""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import accounting
from dpfl.accounting import large_delta
from dpfl.errors import NOT_SHOWN, ArgumentError, renaming
from dpfl.simulation.training import execution, run_data
from dpfl.simulation.training.config import GanConfig, GanOptimizationConfig
from dpfl.simulation.training.execution import TrainResult
from dpfl.simulation.training.plan import accountant, build_plan
from dpfl.tasks import source
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.images import image_task

if TYPE_CHECKING:
    import tensorflow_federated as tff

    from dpfl.simulation import program

NOT_COVERED = (
    'Losses, accuracy and critic gap: they compare with images of held-out clients, who are not '
    'protected. The generator and all images that it makes are covered: see gan_report.md.',
    'Who belongs to the population, and its size, where clients or examples were selected.',
    run_data.NOT_FINGERPRINTED,
)
_SHEET_IMAGES = 72
_EVAL_BATCH_SIZE = 256


def train_gan(
    config: GanConfig,
    directory: str | os.PathLike[str],
    *,
    task: FederatedTask | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    files: Mapping[str, str] | None = None,
    notice: str = '',
    check: Callable[[accounting.PrivacyPlan, str], object] = lambda plan, accountant: None,
) -> TrainResult:
    """Trains a generator by DP-FedAvg-GAN ([Augenstein20], algorithm 1), and writes the run.

    The weights of the result are those of the generator. In the directory, `plots/` has a sheet of
    generated images for each evaluation, and `generator/` the generator as a SavedModel.

    Args:
      config: the configuration of the run.
      directory: the directory of the run; created if it does not exist.
      task: your own task, without a model; by default the one that the configuration names. All
        batches of a client are read, and in every round images are drawn from them.
      resume: continue the run in the directory, or return its result if it is finished.
      overwrite: replace an earlier run in the directory.
      progress: show a progress bar and messages on standard error.
      files: further texts to write to the directory when the run begins, by the names of their
        files, `*.txt`.
      notice: a message to show before the first round.
      check: called with plan and accountant before anything that takes long; may raise.

    Raises:
      ArgumentError: if a value is not allowed. Raised before anything that takes long.
      RunError: if a file or Ray fails. Saved rounds stay intact.
      DataError: if the data can no longer be read.
    """
    tell = execution.teller(progress)
    if resume and overwrite:
        raise ArgumentError('resume', True, 'cannot be combined with overwrite')
    if task is not None and config.task.selection.is_given:
        raise ArgumentError('task', NOT_SHOWN, 'must not be given with a selection')
    from dpfl.simulation.run_directory import RunDirectory

    run_directory = RunDirectory(directory, overwrite=overwrite, resume=resume)
    with run_directory.in_use():
        run = execution.Run(
            directory=run_directory,
            configuration=_made_from(config, task),
            settings=json.loads(json.dumps(config.to_dict())),
            files=files or {},
            tell=tell,
            notice=notice,
        )
        run.require_settings()
        given = functools.cache(lambda: task or _task(config))
        population = functools.partial(
            source.population,
            config.sampling.population,
            (lambda: None)
            if task is None and config.task.task == 'synthetic_glyphs'
            else lambda: given().population,
        )
        plan = run.known_plan() or gan_plan(config, population)
        method = accountant(config.privacy, plan)
        plan.epsilon(config.privacy.delta, method)
        check(plan, method)
        _refuse_unsupported(config)

        def build() -> 'tuple[program.Experiment, FederatedTask]':
            if text := large_delta.warning(config.privacy.delta, population()):
                tell(text)
            sheets = run_directory.path / 'plots'
            experiment = _experiment(config, plan, given(), population(), sheets)
            experiment = dataclasses.replace(experiment, progress=progress)
            return experiment, given()

        return run.execute(plan, build)


def gan_plan(config: GanConfig, population: Callable[[], int]) -> accounting.PrivacyPlan:
    """The privacy plan of a run that trains a GAN. Clients send updates of the discriminator.

    Raises:
      ArgumentError: if values are missing, not allowed, or contradict each other.
    """

    def dimension() -> int:
        import math

        from dpfl.tasks.images import gan_models

        shapes = gan_models.PRESETS[config.optimization.model].discriminator_shapes()
        return sum(map(math.prod, shapes))

    return build_plan(config.privacy, config.sampling, population=population, dimension=dimension)


def sample(config: GanConfig, generator: Sequence[Any], number: int) -> np.ndarray:
    """Draws images from a generator, float32 [number, height, width] within [0, 1]."""
    from dpfl import learning

    model = build_model(config.optimization, config.seed)
    return learning.sample(model, generator, number, config.seed)[..., 0]


def build_model(how: GanOptimizationConfig, seed: int) -> Any:
    """The untrained generator and discriminator, a `gan_models.GanModel`."""
    from dpfl.tasks.images import gan_models

    return gan_models.build_gan_model(how.model, seed)


def build_process(
    config: GanConfig, plan: accounting.PrivacyPlan, **others: Any
) -> 'tff.learning.templates.LearningProcess':
    """The process that trains the GAN of a configuration under a plan.

    Args:
      config: the configuration of the run.
      plan: its privacy plan.
      **others: further arguments of `learning.build_dp_fedavg_gan`.
    """
    import tensorflow_federated as tff

    from dpfl import learning

    how, optimizers = config.optimization, tff.learning.optimizers
    if how.generator_optimizer == 'adam':
        # beta_1 = 0, since the discriminator keeps changing ([Gulrajani17], algorithm 1).
        generator = optimizers.build_adam(how.generator_learning_rate, beta_1=0.0, beta_2=0.9)
    else:
        generator = optimizers.build_sgdm(how.generator_learning_rate)
    return learning.build_dp_fedavg_gan(
        build_model(how, config.seed),
        plan,
        client_optimizer_fn=optimizers.build_sgdm(how.client_learning_rate),
        server_optimizer_fn=optimizers.build_sgdm(how.server_learning_rate, how.server_momentum),
        generator_optimizer=generator,
        generator_steps=how.generator_steps,
        generator_every=how.generator_every,
        generator_batch_size=how.generator_batch_size,
        gradient_penalty=how.gradient_penalty,
        seed=config.seed,
        noise_seed=config.noise_seed,
        train_metrics=config.evaluation.release_train_metrics,
        **others,
    )


def _made_from(config: GanConfig, task: FederatedTask | None) -> dict[str, Any]:
    return {**config.fixed(), **(task.made_from if task is not None else {})}


def _refuse_unsupported(config: GanConfig) -> None:
    if config.privacy.noise != 'default':
        raise ArgumentError('noise', config.privacy.noise, 'must be default for a GAN')
    if config.privacy.mechanism == 'auto':
        raise ArgumentError('mechanism', 'auto', 'cannot be used for a GAN')
    if config.privacy.clip_schedule:
        raise ArgumentError('clip_schedule', NOT_SHOWN, 'must be empty for a GAN')


def _task(config: GanConfig) -> FederatedTask:
    """The task that the configuration names, with its selection."""
    from dpfl.tasks import selection as selection_lib
    from dpfl.tasks.images import classifiers

    task, selection = config.task, config.task.selection
    clients = image_task.open_clients(task.task, task.data, task.faults, config.seed)
    classify = None
    if selection.selection_model is not None:
        with renaming(path='selection_model'):
            classifiers.require_stranger(selection.selection_model, task, config.seed)
            classify = classifiers.load(selection.selection_model).probabilities
    return selection_lib.select(selection, image_task.task_of(clients), classify)


def drawn_images(config: GanConfig, task: FederatedTask) -> dict[str, Any]:
    """The fields `client_data` and `drawn` of an experiment.

    In every round a client draws its images anew, without replacement, and splits them into batches
    ([Augenstein20], algorithm 1): otherwise a client with many images would train on the same few.
    The draw is a pure function of the seed, the round and the client.
    """
    from dpfl.simulation.training import drawn_examples

    how = config.optimization
    batches = task.client_batches  # Other processes may read the data.
    return {
        'client_data': lambda client: batches(int(client), how.client_batch_size, 1, None),
        'drawn': drawn_examples.DrawnExamples(
            config.seed, how.client_batch_size, how.client_max_batches
        ),
    }


def _experiment(
    config: GanConfig,
    plan: accounting.PrivacyPlan,
    task: FederatedTask,
    population: int,
    sheets: pathlib.Path,
) -> 'program.Experiment':
    """The experiment of a run. Each evaluation also draws a sheet of images."""
    from dpfl import aggregators, learning
    from dpfl.auditing import canaries, one_shot
    from dpfl.reporting import contact_sheet
    from dpfl.simulation import program

    how = config.optimization
    model = build_model(how, config.seed)
    heldout = task.heldout(config.evaluation.eval_clients, _EVAL_BATCH_SIZE)
    measure = learning.build_gan_evaluation(
        model,
        np.concatenate([batch['x'] for batch in heldout.as_numpy_iterator()]),
        gradient_penalty=how.gradient_penalty,
        seed=config.seed,
    )

    def evaluate(weights: Any) -> Mapping[str, float]:
        named = learning.gan_weights(weights)
        path = sheets / f'generated_{int(named.round):06d}.png'
        contact_sheet.write(path, sample(config, named.generator, _SHEET_IMAGES))
        return measure(weights)

    is_per_layer = config.privacy.clipping == 'per_layer'
    audit = None

    def samplers(seed: int) -> Any:
        return config.sampling.sampler(plan.participation, population, seed, plan.sampling)

    if config.audit.audit:
        size = sum(weight.size for weight in model.initial_discriminator)
        design = canaries.design(plan, config.audit.canaries, config.seed, size, samplers)
        # Clients train the discriminator; the weights of the process begin with the generator.
        audit = one_shot.OneShotAudit(
            design, lambda weights: learning.gan_weights(weights).discriminator
        )
    return program.Experiment(
        process=build_process(
            config,
            plan,
            clip=aggregators.PerLayer() if is_per_layer else aggregators.clip_flat,
            canaries=None if audit is None else audit.design.added(),
        ),
        plan=plan,
        delta=config.privacy.delta,
        accountant=accountant(config.privacy, plan),
        sampler=samplers(config.seed),
        **drawn_images(config, task),
        evaluate=evaluate,
        eval_every=config.evaluation.eval_every,
        release_train_metrics=config.evaluation.release_train_metrics,
        reference_accuracies={'cannot_tell_apart': 0.5},
        noise_is_seeded=config.noise_seed is not None,
        not_covered=(*config.not_covered, *task.not_covered, *NOT_COVERED),
        about=accounting.About(
            task=config.task.task,
            model=how.model,
            parameters=sum(weight.size for weight in model.initial_discriminator),
        ),
        remarks=config.task.selection.remarks(),
        num_shards=config.execution.shards,
        ray=config.execution.ray,
        ray_timeout=config.execution.ray_timeout,
        checkpoint_every=config.execution.checkpoint_every,
        keep_checkpoints=config.execution.keep_checkpoints,
        profile=config.execution.profile,
        configuration=_made_from(config, task),
        audit=audit,
        finish=functools.partial(_save_generator, config),
    )


def _save_generator(config: GanConfig, path: pathlib.Path) -> None:
    """Saves the generator of a run that is about to end as a SavedModel."""
    from dpfl.simulation.training import run_model
    from dpfl.tasks.images import gan_models

    model = build_model(config.optimization, config.seed)
    gan_models.save(model, run_model.weights(path), path / gan_models.IN_RUN)
