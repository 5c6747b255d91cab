"""What is particular to runs that train a generator by DP-FedAvg-GAN ([Augenstein20])."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import accounting, mechanisms
from dpfl.simulation.training import run_model
from dpfl.simulation.training.config import GanConfig, GanOptimizationConfig
from dpfl.tasks.config import SYNTHETIC_TASKS
from dpfl.tasks.federated_task import EVAL_BATCH_SIZE, FederatedTask, TaskSource
from dpfl.tasks.images import image_task

if TYPE_CHECKING:
    from dpfl.auditing.canaries import CanaryDesign

_SHEET_IMAGES = 72


class GanTask(TaskSource):
    """Images of clients, with a generator and a discriminator as the model."""

    def __init__(self, config: GanConfig, task: FederatedTask | None = None):
        self._config = config
        self._given = task

    @functools.cached_property
    def _clients(self) -> FederatedTask:
        return _opened(self._config) if self._given is None else self._given

    def num_clients(self) -> int | None:
        """Number of clients to train on; None for synthetic ones."""
        if self._given is None and self._config.task.task in SYNTHETIC_TASKS:
            return None
        return self._clients.population

    def num_parameters(self) -> int:
        """Number of parameters of the discriminator, which clients train."""
        from dpfl.tasks.images import gan_models

        shapes = gan_models.PRESETS[self._config.optimization.model].discriminator_shapes()
        return sum(map(math.prod, shapes))

    def load(self) -> FederatedTask:
        """The task, whose model is a `gan_models.GanModel`."""
        model = build_model(self._config.optimization, self._config.seed)
        return dataclasses.replace(self._clients, model=model)


def sample(config: GanConfig, generator: Sequence[Any], number: int) -> np.ndarray:
    """Draws images from a generator, float32 [number, height, width] within [0, 1]."""
    from dpfl import learning

    model = build_model(config.optimization, config.seed)
    return learning.sample(model, generator, number, config.seed)[..., 0]


def build_model(optimization: GanOptimizationConfig, seed: int) -> Any:
    """The untrained generator and discriminator, a `gan_models.GanModel`."""
    from dpfl.tasks.images import gan_models

    return gan_models.build_gan_model(optimization.model, seed)


def _opened(config: GanConfig) -> FederatedTask:
    """The task that the configuration names."""
    task = config.task
    return image_task.task_of(
        image_task.open_clients(task.task, task.data, task.faults, config.seed)
    )


def drawn_images(config: GanConfig, task: FederatedTask) -> dict[str, Any]:
    """The fields `client_data` and `drawn` of an experiment.

    In every round a client draws its images anew, without replacement, and splits them into batches
    ([Augenstein20], algorithm 1): otherwise a client with many images would train on the same few.
    """
    from dpfl.simulation.training import drawn_examples

    optimization = config.optimization
    return drawn_examples.in_every_round(
        task, config.seed, optimization.client_batch_size, optimization.client_max_batches
    )


def trained(
    config: GanConfig,
    plan: accounting.PrivacyPlan,
    task: FederatedTask,
    storage: mechanisms.NoiseStorage,
    directory: pathlib.Path | None,
    design: 'CanaryDesign | None',
) -> dict[str, Any]:
    """The fields of the experiment that depend on the kind of model, such as `process`.

    Args:
      config: the configuration of the run.
      plan: its plan. Clients send updates of the discriminator.
      task: the task, with its initial model.
      storage: where past noise is kept.
      directory: of the run, for a sheet of generated images of each evaluation; None for a run that
        is only shown.
      design: of the canaries of the audit; None without one.
    """
    import tensorflow_federated as tff

    from dpfl import learning
    from dpfl.auditing import one_shot
    from dpfl.reporting import html_parts
    from dpfl.tasks.images import gan_models

    optimization = config.optimization
    optimizers = tff.learning.optimizers
    if optimization.generator_optimizer == 'adam':
        # beta_1 = 0, since the discriminator keeps changing ([Gulrajani17], algorithm 1).
        generator = optimizers.build_adam(
            optimization.generator_learning_rate, beta_1=0.0, beta_2=0.9
        )
    else:
        generator = optimizers.build_sgdm(optimization.generator_learning_rate)
    process = learning.build_dp_fedavg_gan(
        task.model,
        plan,
        client_optimizer_fn=optimizers.build_sgdm(optimization.client_learning_rate),
        server_optimizer_fn=optimizers.build_sgdm(
            optimization.server_learning_rate, optimization.server_momentum
        ),
        generator_optimizer=generator,
        generator_steps=optimization.generator_steps,
        generator_batch_size=optimization.generator_batch_size,
        gradient_penalty=optimization.gradient_penalty,
        seed=config.seed,
        noise_seed=config.noise_seed,
        train_metrics=config.evaluation.release_train_metrics,
        clip=config.privacy.clip(),
        supplied_noise=storage.is_supplied,
        canaries=None if design is None else design.added(),
    )
    heldout = task.heldout(config.evaluation.eval_clients, EVAL_BATCH_SIZE)
    measure = learning.build_gan_evaluation(
        task.model,
        np.concatenate([batch['x'] for batch in heldout.as_numpy_iterator()]),
        gradient_penalty=optimization.gradient_penalty,
        seed=config.seed,
    )

    def evaluate(weights: Any) -> Mapping[str, float]:
        assert directory is not None  # As the run is trained.
        named = learning.gan_weights(weights)
        path = directory / 'plots' / f'generated_{int(named.round):06d}.png'
        images = learning.sample(task.model, named.generator, _SHEET_IMAGES, config.seed)
        html_parts.write(path, images[..., 0])
        return measure(weights)

    def save_generator(path: pathlib.Path) -> None:
        gan_models.save(task.model, run_model.weights(path), path / gan_models.IN_RUN)

    # Clients train the discriminator; the weights of the process begin with the generator.
    audit = (
        None
        if design is None
        else one_shot.OneShotAudit(
            design, lambda weights: learning.gan_weights(weights).discriminator
        )
    )
    return dict(
        process=process,
        **drawn_images(config, task),
        evaluate=evaluate,
        reference_accuracies={'cannot_tell_apart': 0.5},
        noise_storage=storage,
        audit=audit,
        finish=save_generator,
    )
