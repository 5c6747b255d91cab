"""Runs that train a model by DP-FedAvg or DP-FedSGD."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfl import accounting, mechanisms
from dpfl.accounting.records import archive
from dpfl.accounting.records.journal import Drew
from dpfl.errors import ArgumentError
from dpfl.simulation.training import execution, fork, prepared_task, run_data, run_model
from dpfl.simulation.training.config import TrainConfig
from dpfl.simulation.training.plan import (
    build_plan,
    check_schedule,
)
from dpfl.simulation.training.prepared_run import EVAL_BATCH_SIZE, PreparedRun
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import CUSTOM, IMAGE_TASKS
from dpfl.tasks.federated_task import FederatedTask, TaskSource

if TYPE_CHECKING:
    from dpfl.auditing.canaries import CanaryDesign


def prepare(
    config: TrainConfig,
    task: FederatedTask | None,
    *,
    run: execution.Run | None = None,
    tell: Callable[[str], None],
) -> 'FedAvgRun':
    """Checks a configuration, and makes the plan of its run.

    Args:
      config: the configuration; of a custom task, if there is a task of one's own.
      task: that task; None for the one that the configuration names.
      run: the run, whose directory is in use; None for one that is only shown.
      tell: gets messages for the person who started the run.

    Raises:
      ArgumentError: if a value is not allowed.
      RunError: if the run cannot be continued.
    """
    # A task of one's own has neither words to find nor a selection.
    before = BeforeTraining()
    if task is None:
        before = prepared_task.of_run(config, None if run is None else run.draw)
    opened = _opened(config, task, tell, before)
    clients = functools.partial(opened.population, config.sampling.population)
    known = None if run is None else run.known_plan()
    origin = fork.taken_over(config, None if run is None else run.directory)
    drawn = {} if run is None else run.directory.state.drawn
    chosen: list[mechanisms.Candidate] = []
    asked = config if run is None else run.with_strategy(config)
    plan = known or _plan(asked, opened, clients, origin, before, drawn, chosen.extend)
    return FedAvgRun(config, plan, opened, clients, tell, chosen, before, origin)


def _plan(
    config: TrainConfig,
    opened: TaskSource,
    clients: Callable[[], int],
    origin: fork.Origin,
    before: BeforeTraining,
    drawn: Mapping[str, Drew],
    on_choice: Callable[[list], None],
) -> accounting.PrivacyPlan:
    """The plan of a run that begins, or that is to have more rounds."""
    releases = prepared_task.counted(before.releases, drawn)

    def make(**how: Any) -> accounting.PrivacyPlan:
        made = build_plan(
            config.privacy,
            config.sampling,
            population=clients,
            earlier=origin.plans,
            before=releases,
            **how,
        )
        check_schedule(made)
        return made

    if before.releases and not drawn:
        # The size of the model may depend on a draw: refuse bad settings before making the draw.
        first = make(dimension=opened.most_parameters, on_choice=lambda candidates: None)
        config.sampling.sampler(first, clients(), config.seed)
    plan = make(dimension=opened.num_parameters, on_choice=on_choice)
    # Raises early if delta is out of range, or the accountant does not know the plan.
    plan.epsilon(config.privacy.delta, config.privacy.accountant_of(plan))
    return plan


@dataclasses.dataclass(frozen=True)
class FedAvgRun(PreparedRun):
    """A run that trains a model.

    Attributes:
      config: the configuration.
      before: how it makes its releases before training.
      origin: what the run takes over from another one.
    """

    config: TrainConfig
    before: BeforeTraining
    origin: fork.Origin

    def load(self) -> tuple[FederatedTask, int]:
        """The task as it is trained, and the number of clients to train on."""
        loaded, population = super().load()
        language = self.opened.language_model()
        loaded = prepared_task.prepared(self.config.task, loaded, language)
        return _counted(loaded, self.origin), population

    def record(self, task: FederatedTask) -> archive.PlanRecord:
        """The record, with the rule that stops the run and the additions of earlier runs."""
        course, origin, record = self.config.course, self.origin, super().record(task)
        return dataclasses.replace(
            record,
            noise_is_seeded=record.noise_is_seeded or origin.noise_is_seeded,
            stop_at_accuracy=course.stop_at_accuracy,
            earlier_noise_key_digests=origin.noise_key_digests,
            warm_start_is_public=course.warm_start_is_public or origin.warm_start_is_public,
        )

    def num_parameters(self, task: FederatedTask) -> int:
        """Number of parameters of the model."""
        from dpfl.tasks import own_data

        return own_data.num_parameters(task.model)

    def noise_storage(self, task: FederatedTask) -> mechanisms.NoiseStorage:
        """Where the past noise of the run is kept."""
        plan, privacy = self.plan, self.config.privacy
        kernel = plan.mechanism.with_rounds(plan.participation.rounds).kernel()
        size = self.num_parameters(task)
        return mechanisms.choose_noise_storage(kernel, size, privacy.memory_limit, plan.noise)

    def trained(self, task: FederatedTask, design: 'CanaryDesign | None') -> dict[str, Any]:
        """The fields of the experiment that depend on the model.

        Raises:
          ArgumentError: if the task has fewer test clients than the configuration asks for.
        """
        import tensorflow_federated as tff

        from dpfl import learning
        from dpfl.auditing import one_shot
        from dpfl.simulation.training import drawn_examples

        config, plan = self.config, self.plan
        test = _test(config.evaluation.test_clients, task)  # Refused before anything is built.
        language = self.opened.language_model()
        optimization, sgd = config.optimization, tff.learning.optimizers.build_sgdm
        is_fedsgd = optimization.client_update == 'fedsgd'
        storage = self.noise_storage(task)
        process = learning.build_dp_fedavg(
            task.model,
            plan,
            client_optimizer_fn=None if is_fedsgd else sgd(optimization.client_learning_rate),
            client_update=optimization.client_update,
            client_learning_rate=optimization.client_learning_rate if is_fedsgd else 1.0,
            client_epochs=optimization.client_epochs,
            server_optimizer_fn=learning.build_server_optimizer(
                optimization.server_optimizer,
                optimization.rates(plan.participation.rounds),
                momentum=optimization.server_momentum,
                nesterov=optimization.server_nesterov,
            ),
            noise_seed=config.noise_seed,
            train_metrics=config.evaluation.release_train_metrics,
            clip=self.clip(),
            clip_each_batch=optimization.clip_each_batch,
            supplied_noise=storage.is_supplied,
            canaries=None if design is None else design.added(),
        )
        num_heldout = config.evaluation.eval_clients
        return dict(
            process=process,
            **drawn_examples.of_run(task, optimization, config.seed),
            evaluate=learning.build_evaluation(
                task.model,
                task.heldout(num_heldout, EVAL_BATCH_SIZE),
                owners=task.heldout_owners and task.heldout_owners(num_heldout),
                hits=task.hits,
            ),
            test=test,
            reference_accuracies=references(config, task),
            noise_storage=storage,
            finish=None if language is None else lambda path: run_model.save(path, *language),
            audit=None if design is None else one_shot.OneShotAudit(design),
        )


class _OwnTask(TaskSource):
    """A task that the caller has made."""

    def __init__(self, task: FederatedTask):
        self._task = task

    def num_clients(self) -> int | None:
        return self._task.population

    def num_parameters(self) -> int:
        from dpfl.tasks import own_data

        return own_data.num_parameters(self._task.model)

    def load(self) -> FederatedTask:
        return self._task

    def language_model(self) -> tuple[str, Sequence[str] | None] | None:
        return self._task.language_model


def _opened(
    config: TrainConfig,
    task: FederatedTask | None,
    tell: Callable[[str], None],
    before: BeforeTraining,
) -> TaskSource:
    if task is not None:
        return _OwnTask(run_data.with_limits(task))
    if config.task.task == CUSTOM:
        raise ArgumentError('task', CUSTOM, 'needs a task of your own, as an argument of train')
    return config.task.open(config.seed, tell, before)


def _test(num_clients: int, task: FederatedTask) -> Callable[[Any], dict[str, float]] | None:
    """A function that measures the final model on test clients; None if there is no test.

    Raises:
      ArgumentError: if the task has fewer test clients.
    """
    from dpfl import learning

    batches, most = task.test, task.num_test_clients
    if not num_clients:
        return None
    if batches is None:
        allowed = 'must be 0: the data have no test clients apart from those of training'
        raise ArgumentError('test_clients', num_clients, allowed)
    if most is not None and num_clients > most:
        raise ArgumentError(
            'test_clients',
            num_clients,
            f'must be <= {most}, the test clients that the data have',
        )
    return lambda weights: learning.evaluate_once(
        task.model, weights, batches(num_clients, EVAL_BATCH_SIZE)
    )


def _counted(task: FederatedTask, origin: fork.Origin) -> FederatedTask:
    """The task, with what is known of an earlier run with whose model it begins."""
    seeds = {fork.EARLIER_SEEDS: list(origin.seeds)} if origin.seeds else {}
    return dataclasses.replace(
        task,
        not_covered=(*task.not_covered, *origin.not_covered),
        description={**task.description, **seeds},
    )


def references(config: TrainConfig, task: FederatedTask) -> dict[str, float]:
    """Accuracies to compare a run with: known ones, of counting words, of guessing."""
    counted = task.baselines(config.evaluation.eval_clients) if task.baselines else {}
    guessed = {}
    if config.task.task in IMAGE_TASKS:
        from dpfl.tasks.images import image_clients

        guessed['uniform_accuracy'] = 1 / image_clients.NUM_CLASSES
    return {**guessed, **counted, **task.reference_accuracies}
