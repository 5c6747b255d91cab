"""The port and the token of a worker. Failures are `UsageError`s that name the flag."""

import ipaddress
import os
import socket
import sys

from dpfl.cli.command.command_line import UsageError, refusing_bad_values
from dpfl.runtime.workers import tokens


def check_address(address: str, *, has_token: bool, allow_anybody: bool) -> None:
    """Checks that others reach the port only if there is a token, or --allow_anybody.

    Raises:
      UsageError: If `address` is not the number of an interface, or the flags do not allow it.
    """
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        raise UsageError(
            f'--address={address}: must be the number of an interface, such as 127.0.0.1'
        ) from None
    if has_token and allow_anybody:
        raise UsageError('--allow_anybody: cannot be combined with --token_file')
    if not (has_token or allow_anybody or number.is_loopback):
        raise UsageError(
            f'--address={number}: must be of this host alone, such as 127.0.0.1, unless there is '
            'a --token_file, or --allow_anybody'
        )


def listener(address: str, port: int) -> socket.socket:
    """A socket that is bound to a port of an interface.

    Raises:
      UsageError: If the port is not free.
    """
    version = ipaddress.ip_address(address).version
    made = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address, port))
    except OSError as error:
        raise UsageError(f'--port={port}: must be free on {address} ({error.strerror})') from None
    return made


def token(path: str) -> bytes:
    """The token in a file. If the file does not exist, it is made with a new token.

    Raises:
      UsageError: If the file cannot be made or read, or does not hold a token.
    """
    try:
        if tokens.make(path):
            print(f'{os.path.abspath(path)}: made, with a new token', file=sys.stderr)
    except OSError as error:
        raise UsageError(
            f'--token_file={path}: must be where a file can be made ({error.strerror})'
        ) from None
    with refusing_bad_values():
        return tokens.read(path)
