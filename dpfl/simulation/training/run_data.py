"""The data of a run: described when it begins, and compared when it continues."""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl.accounting.records import archive
from dpfl.errors import NOT_SHOWN, ArgumentError, RunError
from dpfl.tasks.config import COMPARED_ROUNDS, NOT_FINGERPRINTED
from dpfl.tasks.federated_task import FederatedTask

if TYPE_CHECKING:
    from dpfl.simulation.experiment import Experiment
    from dpfl.simulation.run_directory import RunDirectory

_CONFIDENTIAL = (
    "These are exact counts of the clients' data, which no guarantee covers: they are not for "
    'sharing. The key of the digests is in checkpoints/.'
)


def with_limits(task: FederatedTask) -> FederatedTask:
    """A task of one's own; if it has no digest of its data, the report will say so."""
    if task.fingerprints or task.in_memory:
        return task
    limits = (*task.not_covered, NOT_FINGERPRINTED)
    return dataclasses.replace(task, not_covered=limits)


def described(directory: 'RunDirectory', task: FederatedTask | None) -> dict[str, Any]:
    """The description of a run's data for the journal, with keyed digests."""
    has_digests = task is not None and bool(task.fingerprints or task.in_memory)
    if task is None or not (task.description or has_digests):
        return {}
    from dpfl.simulation import data_digest

    key = directory.data_key()
    digests = {
        name: data_digest.of_file(key, name, digest) for name, digest in task.fingerprints.items()
    }
    digests |= {name: data_digest.of_cohort(key, read()) for name, read in task.in_memory.items()}
    values = {'confidential': _CONFIDENTIAL, **task.description, 'keyed_digests': digests}
    return json.loads(json.dumps(values))  # As JSON has them: tuples are lists.


def require(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Checks that a run that continues has the data, and the models, with which it began.

    Args:
      before: the data as the journal has them.
      now: the data as they are now.

    Raises:
      ArgumentError: if they differ; it names the setting.
    """
    known, digests = before.get('keyed_digests', {}), now.get('keyed_digests', {})
    for name in ('selection_model', 'warm_start'):
        if digests.get(name) != known.get(name):
            raise ArgumentError(name, NOT_SHOWN, 'must be the model with which the run began')
    for name in ('clients', 'heldout', 'order_seed'):
        if digests.get(name) != known.get(name):
            raise ArgumentError(
                name,
                NOT_SHOWN,
                'must be the same, in the same order, as when the run began; '
                f'{archive.LEDGER} has a digest',
            )
    if now != before:
        raise ArgumentError(
            'data_path',
            NOT_SHOWN,
            f'must have the data and the vocabulary with which the run began; {archive.DATA} says '
            'what they were',
        )


def require_released(directory: 'RunDirectory', experiment: 'Experiment') -> None:
    """Checks that clients have the data with which some of the rounds were released.

    Raises:
      RunError: if not.
    """
    from dpfl import learning
    from dpfl.simulation import data_digest

    run, key = directory.journal, directory.data_key()
    count = COMPARED_ROUNDS
    rounds = np.unique(np.linspace(0, run.state.begun - 1, count).round().astype(int))
    same = list(map(int, rounds)) if run.state.begun else []
    digests: list[str] = []
    for _ in learning.sharded_cohorts(
        experiment.turns(same),
        experiment.data_in_turn,
        experiment.execution.shards,
        lambda clients: digests.append(data_digest.of_digests(key, clients)),
        data_digest.of_client,
    ):
        pass
    for t, digest in zip(same, digests, strict=True):
        if digest != run.began(t).data:
            raise RunError(
                f'{directory.path / archive.LEDGER}: round {t + 1} was released with other data of '
                'its clients; a run must continue with the data with which it began'
            )
