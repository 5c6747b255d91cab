"""The configurations of runs, of models and of GANs. Does not import TensorFlow."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from dpfl import _validate
from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError, one_of
from dpfl.runtime import ray_cluster
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.round_config import SamplingConfig, ServerConfig
from dpfl.tasks.config import (
    CUSTOM,
    IMAGE_MODELS,
    IMAGE_TASKS,
    NOT_COVERED_OF_GENERATORS,
    TEXT_TASKS,
    WORD_MODELS,
    ImageTaskConfig,
    TaskConfig,
)

_DEFAULT_CANARIES = 1000
# The tasks that can have clients for a test of the final model.
_TESTED_TASKS = ('synthetic_text', 'stackoverflow', CUSTOM)
# The models of each task, default first.
MODELS = {
    **dict.fromkeys(TEXT_TASKS, WORD_MODELS),
    **dict.fromkeys(IMAGE_TASKS, IMAGE_MODELS),
    CUSTOM: (),
}
_GAN_MODELS = ('small', 'dcgan', 'tiny')


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditConfig(Settings):
    """Whether and how a run tests its sums and estimates its own privacy loss."""

    audit: bool = setting(
        False,
        'Also test the sums of this run, clipped updates and noise, against the plan, and estimate '
        'epsilon: canary clients with known random updates take part besides the real ones, and '
        'the report says how well they can be told from canaries that did not, and which faults '
        'would have shown (docs/reference/audits.md). Their updates act like a little more '
        'noise; the guarantee does not change.',
    )
    audit_canaries: int | None = setting(
        None,
        'Number of canaries of --audit, of which half take part; 1000 by default.',
        minimum=4,
        maximum=10**6,
        needs='audit',
    )

    @property
    def canaries(self) -> int:
        """How many canaries the run has; 0 without an audit."""
        if not self.audit:
            return 0
        return _DEFAULT_CANARIES if self.audit_canaries is None else self.audit_canaries

    def check_run(
        self,
        privacy: PrivacyConfig,
        stop_at_accuracy: float | None = None,
    ) -> None:
        """Checks that a run with these settings can have canaries if it is to be audited.

        Raises:
          ArgumentError: if it cannot; it names `audit`.
        """
        if not self.audit:
            return
        refused = {
            f'noise={privacy.noise}, whose sums canaries would not pass': (
                privacy.noise == 'hardened'
            ),
            'clipping=per_layer, which bounds each tensor of a canary': privacy.clipping != 'flat',
            'estimator=clipped, whose denominator would count canaries': (
                privacy.estimator != 'fixed'
            ),
            'example_cap, since canaries have no examples': privacy.example_cap is not None,
            'stop_at_accuracy, since canaries take part in planned rounds': (
                stop_at_accuracy is not None
            ),
        }
        for what, is_refused in refused.items():
            if is_refused:
                raise ArgumentError('audit', True, f'cannot be combined with {what}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class CourseConfig(Settings):
    """How a run begins, and when it stops before its last round.

    Example:
      >>> CourseConfig(stop_at_accuracy=0.2).stop_at_accuracy
      0.2
    """

    warm_start_is_public: bool = setting(
        False,
        'Declare that the model of --warm_start learned from public data only. Its run is then not '
        'counted, and the report states the declaration. Without it the model must be that of a '
        'run, and the guarantee is that of both runs together.',
        needs='warm_start',
    )
    stop_at_accuracy: float | None = setting(
        None,
        'Stop at the first evaluation with at least this accuracy. The rule reads the data of the '
        'held-out clients without noise, and the report says so; the guarantee stays that of all '
        '--rounds.',
        above=0,
        maximum=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationConfig(ServerConfig):
    """How clients and server train.

    Example:
      >>> OptimizationConfig(server_momentum=0.0).rates(rounds=3)
      array([1., 1., 1.])
    """

    client_update: str = setting(
        'fedavg',
        'What a client sends. fedavg: how local training changed the model; fedsgd: the gradient '
        'over --client_batch_size random examples, drawn anew in each round, times '
        '--client_learning_rate ([McMahan18], algorithm 1).',
        choices=('fedavg', 'fedsgd'),
    )
    client_learning_rate: float = setting(
        0.5,
        "Learning rate of the clients' SGD. The clip norm bounds what it moves, also with fedsgd.",
        **_validate.SCALE,
    )
    client_batch_size: int = setting(16, 'Examples in a batch, such as sentences.', minimum=1)
    client_epochs: int = setting(
        1,
        "Passes over a client's data in a round.",
        minimum=1,
        needs={'client_update': ('fedavg',)},
    )
    client_max_batches: int | None = setting(
        None,
        'Limit on the batches that a client trains on in a round.',
        minimum=1,
        needs={'client_update': ('fedavg',)},
    )
    clip_each_batch: bool = setting(
        False,
        'Clip how far a client has moved the model after every batch, not only at the end of its '
        'training ([McMahan18], algorithm 1). The guarantee relies on the clip at the end alone, '
        'and does not change.',
        needs={'client_update': ('fedavg',)},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Settings):
    """What is measured during a run.

    Example:
      >>> EvaluationConfig(eval_clients=50).eval_clients
      50
    """

    eval_every: int = setting(10, 'Rounds between two evaluations.', minimum=1)
    eval_clients: int = setting(
        50,
        'Held-out clients of an evaluation. For text, `accuracy` is over the words that the model '
        'knows, `accuracy_with_oov` over all words, where one that it does not know is a miss, and '
        '`accuracy_known` is `accuracy` if the model never predicts the unknown word.',
        minimum=1,
    )
    test_clients: int = setting(
        0,
        'Clients of a test of the final model, after the last round; 0 for no test. They are '
        'neither training clients nor held out: those of the split `test` of --task=stackoverflow '
        'that are in no other split, or more clients of --task=synthetic_text. test_metrics.json '
        'has the result, which has no noise and is not private.',
        minimum=0,
    )
    release_train_metrics: bool = setting(
        False,
        'Also record metrics of the training clients. They have no noise and are not private.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecutionConfig(Settings):
    """Where and how a run is executed.

    Example:
      >>> TrainConfig(execution=ExecutionConfig(checkpoint_every=10)).flat()['checkpoint_every']
      10
    """

    shards: int = setting(
        2,
        'Number of parts of a cohort that are trained at the same time, best one per processor '
        'core. Another number adds the updates in another order, which rounds differently.',
        minimum=1,
    )
    checkpoint_every: int = setting(10, 'Rounds between two checkpoints.', minimum=1, kept=False)
    keep_checkpoints: int = setting(
        3, 'How many of the latest checkpoints are kept.', minimum=1, kept=False
    )
    ray: str | None = setting(
        None,
        'Train shards on Ray: local for processes on the cores of this machine, auto for the '
        'cluster that runs on this machine or that RAY_ADDRESS names, or the host:port of a '
        'cluster. Its hosts see the model and the data of clients; noise is made by this process '
        'only. The result has the same bits. By default, or if it is empty, shards are trained in '
        'this process.',
        kept=False,
    )
    ray_timeout: float = setting(
        3600.0,
        'With --ray, how many seconds a round waits until some shard arrives. Then the run ends, '
        'and --resume continues it.',
        above=0,
        needs='ray',
        kept=False,
    )

    def check(self) -> None:
        """Checks the address of Ray."""
        if self.ray:
            ray_cluster.check_address(self.ray)


def _choice_not_covered(names: Sequence[str]) -> tuple[str, ...]:
    """The sentence about settings that were chosen by looking at data; empty without names."""
    if not names:
        return ()
    return (
        f'The choice of {", ".join(names)}: the values were chosen by looking at the data of '
        'clients without noise.',
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """Settings that all runs have."""

    execution: ExecutionConfig = ExecutionConfig()
    seed: int = setting(
        0, 'Seed of the data, of the order of the clients, and of the initial model.', minimum=0
    )
    noise_seed: int | None = setting(
        None,
        'Makes the noise repeatable, and the run only a simulation. By default the keys of the '
        'noise come from the operating system.',
        minimum=0,
    )
    chosen_without_noise: tuple[str, ...] = setting(
        (),
        'Flags whose values were chosen by looking at the data of clients without noise, '
        'comma-separated; suggest writes them into its flag file. The report says that the '
        'guarantee does not cover the choice.',
    )

    def check(self) -> None:
        """Checks that `chosen_without_noise` names settings."""
        for name in self.chosen_without_noise:
            if name not in self.flat():
                raise ArgumentError('chosen_without_noise', name, 'must be names of settings')

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee does not cover because of how settings were chosen, in sentences."""
        return _choice_not_covered(self.chosen_without_noise)

    def fixed(self) -> dict[str, Any]:
        """The settings that must stay the same when a run is resumed, by name, as JSON values."""
        return {
            field.name: value.to_dict() if hasattr(value, 'to_dict') else value
            for field, _, value in self.table()
            if field.metadata['kept']
        }


def _refuse_beside_own_task(settings: Settings) -> None:
    """Refuses settings of data and model, which a task of one's own would ignore."""
    for name, value in settings.changed().items():
        if name != 'task':
            allowed = 'must not be given with a task of your own, which has data and a model'
            raise ArgumentError(name, value, allowed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """A run that trains a model by federated learning under a privacy plan.

    Example:
      >>> config = TrainConfig(
      ...     privacy=PrivacyConfig(mechanism='blt', noise_multiplier=7.0),
      ...     sampling=SamplingConfig(rounds=2000, clients_per_round=100))
      >>> TrainConfig.from_dict(config.to_dict()) == config
      True
    """

    task: TaskConfig = TaskConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    sampling: SamplingConfig = SamplingConfig()
    optimization: OptimizationConfig = OptimizationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    course: CourseConfig = CourseConfig()
    audit: AuditConfig = AuditConfig()

    def remarks(self, rounds: int) -> tuple[str, ...]:
        """What the report says besides the guarantee, in sentences."""
        return (
            self.optimization.describe(rounds),
            *self.privacy.remarks(),
            *self.task.selection.remarks(),
        )

    def of_own_task(self) -> 'TrainConfig':
        """The configuration of a run on a task of one's own.

        Raises:
          ArgumentError: if a setting of data or model is given, which would be ignored.
        """
        _refuse_beside_own_task(self.task)
        return dataclasses.replace(self, task=TaskConfig(task=CUSTOM))

    @property
    def counts_warm_start(self) -> bool:
        """Whether the run begins with the model of a run that its guarantee counts."""
        return self.task.warm_start is not None and not self.course.warm_start_is_public

    @property
    def model_name(self) -> str:
        """Name of the model that is trained; empty for a task of one's own."""
        names: Sequence[str] = MODELS[self.task.task]
        return self.task.model or (names[0] if names else '')

    def check(self) -> None:
        """Checks that the task has the model, and the clip norm a fixed value where it must."""
        super().check()
        if self.optimization.clip_each_batch and self.privacy.adaptive_clip:
            raise ArgumentError(
                'clip_each_batch',
                True,
                'must be False with adaptive_clip: no update would be above the norm that adapts',
            )
        passes = self.optimization.client_epochs
        if (
            self.privacy.example_cap is not None
            and passes > 1
            and self.optimization.client_max_batches is not None
        ):
            raise ArgumentError(
                'client_max_batches',
                self.optimization.client_max_batches,
                f'must not be given with example_cap and client_epochs={passes}: weights count '
                'the examples of whole passes',
            )
        self.audit.check_run(self.privacy, self.course.stop_at_accuracy)
        tested = self.evaluation.test_clients
        if tested and self.task.task not in _TESTED_TASKS:
            raise ArgumentError(
                'test_clients',
                tested,
                f'must be 0 for task={self.task.task}, which has no test clients',
            )
        allowed = MODELS[self.task.task]
        if self.task.task != CUSTOM and self.task.model not in (None, *allowed):
            raise ArgumentError(
                'model',
                self.task.model,
                one_of(self.task.model, allowed, f' for task={self.task.task}'),
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanOptimizationConfig(Settings):
    """How discriminator and generator are trained.

    With the defaults, recognisable glyphs appear within 150 rounds of 10 clients, for a clip norm
    of 1 and the noise multiplier of [Augenstein20]. If the generator takes more or larger steps,
    the discriminator cannot keep up.

    Example:
      >>> GanConfig(optimization=GanOptimizationConfig()).privacy.mechanism
      'gaussian'
    """

    model: str = setting(
        'small',
        'Size of generator and discriminator; dcgan is the one of [Augenstein20].',
        choices=_GAN_MODELS,
    )
    client_learning_rate: float = setting(
        0.1, "Learning rate of a client's SGD on the discriminator.", **_validate.SCALE
    )
    client_batch_size: int = setting(
        32, "Real images in a client's step; it also takes as many generated ones.", minimum=1
    )
    client_max_batches: int = setting(
        3,
        'Limit on the steps of a client in a round. Their images are drawn from all images of the '
        'client, anew in every round.',
        minimum=1,
    )
    server_learning_rate: float = setting(
        2.0, "Learning rate of the server's SGD on the discriminator.", **_validate.SCALE
    )
    server_momentum: float = setting(
        0.0, "Momentum of the server's SGD on the discriminator.", minimum=0, below=1
    )
    generator_optimizer: str = setting(
        'adam', 'Optimizer of the generator; [Augenstein20] uses sgd.', choices=('sgd', 'adam')
    )
    generator_learning_rate: float = setting(
        0.0005, "Learning rate of the generator's optimizer.", **_validate.SCALE
    )
    generator_steps: int = setting(3, 'Steps of the generator in a round.', minimum=0)
    generator_batch_size: int = setting(32, 'Images in a step of the generator.', minimum=1)
    gradient_penalty: float = setting(
        10.0, "Coefficient of the gradient penalty in the discriminator's loss.", minimum=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanConfig(RunConfig):
    """A run that trains a generator of images by DP-FedAvg-GAN ([Augenstein20], algorithm 1).

    Example:
      >>> GanConfig().with_values({'rounds': 50}).sampling.rounds
      50
    """

    task: ImageTaskConfig = ImageTaskConfig()
    privacy: PrivacyConfig = PrivacyConfig(mechanism='gaussian', clip_norm=0.3)
    sampling: SamplingConfig = SamplingConfig()
    optimization: GanOptimizationConfig = GanOptimizationConfig()
    evaluation: EvaluationConfig = EvaluationConfig(eval_every=20, eval_clients=5)
    audit: AuditConfig = AuditConfig()
    course: ClassVar[CourseConfig] = CourseConfig()  # It begins anew, and trains all rounds.
    counts_warm_start: ClassVar[bool] = False

    def check(self) -> None:
        """Checks that an audit is possible, and that no test is wanted."""
        super().check()
        self.audit.check_run(self.privacy)
        if self.evaluation.test_clients:
            raise ArgumentError('test_clients', self.evaluation.test_clients, 'must be 0 for a GAN')

    def remarks(self, rounds: int) -> tuple[str, ...]:
        """What the report says besides the guarantee, in sentences."""
        del rounds
        return self.privacy.remarks()

    def of_own_task(self) -> 'GanConfig':
        """The configuration of a run on a task of one's own."""
        return self

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee of a run that trains a generator does not cover, in sentences."""
        return (*super().not_covered, *NOT_COVERED_OF_GENERATORS)

    @property
    def model_name(self) -> str:
        """Size of generator and discriminator."""
        return self.optimization.model
