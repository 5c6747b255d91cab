"""Mean losses of clients under language models."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from dpfl.tasks.federated_task import FederatedTask
from dpfl.tasks.text.models import saved_models
from dpfl.tasks.text.tokenization import PAD_ID

_BATCH_SIZE = 256


@dataclasses.dataclass(frozen=True)
class ClientRows:
    """The text of clients.

    Attributes:
      x, y: inputs and targets, int32 [rows, L].
      owners: the client of each row, integers from 0, [rows].
      count: number of clients; those without rows have none.
    """

    x: np.ndarray
    y: np.ndarray
    owners: np.ndarray
    count: int

    @property
    def tokens(self) -> np.ndarray:
        """Number of targets of each client, int64 [clients]."""
        return np.bincount(self.owners, (self.y != PAD_ID).sum(axis=1), self.count).astype(int)

    def with_text(self) -> 'ClientRows':
        """The clients that have a target, renumbered from 0 in the same order."""
        kept = self.tokens > 0
        number = np.cumsum(kept) - 1
        rows = kept[self.owners]
        return ClientRows(
            self.x[rows], self.y[rows], number[self.owners[rows]], int(np.count_nonzero(kept))
        )


def of_training(task: FederatedTask, clients: Iterable[int]) -> ClientRows:
    """The text of training clients, as they train on it in one epoch."""
    found = [task.client_batches(int(client), _BATCH_SIZE, 1, None) for client in clients]
    sizes = [sum(len(batch['x']) for batch in batches) for batches in found]
    return _joined(
        (batch for batches in found for batch in batches),
        np.repeat(np.arange(len(found)), sizes),
        len(found),
    )


def of_heldout(task: FederatedTask, count: int) -> ClientRows:
    """The text of the first held-out clients."""
    assert task.heldout_owners is not None  # All tasks of text tell clients apart.
    owners = np.asarray(task.heldout_owners(count))
    batches = task.heldout(count, _BATCH_SIZE)
    return _joined(batches, owners, int(owners.max(initial=-1)) + 1)


def _joined(batches: Iterable, owners: np.ndarray, count: int) -> ClientRows:
    parts = [(np.asarray(batch['x']), np.asarray(batch['y'])) for batch in batches]
    if not parts:
        nothing = np.zeros((0, 1), np.int32)
        return ClientRows(nothing, nothing, owners, count)
    x, y = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ClientRows(x, y, owners, count)


def mean_losses(model: saved_models.LanguageModel, rows: ClientRows) -> np.ndarray:
    """Mean cross entropy of each client over its targets, in nats, float64 [clients].

    Args:
      model: the model.
      rows: text of clients, each of which has a target.
    """
    totals, _ = saved_models.of_model(model)(rows.x, rows.y)
    return np.bincount(rows.owners, totals, rows.count) / rows.tokens
