"""Which clients of a file are held out: whole clients, none of whom is trained on.

Who is held out depends on the ids of the clients alone, not on a seed or on the order of a file. So
every run on a file holds out the same clients, and a smaller share holds out some of those that a
larger share does.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

from dpfl import _validate, errors


def split(ids: Iterable[Any], fraction: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Divides clients by the digests of their ids; the smallest digests are held out.

    Args:
      ids: different ids of all clients.
      fraction: share of the clients to hold out, as in `count`.

    Returns:
      Ids of the training clients and ids of the held-out clients, both in the order of the digests.

    Raises:
      ValueError: as `count`.
    """
    by_digest = sorted(ids, key=lambda client_id: (_digest(client_id), str(client_id)))
    number = count(len(by_digest), fraction)
    return tuple(by_digest[number:]), tuple(by_digest[:number])


def count(num_clients: int, fraction: float) -> int:
    """Number of held-out clients: the given fraction, but at least one and not all.

    Raises:
      ValueError: if there are fewer than two clients, or the fraction is not in (0, 1).
    """
    _validate.number('heldout_fraction', fraction, above=0, below=1)
    if num_clients < 2:
        raise errors.ArgumentError(
            'num_clients', num_clients, 'must be at least 2, one to train on and one held out'
        )
    return min(max(round(fraction * num_clients), 1), num_clients - 1)


def _digest(client: Any) -> bytes:
    return hashlib.sha256(str(client).encode('utf-8', 'surrogatepass')).digest()
