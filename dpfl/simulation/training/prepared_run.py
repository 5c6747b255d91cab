"""A run that is ready to train: the common part of runs of models and of GANs."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpfl import accounting, mechanisms
from dpfl.accounting import gaussian
from dpfl.accounting.records import archive
from dpfl.simulation.training.config import GanConfig, TrainConfig
from dpfl.tasks.federated_task import FederatedTask, TaskSource

if TYPE_CHECKING:
    from dpfl.auditing.canaries import CanaryDesign
    from dpfl.simulation.experiment import Experiment

EVAL_BATCH_SIZE = 256


@dataclasses.dataclass(frozen=True)
class PreparedRun(abc.ABC):
    """A run whose settings are checked and whose plan is made; nothing has taken long yet.

    Attributes:
      config: the configuration.
      plan: the privacy plan.
      opened: the source of the task.
      clients: returns the number of clients to train on; opens the data.
      tell: gets messages for the person who started the run.
      candidates: the mechanisms that were compared, the chosen one first; none if that was named.
    """

    config: TrainConfig | GanConfig
    plan: accounting.PrivacyPlan
    opened: TaskSource
    clients: Callable[[], int]
    tell: Callable[[str], None]
    candidates: Sequence[mechanisms.Candidate]

    def load(self) -> tuple[FederatedTask, int]:
        """The task, and the number of clients to train on."""
        population = self.clients()  # Opens the data.
        if text := gaussian.delta_warning(self.config.privacy.delta, population):
            self.tell(text)
        return self.opened.load(), population

    def experiment(self, task: FederatedTask, population: int) -> 'Experiment':
        """The experiment of the run.

        Args:
          task: the task, with its initial model.
          population: number of clients to train on.

        Raises:
          ArgumentError: if the task lacks data that the configuration needs.
        """
        from dpfl.auditing import canaries
        from dpfl.simulation.experiment import Experiment

        config, plan = self.config, self.plan
        design = None

        def samplers(seed: int) -> Any:
            return config.sampling.sampler(plan, population, seed)

        if config.audit.audit:
            size = self.num_parameters(task)
            design = canaries.design(plan, config.audit.canaries, config.seed, size, samplers)
        return Experiment(
            record=self.record(task),
            sampler=samplers(config.seed),
            eval_every=config.evaluation.eval_every,
            noise_is_seeded=config.noise_seed is not None,
            execution=config.execution,
            **self.trained(task, design),
        )

    def record(self, task: FederatedTask) -> archive.PlanRecord:
        """The inputs of the report, except the log, that are known before the run begins."""
        config, plan = self.config, self.plan
        return archive.PlanRecord(
            plan,
            (config.privacy.delta,),
            config.privacy.accountant_of(plan),
            noise_is_seeded=config.noise_seed is not None,
            # All samplers draw their cohorts from a seed.
            sampling_is_seeded=plan.sampling is not None,
            # A fork may state the same as the run before it.
            also_not_covered=tuple(dict.fromkeys((*config.not_covered, *task.not_covered))),
            train_metrics_released=config.evaluation.release_train_metrics,
            remarks=config.remarks(plan.participation.rounds),
            about=accounting.About(
                task=config.task.task,
                model=config.model_name,
                parameters=self.num_parameters(task),
            ),
        )

    @abc.abstractmethod
    def num_parameters(self, task: FederatedTask) -> int:
        """Number of parameters that clients train."""

    @abc.abstractmethod
    def trained(self, task: FederatedTask, design: 'CanaryDesign | None') -> dict[str, Any]:
        """The fields of the experiment that depend on the kind of model, such as `process`.

        Args:
          task: the task, with its initial model.
          design: of the canaries of the audit; None without one.
        """

    def clip(self) -> Any:
        """How updates are clipped, as `learning.build_dp_fedavg` takes it."""
        from dpfl import aggregators

        is_per_layer = self.config.privacy.clipping == 'per_layer'
        return aggregators.PerLayer() if is_per_layer else aggregators.clip_flat
