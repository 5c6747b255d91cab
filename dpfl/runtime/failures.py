"""Errors of computations and of workers, with messages of one line."""

import re
from typing import Any

import grpc

from dpfl import errors

_MOST_CHARACTERS = 500
_RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]  # TensorFlow uses the same codes.
# oneDNN's message for status 1, dnnl_out_of_memory; TensorFlow reports it as an aborted operation.
_NO_PRIMITIVE = 'Status: 1, message: could not create a primitive'
# TensorFlow lists what an assertion shows, each item in brackets. A message comes first, and has
# words; values have none.
_ASSERTION = re.compile(r'assertion failed: \[([^]]*[a-z]{2} [^]]*)\](?: \[|$)')
_WORKER_IS_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)


class WorkerError(errors.RunError):
    """A worker could not be started, died, or is no longer reachable."""


class IsolationError(WorkerError):
    """The system does not let a worker be isolated from the network."""


class OutOfMemoryError(errors.RunError):
    """A computation needs more memory than this process can get."""


class ComputationError(RuntimeError):
    """A computation failed, for instance because of a TensorFlow error in one client."""


class RemoteComputationError(WorkerError, ComputationError):
    """A worker reports that a computation failed. Another worker may be able to run it."""


def one_line(message: str) -> str:
    """The message of a TensorFlow error, without its locations in the graph.

    Of an assertion that has a message it is this message.
    """
    what = message.removeprefix('Graph execution error:').partition('\n\t [[')[0]
    line = ' '.join(what.split())
    assertion = _ASSERTION.search(line)
    return assertion[1].strip() if assertion else line


def of_tensorflow(error: Any) -> OutOfMemoryError | ComputationError:
    """The error of this module for an error of TensorFlow (`tf.errors.OpError`), in one line."""
    line = one_line(error.message)
    if error.error_code != _RESOURCE_EXHAUSTED and _NO_PRIMITIVE not in line:
        return ComputationError(line)
    # The message starts with the location in the graph.
    start = max(line.find('OOM when'), line.find(_NO_PRIMITIVE), 0)
    return OutOfMemoryError(f'out of memory: {line[start:]}')


def details(error: grpc.RpcError) -> str:
    """The details of a failed call, in one line that is safe to print."""
    return printable(str(error.details()))


def printable(text: str) -> str:
    """Text from a worker as one line of at most 500 characters.

    Control characters are replaced: a terminal would execute them.
    """
    line = ' '.join(text.split())
    line = ''.join(character if character.isprintable() else '?' for character in line)
    return line if len(line) <= _MOST_CHARACTERS else f'{line[:_MOST_CHARACTERS]} ...'


def is_of_worker(error: grpc.RpcError) -> bool:
    """Whether a call failed because the worker is gone, not because of the computation."""
    return error.code() in _WORKER_IS_GONE
