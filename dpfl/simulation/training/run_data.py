"""The data of a run: described when it begins, and compared when it continues."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl import _files, _json
from dpfl.accounting.records import archive
from dpfl.errors import NOT_SHOWN, ArgumentError, RunError
from dpfl.simulation import ledger
from dpfl.simulation.training import before_training
from dpfl.tasks.federated_task import FederatedTask

if TYPE_CHECKING:
    from dpfl.simulation import outputs, program

_DATA = 'data.json'
# Released rounds whose data a run that continues reads again, from the first to the last.
_COMPARED_ROUNDS = 8
NOT_FINGERPRINTED = (
    'Changes of the data while the run was interrupted: the data of this task have no digest, so a '
    f'run that continues compares those of at most {_COMPARED_ROUNDS} released rounds.'
)
_CONFIDENTIAL = (
    "These are exact counts of the clients' data, which no guarantee covers: they are not for "
    'sharing. The key of the digests is in checkpoints/.'
)


def with_limits(task: FederatedTask) -> FederatedTask:
    """A task of one's own; if it has no digest of its data, the report will say so."""
    if task.fingerprints or task.in_memory:
        return task
    return dataclasses.replace(task, not_covered=(*task.not_covered, NOT_FINGERPRINTED))


def record(
    directory: 'outputs.RunDirectory',
    task: FederatedTask | None,
    experiment: 'program.Experiment',
    is_new: bool,
) -> None:
    """Describes the run's data in `data.json`; a run that continues must have the same data.

    Also keeps what was found privately before training.
    """
    if task is not None and task.found and is_new:
        # First: from here on, a run that is continued finds nothing anew.
        text = before_training.as_file(
            task.found, experiment.plan.before, noise_is_seeded=experiment.noise_is_seeded
        )
        directory.write_text(archive.BEFORE, text)
    path = directory.path / _DATA
    has_digests = task is not None and bool(task.fingerprints or task.in_memory)
    if not is_new and has_digests != _has_digests(path):
        raise RunError(
            f'{path}: has {"no " if has_digests else ""}digests of the data, and the task has '
            f'{"some" if has_digests else "none"}; a run must continue with the same kind of task'
        )
    if task is None or not (task.description or has_digests):
        return
    from dpfl.simulation import data_digest

    key = directory.data_key(is_new)
    digests = {
        name: data_digest.of_file(key, name, digest) for name, digest in task.fingerprints.items()
    }
    digests |= {name: data_digest.of_cohort(key, read()) for name, read in task.in_memory.items()}
    values = {'confidential': _CONFIDENTIAL, **task.description, 'keyed_digests': digests}
    if is_new:
        directory.write_text(_DATA, json.dumps(values, indent=2) + '\n')
    elif path.exists():
        require(path, values)


def require_released(directory: 'outputs.RunDirectory', experiment: 'program.Experiment') -> None:
    """Checks that clients have the data with which some of the rounds were released.

    Raises:
      RunError: if not.
    """
    from dpfl import learning
    from dpfl.simulation import data_digest

    path, key = directory.path / archive.LEDGER, directory.data_key(is_new=False)
    entries, sampler = ledger.read(path).entries, experiment.sampler
    ledger.require_cohorts(path, entries, sampler)
    rounds = np.unique(np.linspace(0, len(entries) - 1, _COMPARED_ROUNDS).round().astype(int))
    same = list(map(int, rounds[: len(entries)]))
    found: list[str] = []
    for _ in learning.sharded_cohorts(
        experiment.turns(same),
        experiment.data_in_turn,
        experiment.num_shards,
        lambda clients: found.append(data_digest.of_digests(key, clients)),
        data_digest.of_client,
    ):
        pass
    for t, digest in zip(same, found, strict=True):
        if digest != entries[t].data:
            raise RunError(
                f'{path}: round {t + 1} was released with other data of its clients; a run must '
                'continue with the data with which it began'
            )


def num_heldout(directory: pathlib.Path) -> int:
    """The number of held-out clients that `data.json` of a run states; 0 without one.

    Early versions measured on images of the training clients of federated EMNIST, and said so by
    naming no held-out clients.
    """
    try:
        clients = _json.loads(_files.read_bytes(directory / _DATA))['clients']
        return int(clients['heldout'])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def _has_digests(path: pathlib.Path) -> bool:
    """Whether `data.json` is there and has digests of clients' data."""
    try:
        return bool(json.loads(path.read_text())['keyed_digests'])
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        raise RunError(f'{path}: not the description of the data of a run') from None


def require(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Checks that a run that continues has the data, and the models, with which it began.

    Args:
      path: `data.json` of the run.
      values: what it would hold now.

    Raises:
      ArgumentError: if they differ; it names the setting.
      RunError: if the file is damaged.
    """
    try:
        before = json.loads(path.read_text())
        known = {**before['keyed_digests']}
        digests = values['keyed_digests']
    except (ValueError, KeyError, TypeError):
        raise RunError(f'{path}: not the description of the data of a run') from None
    for name in ('selection_model', 'warm_start'):
        if digests.get(name) != known.get(name):
            raise ArgumentError(name, NOT_SHOWN, 'must be the model with which the run began')
    for name in ('clients', 'heldout', 'order_seed'):
        if digests.get(name) != known.get(name):
            raise ArgumentError(
                name,
                NOT_SHOWN,
                f'must be the same, in the same order, as when the run began; {path} has a digest',
            )
    # As JSON has them: tuples are lists.
    if json.loads(json.dumps(values)) != before:
        raise ArgumentError(
            'data_path',
            NOT_SHOWN,
            f'must have the data and the vocabulary with which the run began; {path} says what '
            'they were',
        )
