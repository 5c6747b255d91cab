"""What is particular to runs that train a model by DP-FedAvg or DP-FedSGD."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpfl import accounting, mechanisms
from dpfl.errors import ArgumentError
from dpfl.simulation.training import run_data, run_model
from dpfl.simulation.training.config import TrainConfig
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import CUSTOM, IMAGE_TASKS
from dpfl.tasks.federated_task import EVAL_BATCH_SIZE, FederatedTask, TaskSource

if TYPE_CHECKING:
    from dpfl.auditing.canaries import CanaryDesign


def opened(
    config: TrainConfig,
    task: FederatedTask | None,
    tell: Callable[[str], None],
    before: BeforeTraining,
) -> TaskSource:
    """The task of a run, opened as far as questions need it.

    Args:
      config: the configuration of the run.
      task: a task of one's own; None for the one that the configuration names.
      tell: gets messages for the person who started the run.
      before: how the run makes its releases before training.

    Raises:
      ArgumentError: if the configuration needs a task of one's own.
    """
    if task is not None:
        return _OwnTask(run_data.with_limits(task))
    if config.task.task == CUSTOM:
        raise ArgumentError('task', CUSTOM, 'needs a task of your own, as an argument of train')
    return config.task.open(config.seed, tell, before)


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


def trained(
    config: TrainConfig,
    plan: accounting.PrivacyPlan,
    task: FederatedTask,
    storage: mechanisms.NoiseStorage,
    design: 'CanaryDesign | None',
) -> dict[str, Any]:
    """The fields of the experiment that depend on the kind of model, such as `process`.

    Args:
      config: the configuration of the run.
      plan: its plan.
      task: the task, with its initial model.
      storage: where past noise is kept.
      design: of the canaries of the audit; None without one.

    Raises:
      ArgumentError: if the task has fewer test clients than the configuration asks for.
    """
    import tensorflow_federated as tff

    from dpfl import learning
    from dpfl.auditing import one_shot
    from dpfl.simulation.training import drawn_examples

    test = _test(config.evaluation.test_clients, task)  # Refused before anything is built.
    optimization, sgd = config.optimization, tff.learning.optimizers.build_sgdm
    is_fedsgd = optimization.client_update == 'fedsgd'
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
        clip=config.privacy.clip(),
        clip_each_batch=optimization.clip_each_batch,
        supplied_noise=storage.is_supplied,
        canaries=None if design is None else design.added(),
    )
    num_heldout, language = config.evaluation.eval_clients, task.language_model
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


def references(config: TrainConfig, task: FederatedTask) -> dict[str, float]:
    """Accuracies to compare a run with: known ones, of counting words, of guessing."""
    counted = task.baselines(config.evaluation.eval_clients) if task.baselines else {}
    guessed = {}
    if config.task.task in IMAGE_TASKS:
        from dpfl.tasks.images import image_clients

        guessed['uniform_accuracy'] = 1 / image_clients.NUM_CLASSES
    return {**guessed, **counted, **task.reference_accuracies}
