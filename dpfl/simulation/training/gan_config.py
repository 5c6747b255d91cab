"""The configuration of a run that trains a GAN. Does not import TensorFlow."""

import dataclasses

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.simulation.training.audit_config import AuditConfig
from dpfl.simulation.training.config import EvaluationConfig, RunConfig
from dpfl.simulation.training.privacy_config import PrivacyConfig
from dpfl.simulation.training.sampling_config import SamplingConfig
from dpfl.tasks.config import ImageTaskConfig

MODELS = ('small', 'dcgan', 'tiny')


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanOptimizationConfig(Settings):
    """How discriminator and generator are trained.

    With the defaults, recognisable glyphs appear within 150 rounds of 10 clients, for a clip norm
    of 1 and the noise multiplier of [Augenstein20]. If the generator takes more or larger steps,
    the discriminator cannot keep up.
    """

    model: str = setting(
        'small',
        'Size of generator and discriminator; dcgan is the one of [Augenstein20].',
        choices=MODELS,
    )
    client_learning_rate: float = setting(
        0.1, "Learning rate of a client's SGD on the discriminator.", above=0
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
        2.0, "Learning rate of the server's SGD on the discriminator.", above=0
    )
    server_momentum: float = setting(
        0.0, "Momentum of the server's SGD on the discriminator.", minimum=0, below=1
    )
    generator_optimizer: str = setting(
        'adam', 'Optimizer of the generator; [Augenstein20] uses sgd.', choices=('sgd', 'adam')
    )
    generator_learning_rate: float = setting(
        0.0005, "Learning rate of the generator's optimizer.", above=0
    )
    generator_steps: int = setting(3, 'Steps of the generator each time it is trained.', minimum=0)
    generator_every: int = setting(
        1, 'Number of rounds after which the generator is trained again.', minimum=1
    )
    generator_batch_size: int = setting(32, 'Images in a step of the generator.', minimum=1)
    gradient_penalty: float = setting(
        10.0, "Coefficient of the gradient penalty in the discriminator's loss.", minimum=0
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GanConfig(RunConfig):
    """A run that trains a generator of images by DP-FedAvg-GAN ([Augenstein20], algorithm 1)."""

    task: ImageTaskConfig = ImageTaskConfig()
    privacy: PrivacyConfig = PrivacyConfig(mechanism='gaussian', clip_norm=0.3)
    sampling: SamplingConfig = SamplingConfig()
    optimization: GanOptimizationConfig = GanOptimizationConfig()
    evaluation: EvaluationConfig = EvaluationConfig(eval_every=20, eval_clients=5)
    audit: AuditConfig = AuditConfig()

    def check(self) -> None:
        """Checks that an audit is possible, and that no test of a classifier is asked for."""
        super().check()
        self.audit.check_run(self.privacy)
        if self.evaluation.test_clients:
            raise ArgumentError('test_clients', self.evaluation.test_clients, 'must be 0 for a GAN')
