"""Errors of computations, with messages of one line."""

import re
from typing import Any

from dpfl import errors

_RESOURCE_EXHAUSTED = 8  # The code of gRPC, which TensorFlow uses.
# oneDNN's message for status 1, dnnl_out_of_memory; TensorFlow reports it as an aborted operation.
_NO_PRIMITIVE = 'Status: 1, message: could not create a primitive'
# TensorFlow lists what an assertion shows, each item in brackets. A message comes first, and has
# words; values have none.
_ASSERTION = re.compile(r'assertion failed: \[([^]]*[a-z]{2} [^]]*)\](?: \[|$)')


class RayError(errors.RunError):
    """Ray is not there, does not answer, or has lost too much."""


class OutOfMemoryError(errors.RunError):
    """A computation needs more memory than this process can get."""


class ComputationError(RuntimeError):
    """A computation failed, for instance because of a TensorFlow error in one client."""


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
