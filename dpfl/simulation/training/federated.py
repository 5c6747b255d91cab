"""`train`: federated learning under a privacy plan, as a configuration describes it."""

import dataclasses
import functools
import json
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import accounting, mechanisms
from dpfl.accounting import large_delta
from dpfl.accounting.records import archive
from dpfl.accounting.records.journal import Drew
from dpfl.errors import ArgumentError
from dpfl.simulation.training import execution, fork, prepared_task, run_data, run_model
from dpfl.simulation.training.config import TrainConfig
from dpfl.simulation.training.execution import TrainResult
from dpfl.simulation.training.plan import (
    accountant,
    build_plan,
    check_adapts,
    strategy_hint,
    within_epsilon,
)
from dpfl.tasks import source
from dpfl.tasks.before_training import BeforeTraining
from dpfl.tasks.config import CUSTOM, IMAGE_TASKS, TaskConfig
from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text import tokenization

if TYPE_CHECKING:
    from dpfl.simulation import program


_EVAL_BATCH_SIZE = 256


def train(
    config: TrainConfig,
    directory: str | os.PathLike[str],
    *,
    task: FederatedTask | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    files: Mapping[str, str] | None = None,
    notice: str = '',
) -> TrainResult:
    """Trains a model, and writes the run to a directory, with its privacy report.

    It can be called any number of times in a process. Ctrl-C ends it with KeyboardInterrupt. With
    `resume`, an interrupted run continues, and ends with the same results, bit for bit.

    Args:
      config: the configuration of the run.
      directory: the directory of the run; created if it does not exist.
      task: your own task, for example from `dpfl.tasks.own_data.from_arrays`; by default the task
        that the configuration names.
      resume: continue the run in the directory, which must have had the same configuration. If
        there is none, begin one; if it is finished, return its result. With more rounds, the run
        goes on beyond those it was planned for, and the guarantee becomes that of all rounds.
      overwrite: replace an earlier run in the directory.
      progress: show a progress bar and messages on standard error.
      files: further texts to write to the directory when the run begins, by the names of their
        files, `*.txt`.
      notice: a message to show before the first round.

    Raises:
      ArgumentError: if a value is not allowed. Raised before anything that takes long.
      RunError: if a file or Ray fails. Saved rounds stay intact.
      DataError: if the data can no longer be read.
    """
    tell = execution.teller(progress)
    path = pathlib.Path(directory)
    if resume and overwrite:
        raise ArgumentError('resume', True, 'cannot be combined with overwrite')
    chosen: list[mechanisms.Candidate] = []
    if task is not None:
        config = dataclasses.replace(
            config, task=TaskConfig(task=CUSTOM, planting=config.task.planting)
        )
    from dpfl.simulation.run_directory import RunDirectory

    run_directory = RunDirectory(path, overwrite=overwrite, resume=resume)
    with run_directory.in_use():
        made_from = {} if task is None else task.made_from
        run = execution.Run(
            directory=run_directory,
            configuration={**config.fixed(), **made_from},
            settings=json.loads(json.dumps(config.to_dict())),
            files=files or {},
            tell=tell,
            notice=notice,
        )
        run.require_settings()
        prepared = prepare(config, task, run=run, tell=tell, on_choice=chosen.extend)

        def build() -> 'tuple[program.Experiment, FederatedTask]':
            built = prepared.build(progress)
            if chosen and not run_directory.state.begun:
                from dpfl.reporting import choice_page  # Loads matplotlib.

                run_directory.begin(run.settings, run.files)
                page = choice_page.render(chosen, prepared.plan.participation)
                run_directory.write_text(archive.CHOICE, page)
                tell(f'mechanism: {chosen[0].name}; reasons in {path / archive.CHOICE}')
            return built

        return run.execute(prepared.plan, build)


def prepare(
    config: TrainConfig,
    task: FederatedTask | None,
    *,
    run: execution.Run | None = None,
    tell: Callable[[str], None],
    on_choice: Callable[[list], None],
) -> 'Prepared':
    """Checks a configuration, and makes the plan of its run.

    Args:
      config, task: as in `train`.
      run: the run, whose directory is in use; None for one that only shows what it would cost.
      tell: gets messages for the person who started the run.
      on_choice: gets the candidates of mechanism 'auto', the chosen one first.

    Raises:
      ArgumentError: if a value is not allowed.
      RunError: if the run cannot be continued.
    """
    # A task of one's own has neither words to find nor a selection.
    before = BeforeTraining()
    if task is None:
        before = prepared_task.of_run(config, None if run is None else run.draw)
    config, opened = _opened(config, task, tell, before)
    clients = functools.partial(source.population, config.sampling.population, opened.num_clients)
    known = None if run is None else run.known_plan()
    origin = fork.taken_over(config, None if run is None else run.directory)
    drawn = {} if run is None else run.directory.state.drawn
    plan = known or _plan(config, opened, clients, origin, before, drawn, tell, on_choice)
    config.optimization.rates(plan.participation.rounds)  # Raises if they do not fit the rounds.
    found = None if known else strategy_hint(config.privacy, plan)
    if found is not None:
        tell(found)
    return Prepared(config, plan, opened, clients, before, origin, tell)


def _plan(
    config: TrainConfig,
    opened: source.TaskSource,
    clients: Callable[[], int],
    origin: fork.Origin | None,
    before: BeforeTraining,
    drawn: Mapping[str, Drew],
    tell: Callable[[str], None],
    on_choice: Callable[[list], None],
) -> accounting.PrivacyPlan:
    """The plan of a run that begins, or that is to have more rounds."""
    releases = prepared_task.counted(before.releases, drawn)
    make = functools.partial(
        build_plan,
        config.privacy,
        config.sampling,
        population=clients,
        earlier=() if origin is None else origin.plans,
        before=releases,
    )
    if before.releases and not drawn:
        # The size of the model may depend on a draw: what can be refused is refused before it.
        first = make(dimension=opened.most_parameters, on_choice=lambda candidates: None)
        config.sampling.sampler(first.participation, clients(), config.seed, first.sampling)
    plan = make(dimension=opened.num_parameters, on_choice=on_choice, workload=config.workload)
    # Raises early if delta is out of range, or the accountant does not know the plan.
    delta, method = config.privacy.delta, accountant(config.privacy, plan)
    plan.epsilon(delta, method)
    if config.course.stop_at_epsilon is not None:
        plan = within_epsilon(plan, config.course.stop_at_epsilon, delta, method, tell)
        check_adapts(config.privacy, plan)
    return plan


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run whose settings are checked and whose plan is made; nothing has taken long yet.

    Attributes:
      config: the configuration.
      plan: the privacy plan.
      opened: the source of the task.
      clients: returns the number of clients to train on; opens the data.
      before: how it makes its releases before training.
      origin: what the run takes over from another one; None if it takes over nothing.
      tell: gets messages for the person who started the run.
    """

    config: TrainConfig
    plan: accounting.PrivacyPlan
    opened: source.TaskSource
    clients: Callable[[], int]
    before: BeforeTraining
    origin: fork.Origin | None
    tell: Callable[[str], None]

    def load(self) -> tuple[FederatedTask, int, tuple[str, Sequence[str]] | None]:
        """The task, the number of clients to train on, and the language model if it is one."""
        population = self.clients()  # Opens the data.
        if text := large_delta.warning(self.config.privacy.delta, population):
            self.tell(text)
        loaded, language = self.opened.load(), self.opened.language_model()
        loaded = prepared_task.prepared(
            self.config.task, loaded, self.config.seed, language, population, self.before
        )
        if self.origin is not None:
            loaded = _forked(loaded, self.origin)
        return loaded, population, language

    def build(self, progress: bool) -> 'tuple[program.Experiment, FederatedTask]':
        """The experiment and its task."""
        loaded, population, language = self.load()
        experiment = build_experiment(self.config, self.plan, loaded, population, language)
        if self.origin is not None:
            experiment = dataclasses.replace(
                experiment,
                earlier_noise_is_seeded=self.origin.noise_is_seeded,
                earlier_noise_key_digests=self.origin.noise_key_digests,
                warm_start_is_public=self.origin.warm_start_is_public,
            )
        return dataclasses.replace(experiment, progress=progress), loaded


class _OwnTask(source.TaskSource):
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


def _opened(
    config: TrainConfig,
    task: FederatedTask | None,
    tell: Callable[[str], None],
    before: BeforeTraining,
) -> tuple[TrainConfig, source.TaskSource]:
    if task is not None:
        own = TaskConfig(task=CUSTOM, planting=config.task.planting)
        return dataclasses.replace(config, task=own), _OwnTask(run_data.with_limits(task))
    if config.task.task == CUSTOM:
        raise ArgumentError('task', CUSTOM, 'needs a task of your own, as an argument of train')
    return config, source.open_task(config.task, config.seed, tell, before)


def build_experiment(
    config: TrainConfig,
    plan: accounting.PrivacyPlan,
    task: FederatedTask,
    population: int,
    language: tuple[str, Sequence[str]] | None,
) -> 'program.Experiment':
    """The experiment of a configuration.

    Args:
      config: the configuration.
      plan: its plan.
      task: the task, with its initial model.
      population: number of clients to train on.
      language: name of the language model and its vocabulary; None for another model.

    Raises:
      ArgumentError: if the task has not what the configuration needs.
    """
    import tensorflow_federated as tff

    from dpfl import aggregators, learning
    from dpfl.auditing import canaries, one_shot
    from dpfl.simulation import program
    from dpfl.simulation.training import drawn_examples
    from dpfl.tasks import own_data

    test = _test(config.evaluation.test_clients, task)  # Refused before anything is built.
    sgd = tff.learning.optimizers.build_sgdm
    how, seeded = config.optimization, config.noise_seed is not None
    is_fedsgd = how.client_update == 'fedsgd'
    is_per_layer = config.privacy.clipping == 'per_layer'
    clip: Any = aggregators.PerLayer() if is_per_layer else aggregators.clip_flat
    storage = noise_storage(plan, task.model, config.privacy.memory_limit)
    design = None

    def samplers(seed: int) -> Any:
        return config.sampling.sampler(plan.participation, population, seed, plan.sampling)

    if config.audit.audit:
        size = own_data.num_parameters(task.model)
        design = canaries.design(plan, config.audit.canaries, config.seed, size, samplers)
    process = learning.build_dp_fedavg(
        task.model,
        plan,
        client_optimizer_fn=None if is_fedsgd else sgd(how.client_learning_rate),
        client_update=how.client_update,
        client_learning_rate=how.client_learning_rate if is_fedsgd else 1.0,
        client_epochs=how.client_epochs,
        server_optimizer_fn=learning.build_server_optimizer(
            how.server_optimizer,
            how.rates(plan.participation.rounds),
            momentum=0.0 if how.server_optimizer == 'adagrad' else how.server_momentum,
            nesterov=how.server_nesterov,
            beta2=how.server_beta2,
            epsilon=how.server_epsilon,
        ),
        noise_seed=config.noise_seed,
        train_metrics=config.evaluation.release_train_metrics,
        clip=clip,
        clip_each_batch=how.clip_each_batch,
        supplied_noise=storage.is_supplied,
        canaries=None if design is None else design.added(),
    )
    heldout = task.heldout(config.evaluation.eval_clients, _EVAL_BATCH_SIZE)
    return program.Experiment(
        process=process,
        plan=plan,
        delta=config.privacy.delta,
        accountant=accountant(config.privacy, plan),
        sampler=samplers(config.seed),
        **drawn_examples.of_run(task, how, config.seed),
        evaluate=learning.build_evaluation(
            task.model,
            heldout,
            owners=task.heldout_owners and task.heldout_owners(config.evaluation.eval_clients),
            hits=task.hits,
        ),
        eval_every=config.evaluation.eval_every,
        release_train_metrics=config.evaluation.release_train_metrics,
        test=test,
        reference_accuracies=references(config, task),
        uniform_loss=uniform_loss(config, language),
        watch_loss=True,
        not_covered=(*config.not_covered, *task.not_covered),
        about=accounting.About(
            task=config.task.task,
            model=config.model_name,
            parameters=own_data.num_parameters(task.model),
        ),
        remarks=(
            *config.remarks(plan.participation.rounds),
            *prepared_task.remarks(task.found),
        ),
        noise_is_seeded=seeded,
        warm_start_is_public=config.course.warm_start_is_public,
        noise_storage=storage,
        num_shards=config.execution.shards,
        ray=config.execution.ray,
        ray_timeout=config.execution.ray_timeout,
        checkpoint_every=config.execution.checkpoint_every,
        keep_checkpoints=config.execution.keep_checkpoints,
        finish=None if language is None else lambda path: run_model.save(path, *language),
        profile=config.execution.profile,
        configuration={**config.fixed(), **task.made_from},
        stop_at_accuracy=config.course.stop_at_accuracy,
        audit=None if design is None else one_shot.OneShotAudit(design),
    )


def _test(num_clients: int, task: FederatedTask) -> Callable[[Any], dict[str, float]] | None:
    """What measures the final model on test clients; None if there is no test.

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
        task.model, weights, batches(num_clients, _EVAL_BATCH_SIZE)
    )


def noise_storage(
    plan: accounting.PrivacyPlan, model: Any, memory_limit: float
) -> mechanisms.NoiseStorage:
    """Chooses where the past noise of a run is kept.

    Args:
      plan: the privacy plan of the run.
      model: a functional model; only its number of parameters matters.
      memory_limit: limit on the memory for past noise, in gigabytes.
    """
    from dpfl.tasks import own_data

    size = own_data.num_parameters(model)
    kernel = plan.mechanism.with_rounds(plan.participation.rounds).kernel()
    return mechanisms.choose_noise_storage(kernel, size, memory_limit, plan.noise)


def _forked(task: FederatedTask, origin: fork.Origin) -> FederatedTask:
    """The task, starting from the model of an earlier run."""
    from dpfl.tasks.text.models import architectures

    model = task.model
    weights = origin.weights([tuple(np.shape(weight)) for weight in model.initial_weights[0]])
    if weights is not None:
        model = architectures.with_weights(model, weights)
    not_covered = dict.fromkeys((*task.not_covered, *origin.not_covered))
    return dataclasses.replace(task, model=model, not_covered=tuple(not_covered))


def uniform_loss(config: TrainConfig, language: tuple[str, Sequence[str]] | None) -> float | None:
    """Cross entropy of a model that finds every word, or every class, equally likely."""
    if language is not None:
        return math.log(len(language[1]) + tokenization.NUM_SPECIAL_TOKENS)
    if config.task.task in IMAGE_TASKS:
        from dpfl.tasks.images import image_batches

        return math.log(image_batches.NUM_CLASSES)
    return None


def references(config: TrainConfig, task: FederatedTask) -> dict[str, float]:
    """What a run's accuracy is compared with: known accuracies, of counting words, of guessing."""
    counted = task.baselines(config.evaluation.eval_clients) if task.baselines else {}
    uniform = uniform_loss(config, None)
    guessed = {} if uniform is None else {'uniform_accuracy': math.exp(-uniform)}
    return {**guessed, **counted, **task.reference_accuracies}
