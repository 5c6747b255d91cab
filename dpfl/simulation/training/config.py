"""The configuration of a training run. Does not import TensorFlow."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfl._settings import Settings, setting
from dpfl.errors import ArgumentError
from dpfl.runtime import ray_cluster
from dpfl.simulation.training.audit_config import AuditConfig
from dpfl.simulation.training.course_config import CourseConfig
from dpfl.simulation.training.privacy_config import AUTO, PREFIX_SUMS, PrivacyConfig
from dpfl.simulation.training.sampling_config import SamplingConfig
from dpfl.simulation.training.server_config import ServerConfig
from dpfl.tasks.config import (
    CUSTOM,
    IMAGE_MODELS,
    IMAGE_TASKS,
    TEXT_TASKS,
    WORD_MODELS,
    TaskConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizationConfig(ServerConfig):
    """How clients and server train."""

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
        above=0,
    )
    client_batch_size: int = setting(16, 'Examples in a batch, such as sentences.', minimum=1)
    client_epochs: int = setting(1, "Passes over a client's data in a round.", minimum=1)
    client_max_batches: int | None = setting(
        None, 'Limit on the batches that a client trains on in a round.', minimum=1
    )
    clip_each_batch: bool = setting(
        False,
        'Clip how far a client has moved the model after every batch, not only at the end of its '
        'training ([McMahan18], algorithm 1). The guarantee relies on the clip at the end alone, '
        'and does not change.',
    )

    def check(self) -> None:
        """Checks the server, and that FedSGD has no settings of several batches."""
        super().check()
        if self.client_update == 'fedavg':
            return
        for name in ('clip_each_batch', 'client_epochs', 'client_max_batches'):
            value, only = getattr(self, name), getattr(OptimizationConfig, name)
            if value != only:
                shown = 'not be given' if only is None else f'be {only}'
                raise ArgumentError(
                    name,
                    value,
                    f'must {shown} for client_update={self.client_update}, which sends the '
                    'gradient of one batch',
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Settings):
    """What is measured during a run."""

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
    """Where and how a run is executed."""

    shards: int = setting(
        2,
        'Number of parts of a cohort that are trained at the same time, best one per processor '
        'core. Another number adds the updates in another order, which rounds differently.',
        minimum=1,
    )
    checkpoint_every: int = setting(10, 'Rounds between two checkpoints.', minimum=1)
    keep_checkpoints: int = setting(3, 'How many of the latest checkpoints are kept.', minimum=1)
    ray: str | None = setting(
        None,
        'Train shards on Ray: local for processes on the cores of this machine, auto for the '
        'cluster that runs on this machine or that RAY_ADDRESS names, or the host:port of a '
        'cluster. Its hosts see the model and the data of clients; noise is made by this process '
        'only. The result has the same bits. By default shards are trained in this process.',
    )
    ray_timeout: float = setting(
        3600.0,
        'With --ray, how many seconds a round waits until some shard arrives. Then the run ends, '
        'and --resume continues it.',
        above=0,
    )
    profile: bool = setting(
        False,
        'Also measure where the time of a round goes; printed at the end and saved in '
        'profile.json.',
    )

    def check(self) -> None:
        """Checks the address of Ray."""
        if self.ray is not None:
            ray_cluster.check_address(self.ray)


# Settings that do not affect what a run trains, records or reports, not even by a bit.
FREE = (
    'checkpoint_every',
    'keep_checkpoints',
    'ray',
    'ray_timeout',
    'profile',
    'allow_large_delta',
)
# Settings that change the vocabulary, whose digest a run that continues must have.
_OF_THE_DIGEST = ('vocabulary_marks',)


def choice_not_covered(names: Sequence[str]) -> tuple[str, ...]:
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
        return choice_not_covered(self.chosen_without_noise)

    def fixed(self) -> dict[str, Any]:
        """The settings that must stay the same when a run is resumed, by name, as JSON values."""
        left_out = (*FREE, *_OF_THE_DIGEST)
        return {
            name: value.to_dict() if hasattr(value, 'to_dict') else value
            for name, value in self.flat().items()
            if name not in left_out
        }


_BIASED_MEAN = (
    'The mean of the updates is biased towards zero: it is divided by clients_per_round, as if '
    'every client had at least example_cap examples. cohort_weight takes the expected sum of the '
    'weights of a cohort.'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """A run that trains a model by federated learning under a privacy plan."""

    task: TaskConfig = TaskConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    sampling: SamplingConfig = SamplingConfig()
    optimization: OptimizationConfig = OptimizationConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    course: CourseConfig = CourseConfig()
    audit: AuditConfig = AuditConfig()

    def workload(self, rounds: int) -> np.ndarray | None:
        """The workload that mechanism 'auto' is optimised for; None for the prefix sums."""
        if self.privacy.workload == PREFIX_SUMS:
            return None
        return self.optimization.workload(rounds)

    def remarks(self, rounds: int) -> tuple[str, ...]:
        """What the report says besides the guarantee, in sentences."""
        found = [self.optimization.describe(rounds)]
        if self._mean_is_biased:
            found.append(_BIASED_MEAN)
        if self.task.planting.secrets:
            found.append(
                f'{self.task.planting.num_secrets} secrets of '
                f'{self.task.planting.num_holders} clients were planted in the data, to measure '
                'how far the model memorises them.'
            )
        if self.privacy.mechanism == AUTO:
            optimised = (
                'the prefix sums of the noised means'
                if self.workload(rounds) is None
                else "the workload of the server's SGD"
                if self.optimization.is_linear
                else 'SGD with these learning rates and without momentum'
            )
            found.append(f'The mechanism was chosen for the least error of {optimised}.')
        return (*found, *self.task.selection.remarks())

    @property
    def _mean_is_biased(self) -> bool:
        privacy = self.privacy
        return (
            privacy.example_cap is not None
            and privacy.cohort_weight is None
            and privacy.estimator == 'fixed'
        )

    def check(self) -> None:
        """Checks that the task has the model, and the clip norm a fixed value where it must."""
        super().check()
        if self.optimization.clip_each_batch and self.privacy.adaptive_clip:
            raise ArgumentError(
                'clip_each_batch',
                True,
                'must be False with adaptive_clip: no update would be above the norm that adapts',
            )
        if self.course.fork_from is not None and self.task.warm_start is not None:
            raise ArgumentError(
                'warm_start', self.task.warm_start, 'cannot be combined with fork_from'
            )
        if self.course.warm_start_is_public and self.task.warm_start is None:
            raise ArgumentError('warm_start_is_public', True, 'needs warm_start')
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
        copies, most = max(self.task.planting.secret_copies), self.optimization.client_max_batches
        examples = None if most is None else most * self.optimization.client_batch_size
        if self.task.planting.secrets and examples is not None and examples < copies:
            raise ArgumentError(
                'secret_copies',
                self.task.planting.secret_copies,
                f'must be <= {examples}, the examples that a client trains on',
            )
        tested = self.evaluation.test_clients
        if tested and self.task.task not in TESTED_TASKS:
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
                f'must be one of {", ".join(allowed)} for task={self.task.task}',
            )


# The tasks that can have clients for a test of the final model.
TESTED_TASKS = ('synthetic_text', 'stackoverflow', CUSTOM)
# The models of each task, default first.
MODELS = {
    **dict.fromkeys(TEXT_TASKS, WORD_MODELS),
    **dict.fromkeys(IMAGE_TASKS, IMAGE_MODELS),
    CUSTOM: (),
}
