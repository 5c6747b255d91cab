"""Runs that begin with the model of another run. Does not import TensorFlow."""

import dataclasses
import pathlib

import numpy as np

from dpfl import accounting, errors
from dpfl.accounting.records import archive
from dpfl.accounting.reports import observed
from dpfl.errors import ArgumentError
from dpfl.participation import ParticipationLog
from dpfl.simulation import checkpoint_folder, ledger

_TRAIN_METRICS = (
    'Metrics of the training clients of an earlier run, with whose model this run began: they were '
    'released without noise.'
)


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a run takes over from the run whose model it begins with.

    Attributes:
      plans: plans of that run, and of the earlier runs that it continues from itself.
      noise_is_seeded: whether the noise of one of them came from a known seed.
      not_covered: what their guarantees do not cover, one sentence each.
      arrays: the state at the checkpoint, which begins with the trainable weights of the model;
        empty if the run that takes over has begun already.
    """

    plans: tuple[accounting.PrivacyPlan, ...]
    noise_is_seeded: bool
    not_covered: tuple[str, ...]
    arrays: tuple[np.ndarray | bytes, ...] = ()

    def weights(self, shapes: list[tuple[int, ...]]) -> tuple[np.ndarray, ...] | None:
        """The weights of the model; None if the run that takes over has begun already.

        Args:
          shapes: of the trainable weights of the model that takes them.

        Raises:
          ArgumentError: if the run had another model.
        """
        if not self.arrays:
            return None
        found = self.arrays[: len(shapes)]
        if [np.shape(each) for each in found] != shapes:
            raise ArgumentError('fork_from', errors.NOT_SHOWN, 'must be a run with the same model')
        return tuple(np.asarray(each) for each in found)


def origin(path: str, directory: pathlib.Path, resume: bool, noise_seed: int | None) -> Origin:
    """What a run takes over from the run in `path`.

    A run that is continued has what it took over in its own directory: the other run may have gone
    on since.

    Args:
      path: directory of the run to begin from.
      directory: directory of the run that begins.
      resume: whether that run is continued, if it has begun.
      noise_seed: its seed, if there is one.

    Raises:
      ArgumentError: if `path` holds no run with a checkpoint, the run did not keep its plan, or
        its noise has the same seed.
    """
    if resume and checkpoint_folder.exist(directory / archive.CHECKPOINTS):
        own = archive.read_plan(directory)
        return Origin(own.plan.earlier_plans, own.noise_is_seeded, own.also_not_covered)
    source = pathlib.Path(path)
    try:
        record = archive.read_plan(source)
        lines = ledger.read(source / archive.LEDGER)
        found = checkpoint_folder.latest(source / archive.CHECKPOINTS, lambda reason: None)
    except (ValueError, OSError, errors.RunError) as error:
        shown = errors.shown(error)
        raise ArgumentError(
            'fork_from', path, f'must be the directory of a run ({shown})'
        ) from None
    if found is None or not found.rounds:
        raise ArgumentError('fork_from', path, 'must have a checkpoint after its first round')
    if found.plan_digest != record.plan.digest() or lines.plan != record.digest():
        raise ArgumentError('fork_from', path, 'must have the plan of its ledger and checkpoint')
    log = ParticipationLog(found.cohorts)
    seen = observed.observe(record.plan, log)
    if seen is not None and seen.violations:
        raise ArgumentError('fork_from', path, 'must have kept its plan, and has not')
    if noise_seed is not None and found.configuration.get('noise_seed') == noise_seed:
        raise ArgumentError(
            'noise_seed', noise_seed, 'must not be that of the earlier run: the noise would be too'
        )
    plan = record.plan
    metrics = (_TRAIN_METRICS,) if record.train_metrics_released else ()
    return Origin(
        (*plan.earlier_plans, dataclasses.replace(plan, earlier=())),
        record.noise_is_seeded,
        (*record.also_not_covered, *metrics),
        tuple(found.state),
    )
