"""`train`: federated learning under a privacy plan, as a configuration describes it."""

import json
import os
from collections.abc import Mapping

from dpfl.errors import ArgumentError
from dpfl.simulation.training import execution, fedavg, gan
from dpfl.simulation.training.config import GanConfig, TrainConfig
from dpfl.simulation.training.execution import TrainResult
from dpfl.simulation.training.prepared_run import PreparedRun
from dpfl.tasks.federated_task import FederatedTask


def train(
    config: TrainConfig | GanConfig,
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

    A `GanConfig` trains a generator of images by DP-FedAvg-GAN ([Augenstein20], algorithm 1). The
    weights of the result are those of the generator. In the directory, `plots/` has a sheet of
    generated images for each evaluation, and `generator/` the generator as a SavedModel.

    It can be called any number of times in a process. Ctrl-C ends it with KeyboardInterrupt. With
    `resume`, an interrupted run continues, and ends with the same results, bit for bit.

    Args:
      config: the configuration of the run.
      directory: the directory of the run; created if it does not exist.
      task: your own task, for example from `dpfl.tasks.own_data.from_arrays`; by default the task
        that the configuration names. A GAN needs no model in it: all batches of a client are
        read, and in every round images are drawn from them.
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

    Example:
      >>> config = TrainConfig(
      ...     task=TaskConfig(task='synthetic_glyphs', model='tiny'),
      ...     privacy=PrivacyConfig(mechanism='gaussian', noise_multiplier=2.0, delta=1e-3),
      ...     sampling=SamplingConfig(rounds=2, population=20, clients_per_round=2))
      >>> result = train(config, 'run', progress=False)
      >>> round(result.report.guarantee.rho, 3)
      0.25
    """
    tell = execution.teller(progress)
    if resume and overwrite:
        raise ArgumentError('resume', True, 'cannot be combined with overwrite')
    if task is not None:
        config = config.of_own_task()
    from dpfl.simulation.run_directory import RunDirectory

    run_directory = RunDirectory(directory, overwrite=overwrite, resume=resume)
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
        prepared: PreparedRun
        if isinstance(config, GanConfig):
            prepared = gan.prepare(config, task, run=run, tell=tell)
        else:
            prepared = fedavg.prepare(config, task, run=run, tell=tell)
        return run.execute(prepared, progress)
