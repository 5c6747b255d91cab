"""A run that trains a GAN: what `train_gan` and `debug_images` have in common. No flags."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from dpfl import _storage, _validate, accounting, aggregators, errors, learning
from dpfl.reporting import contact_sheet
from dpfl.simulation import program
from dpfl.tasks.images import gan_models
from dpfl.tasks.text.models import saved_models
from experiments import run_model

SAVED_MODEL = 'generator'
NOT_COVERED = (
    'Losses, accuracy and critic gap: they compare with images of held-out clients, who are not '
    'protected. The generator and all images that it makes are covered: see gan_report.md.',
    'Who belongs to the population, and its size, where clients or examples were selected.',
)
_SHEET_COLUMNS = 12
_SHEET_IMAGES = 72


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How a GAN is trained, but for its privacy plan; defaults: document 004, table 9.

    Attributes:
      model: a key of `gan_models.PRESETS`.
      client_learning_rate: of the discriminator's SGD at a client (eta_D).
      client_batch_size: real images of such a step (B).
      client_max_batches: most steps of a client in a round (n).
      server_learning_rate: of the server's SGD on the discriminator; 1 in algorithm 1.
      server_momentum: of it; 0 in algorithm 1.
      generator_learning_rate: of the generator's optimizer (eta_G).
      generator_optimizer: 'sgd' as in algorithm 1, or 'adam'.
      generator_steps: steps of the generator whenever it is trained (n).
      generator_every: rounds between two such times; 1 in algorithm 1.
      generator_batch_size: images of such a step (B).
      gradient_penalty: coefficient, 10 in appendix C.2.
      seed: of the initial weights and the generator's inputs.
      noise_seed: None for noise keys from the operating system; an integer for a simulation.

    Raises:
      ValueError: if a field is out of its range.
    """

    model: str = 'small'
    client_learning_rate: float = 0.0005
    client_batch_size: int = 32
    client_max_batches: int = 6
    server_learning_rate: float = 1.0
    server_momentum: float = 0.0
    generator_learning_rate: float = 0.005
    generator_optimizer: str = 'sgd'
    generator_steps: int = 6
    generator_every: int = 1
    generator_batch_size: int = 32
    gradient_penalty: float = 10.0
    seed: int = 0
    noise_seed: int | None = None

    def __post_init__(self):
        _validate.choice('model', self.model, gan_models.PRESETS)
        _validate.choice('generator_optimizer', self.generator_optimizer, ('sgd', 'adam'))
        for name in ('client_learning_rate', 'server_learning_rate', 'generator_learning_rate'):
            _validate.number(name, getattr(self, name), above=0)
        _validate.number('server_momentum', self.server_momentum, minimum=0, below=1)
        _validate.integer('client_batch_size', self.client_batch_size, minimum=1)
        _validate.integer('client_max_batches', self.client_max_batches, minimum=1)

    def build_model(self) -> gan_models.GanModel:
        """The generator and the discriminator at their start."""
        return gan_models.build_gan_model(self.model, self.seed)

    def build_process(
        self, plan: accounting.PrivacyPlan, train_metrics: bool = False, **others
    ) -> tff.learning.templates.LearningProcess:
        """The process for a plan; `others` are arguments of `build_dp_fedavg_gan`."""
        sgd = tff.learning.optimizers.build_sgdm
        generator = {'sgd': sgd, 'adam': _adam}[self.generator_optimizer]
        return learning.build_dp_fedavg_gan(
            self.build_model(),
            plan,
            client_optimizer=sgd(self.client_learning_rate),
            server_optimizer=sgd(self.server_learning_rate, self.server_momentum),
            generator_optimizer=generator(self.generator_learning_rate),
            generator_steps=self.generator_steps,
            generator_every=self.generator_every,
            generator_batch_size=self.generator_batch_size,
            gradient_penalty=self.gradient_penalty,
            seed=self.seed,
            noise_seed=self.noise_seed,
            train_metrics=train_metrics,
            **others,
        )


def _adam(learning_rate: float) -> tff.learning.optimizers.Optimizer:
    # beta_1 = 0 as in Gulrajani et al. 2017, algorithm 1: the discriminator changes all the time.
    return tff.learning.optimizers.build_adam(learning_rate, beta_1=0.0, beta_2=0.9)


def experiment(
    training: Training,
    plan: accounting.PrivacyPlan,
    *,
    client_batches: Callable[[int, int, int, int | None], Sequence[Any]],
    heldout: np.ndarray,
    sheets: pathlib.Path,
    train_metrics: bool = False,
    clip=aggregators.clip_flat,
    not_covered: Sequence[str] = (),
    **others,
) -> program.Experiment:
    """The experiment that trains a GAN, and draws a sheet of its images at each evaluation.

    Args:
      training: how.
      plan: the privacy plan.
      client_batches: (client, batch size, epochs, most batches) -> its batches, none if it has no
        image to train on; as `client_batches` of a task.
      heldout: real images of clients that are not trained on, float32 [n, height, width] within
        [0, 1].
      sheets: directory for the sheets.
      train_metrics: also record the metrics of the training clients, without noise.
      clip: as in `build_dp_fedavg_gan`.
      not_covered: what else the guarantee says nothing about, a sentence each.
      **others: fields of the experiment.

    Raises:
      ValueError: if an argument is out of its range.
    """
    model = training.build_model()
    metrics_of = learning.build_gan_evaluation(
        model,
        heldout.reshape(-1, *model.image_shape),
        gradient_penalty=training.gradient_penalty,
        seed=training.seed,
    )

    def evaluate(weights):
        named = learning.gan_weights(weights)
        path = sheets / f'generated_{int(named.round):06d}.png'
        write_sheet(path, sample(training, named.generator, _SHEET_IMAGES))
        return metrics_of(weights)

    return program.Experiment(
        process=training.build_process(plan, train_metrics=train_metrics, clip=clip),
        plan=plan,
        client_data=lambda client: client_batches(
            int(client), training.client_batch_size, 1, training.client_max_batches
        ),
        evaluate=evaluate,
        release_train_metrics=train_metrics,
        reference_accuracies={'cannot_tell_apart': 0.5},
        noise_is_seeded=training.noise_seed is not None,
        not_covered=(*not_covered, *NOT_COVERED),
        **others,
    )


def require_clients(clients: Sequence[int], clients_per_round: int) -> None:
    """Checks that there are clients to train on, where they were selected.

    Raises:
      ValueError: if they are fewer than a cohort; the message says so in one line.
    """
    if len(clients) < clients_per_round:
        raise errors.ArgumentError(
            'population',
            len(clients),
            f'must be at least {clients_per_round}, the clients per '
            'round: too few clients were selected, and nothing can be trained on them',
        )


def sample(training: Training, generator: Sequence[Any], number: int) -> np.ndarray:
    """Images of a generator, float32 [number, height, width] within [0, 1]."""
    model = training.build_model()
    return learning.sample(model, generator, number, training.seed)[..., 0]


def write_sheet(path: pathlib.Path, pixels: np.ndarray) -> None:
    """Writes images as one picture; makes the directory if need be.

    Raises:
      StorageError: if that fails.
    """
    with _storage.naming(path):
        path.parent.mkdir(exist_ok=True)
    picture = contact_sheet.png(pixels, _SHEET_COLUMNS)
    _storage.write_atomically(path, lambda file: file.write(picture))


def save_generator(training: Training, directory: pathlib.Path) -> None:
    """Writes the generator of a finished run as a SavedModel, in `generator/` of its directory.

    Its signature `generate` takes inputs float32 [n, input_size], standard normal ones, and gives
    pixels float32 [n, height, width, 1] within [0, 1].

    Raises:
      StorageError: if that fails.
    """
    model, path = training.build_model(), directory / SAVED_MODEL
    module = tf.Module()
    module.weights = [tf.Variable(weight) for weight in run_model.weights(directory)]

    @tf.function(input_signature=[tf.TensorSpec([None, model.input_size], name='inputs')])
    def generate(inputs):
        return {'pixels': gan_models.pixels_of(model.generate(tuple(module.weights), inputs))}

    module.generate = generate
    with _storage.naming(path):
        saved_models.write(module, path, {'generate': generate})
