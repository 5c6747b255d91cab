"""Addresses of workers on other machines, with their tokens. Imports no TensorFlow."""

import dataclasses
from collections.abc import Iterable, Sequence

from dpfl import errors

_LAST_PORT = 65535


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a worker listens.

    Attributes:
      host: a name, or an IP address without brackets.
      port: TCP port.
      token: of the worker, as from `tokens.read`; None for a worker that asks for none.
    """

    host: str
    port: int
    token: bytes | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self):
        host = f'[{self.host}]' if ':' in self.host else self.host
        return f'{host}:{self.port}'


def parse(workers: Iterable[str | Address], tokens: Sequence[bytes] = ()) -> tuple[Address, ...]:
    """The addresses of workers.

    Args:
      workers: as `host:port`, an IPv6 address in brackets; an `Address` stays as it is.
      tokens: none, one for all workers, or one for each, in their order.

    Raises:
      ValueError: if one is not an address or is given twice, or if the number of tokens is wrong.
    """
    workers = tuple(workers)
    if len(tokens) not in (0, 1, len(workers)):
        raise errors.ArgumentError(
            'tokens',
            f'{len(tokens)} of them',
            f'must be one, or one for each of {len(workers)} workers',
        )
    of_each = tuple(tokens) * (len(workers) if len(tokens) == 1 else 1) or (None,) * len(workers)
    found = tuple(map(_parse, workers, of_each))
    for i, address in enumerate(found):
        if address in found[:i]:
            raise errors.ArgumentError('workers', address, 'must be given once')
    return found


def _parse(text: str | Address, token: bytes | None) -> Address:
    if isinstance(text, Address):
        return text
    host, _, port = text.strip().rpartition(':')
    in_brackets = host.startswith('[') and host.endswith(']')
    host = host[1:-1] if in_brackets else host
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT
    is_host = host and not any(c.isspace() or c in '/@[]' for c in host)
    if not is_host or not is_port or (':' in host) != in_brackets:
        raise errors.ArgumentError('workers', text, 'must be host:port, such as 10.0.0.7:8000')
    return Address(host, int(port), token)
