"""Flags of how a GAN is trained, and of the larger population it stands for. No TensorFlow."""

import dataclasses

from absl import flags

from dpfl import accounting, errors
from experiments.command import command_line

MODELS = ('small', 'dcgan', 'tiny')
# Defaults: what makes recognisable glyphs within 150 rounds of 10 clients, with a clip norm of 1
# and the noise multiplier of document 004. More steps of the generator, or larger ones, and the
# discriminator cannot keep up.
_CLIENT_LEARNING_RATE = flags.DEFINE_float(
    'client_learning_rate', 0.1, "Of the discriminator's SGD at a client."
)
_CLIENT_BATCH_SIZE = flags.DEFINE_integer(
    'client_batch_size',
    32,
    'Real images in such a step, and as many generated ones.',
    lower_bound=1,
)
_CLIENT_MAX_BATCHES = flags.DEFINE_integer(
    'client_max_batches', 3, 'Most steps of a client in a round.', lower_bound=1
)
_SERVER_LEARNING_RATE = flags.DEFINE_float(
    'server_learning_rate', 2.0, "Of the server's SGD on the discriminator."
)
_SERVER_MOMENTUM = flags.DEFINE_float('server_momentum', 0.0, 'Of it.')
_GENERATOR_OPTIMIZER = flags.DEFINE_enum(
    'generator_optimizer', 'adam', ['sgd', 'adam'], 'Of the generator; document 004 has sgd.'
)
_GENERATOR_LEARNING_RATE = flags.DEFINE_float(
    'generator_learning_rate', 0.0005, "Of the generator's optimizer."
)
_GENERATOR_STEPS = flags.DEFINE_integer(
    'generator_steps', 3, 'Steps of the generator whenever it is trained.', lower_bound=0
)
_GENERATOR_EVERY = flags.DEFINE_integer(
    'generator_every', 1, 'Rounds between two such times.', lower_bound=1
)
_GENERATOR_BATCH_SIZE = flags.DEFINE_integer(
    'generator_batch_size', 32, 'Generated images in such a step.', lower_bound=1
)
_GRADIENT_PENALTY = flags.DEFINE_float(
    'gradient_penalty', 10.0, "Coefficient of the penalty in the discriminator's loss."
)
_SCALE = flags.DEFINE_float(
    'scale',
    None,
    'Also report a run with so many times the clients per round and the noise multiplier, which '
    'has the same noise in the mean: 100 in document 004. Needs --scaled_population.',
)
_SCALED_POPULATION = flags.DEFINE_integer(
    'scaled_population', None, 'Number of clients of that run.', lower_bound=1
)
_SCALED_DELTA = flags.DEFINE_float(
    'scaled_delta',
    None,
    'Delta at which its epsilon is given; by default 0.01 / --scaled_population, as document 004.',
)


def training_fields() -> dict:
    """The flags as fields of `gan_run.Training`, but for model and seeds."""
    return dict(
        client_learning_rate=_CLIENT_LEARNING_RATE.value,
        client_batch_size=_CLIENT_BATCH_SIZE.value,
        client_max_batches=_CLIENT_MAX_BATCHES.value,
        server_learning_rate=_SERVER_LEARNING_RATE.value,
        server_momentum=_SERVER_MOMENTUM.value,
        generator_optimizer=_GENERATOR_OPTIMIZER.value,
        generator_learning_rate=_GENERATOR_LEARNING_RATE.value,
        generator_steps=_GENERATOR_STEPS.value,
        generator_every=_GENERATOR_EVERY.value,
        generator_batch_size=_GENERATOR_BATCH_SIZE.value,
        gradient_penalty=_GRADIENT_PENALTY.value,
    )


@dataclasses.dataclass(frozen=True)
class ScaledUp:
    """A plan for more clients, and what it would guarantee.

    Attributes:
      plan: the plan.
      delta: at which epsilon is given.
      epsilon: by the accountant of the run.
    """

    plan: accounting.PrivacyPlan
    delta: float
    epsilon: float


def scaled_up(plan: accounting.PrivacyPlan, accountant: str) -> ScaledUp | None:
    """The run that --scale and --scaled_population speak of; None without them.

    Raises:
      UsageError: if only one is given, or there is no such plan.
    """
    factor, population = _SCALE.value, _SCALED_POPULATION.value
    if factor is None and population is None:
        return None
    if factor is None or population is None:
        raise command_line.UsageError('--scale, --scaled_population: go together')
    delta = 0.01 / population if _SCALED_DELTA.value is None else _SCALED_DELTA.value
    with command_line.refusing_bad_values(delta='scaled_delta', population='scaled_population'):
        larger = scaled_plan(plan, factor, population)
        return ScaledUp(larger, delta, larger.epsilon(delta, accountant))


def scaled_plan(
    plan: accounting.PrivacyPlan, factor: float, population: int
) -> accounting.PrivacyPlan:
    """The plan with `factor` times the clients per round and the noise multiplier.

    The noise in the mean of a round has a standard deviation of clip norm x noise multiplier /
    clients per round: it stays (document 004, section 6, "Privacy at Scale").

    Args:
      plan: of the run.
      factor: makes whole cohorts.
      population: number of clients; of no account without sampling, where the schema is kept.

    Raises:
      ValueError: if there is no such plan.
    """
    clients = plan.clients_per_round * factor
    if not (clients >= 1 and clients.is_integer()):
        raise errors.ArgumentError(
            'scale',
            factor,
            f'must make whole cohorts of {plan.clients_per_round} clients per round',
        )
    return dataclasses.replace(
        plan,
        noise_multiplier=plan.noise_multiplier * factor,
        clients_per_round=int(clients),
        population=None if plan.sampling == 'none' else population,
    )
