"""The guarantee of runs that begin with the model of another run. Does not import TensorFlow."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING

from dpfl import _validate, accounting, errors
from dpfl.accounting.measured.measured import Measured
from dpfl.accounting.records import archive
from dpfl.accounting.records.journal import Journal, State
from dpfl.accounting.reports import inputs, observed
from dpfl.errors import ArgumentError
from dpfl.simulation.training.config import GanConfig, TrainConfig

if TYPE_CHECKING:
    from dpfl.simulation import run_directory

# Where the description of a run's data has the seeds of earlier runs.
EARLIER_SEEDS = 'earlier_seeds'
_MOST_SEED = 2**63 - 1
# Folder in the directory of a run with its model.
_SAVED_MODEL = 'saved_model'
_TRAIN_METRICS = (
    'Metrics of the training clients of an earlier run, with whose model this run began: they were '
    'released without noise.'
)


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a run takes over from the run whose model it begins with, if any.

    Attributes:
      plans: plans of that run, and of the earlier runs that it continues from itself.
      noise_is_seeded: whether the noise of one of them came from a known seed.
      not_covered: the limits of their guarantees, one sentence each.
      noise_key_digests: of their noise keys, from `inputs.earlier_keys`, as far as they are known.
      warm_start_is_public: whether one of them began with a model that was declared public.
      seeds: of the cohorts of those whose guarantee relies on them, as far as they are known.
    """

    plans: tuple[accounting.PrivacyPlan, ...] = ()
    noise_is_seeded: bool = False
    not_covered: tuple[str, ...] = ()
    noise_key_digests: tuple[str, ...] = ()
    warm_start_is_public: bool = False
    seeds: tuple[int, ...] = ()


def taken_over(
    config: TrainConfig | GanConfig, directory: 'run_directory.RunDirectory | None'
) -> Origin:
    """What a run takes over from the run whose model it begins with.

    A run that is continued has them in its own directory: the other run may have gone on since.

    Args:
      config: of the run that begins.
      directory: of the run that begins or continues, in use; None for no run.

    Raises:
      ArgumentError: if the earlier run has no model to begin with, its guarantee is not known, it
        did not keep its plan, or its noise has the same seed.
    """
    if isinstance(config, GanConfig) or not config.counts_warm_start:
        return Origin()
    if directory is not None and directory.state.begun:
        own = archive.read_plan(directory.path)
        return Origin(
            own.plan.earlier,
            own.noise_is_seeded,
            own.also_not_covered,
            own.earlier_noise_key_digests,
            own.warm_start_is_public,
            _earlier_seeds(directory.state),
        )
    assert config.task.warm_start is not None
    return _of_model(config.task.warm_start, config)


def _of_model(path: str, config: TrainConfig) -> Origin:
    """Plans of the finished run whose saved model is `path`."""
    from dpfl.simulation import run_directory  # It reads settings, which are of this package.

    source = _run_of_model(path)
    if source is None:
        raise ArgumentError(
            'warm_start',
            path,
            'is not the model of a run, so that its guarantee is not known: set '
            'warm_start_is_public if it learned from public data only',
        )
    try:
        record, verification = archive.read_plan(source), run_directory.verify(source)
        if verification.report is None or not verification.is_verified:
            raise ValueError(verification.differences[0])
        measured = verification.report.measured
        _require_kept(path, verification.report.observed, measured)
        run = archive.read_journal(source) or Journal()
        origin = _of_record(record, run.state, run.released_head())
        _require_other_seeds(config, run.state, origin)
    except ArgumentError:
        raise
    except (ValueError, OSError, AttributeError, errors.RunError) as error:
        shown = errors.shown(error)
        raise ArgumentError(
            'warm_start', path, f'must be the model of a finished run ({shown})'
        ) from None
    return origin


def _run_of_model(path: str) -> pathlib.Path | None:
    """The directory of the run that has saved a model; None for a model on its own."""
    folder = pathlib.Path(path).resolve()
    # Other folders in the directory of a run may hold the model of another one.
    for source in (folder, folder.parent) if folder.name == _SAVED_MODEL else (folder,):
        if any((source / name).exists() for name in (archive.PLAN, archive.LEDGER)):
            return source
    return None


def _require_kept(path: str, seen: observed.Observed | None, audit: Measured | None) -> None:
    if seen is not None and seen.violations:
        raise ArgumentError('warm_start', path, 'must have kept its plan, and has not')
    if audit is not None and audit.refutations:
        raise ArgumentError(
            'warm_start', path, f'has a guarantee that its audit refutes ({audit.refutations[0]})'
        )


def _earlier_seeds(state: State) -> tuple[int, ...]:
    """The seeds that a run has recorded of the runs before it."""
    known = {} if state.built is None else state.built.data
    return _validate.integers(
        EARLIER_SEEDS, known.get(EARLIER_SEEDS, ()), minimum=0, maximum=_MOST_SEED
    )


def _require_other_seeds(config: TrainConfig, earlier: State, origin: Origin) -> None:
    """Checks that the noise, and cohorts that amplify, are not those of an earlier run."""
    noise_seed = earlier.configuration.get('noise_seed')
    if config.noise_seed is not None and config.noise_seed == noise_seed:
        raise ArgumentError(
            'noise_seed',
            config.noise_seed,
            'must not be that of the earlier run: the noise would be too',
        )
    if config.seed in origin.seeds:
        raise ArgumentError(
            'seed',
            config.seed,
            'must not be that of an earlier run: the cohorts would be too, and the amplification '
            'of two runs does not add up for the same cohorts',
        )


def _of_record(record: archive.PlanRecord, state: State, chain: str | None) -> Origin:
    plan, noise_key = record.plan, record.noise_key_digest
    seed = None if plan.sampling is None else state.configuration.get('seed')
    metrics = (_TRAIN_METRICS,) if record.train_metrics_released else ()
    own = () if noise_key is None else (inputs.earlier_keys(noise_key, chain),)
    return Origin(
        (*plan.earlier, dataclasses.replace(plan, earlier=())),
        record.noise_is_seeded,
        (*record.also_not_covered, *metrics),
        (*record.earlier_noise_key_digests, *own),
        record.warm_start_is_public,
        (*_earlier_seeds(state), *([] if seed is None else [seed])),
    )
